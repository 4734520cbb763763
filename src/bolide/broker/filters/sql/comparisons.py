"""Comparison functions, chosen by the kinds of the two operands."""

import operator
from collections.abc import Callable
from typing import Any

from bolide.broker.filters.sql.nodes import (
    Constant,
    Evaluate,
    Kind,
    Negative,
    Node,
    Property,
    Value,
)
from bolide.broker.filters.sql.values import (
    BadExpression,
    EvaluationFailed,
    compare_doubles,
    compare_ints,
    find_property,
    read_boolean,
    read_double,
    read_int,
    read_long,
)

Compare = Callable[[Any, Any], int]
"""Returns a number below, at or above 0, as compareTo of Java. May raise EvaluationFailed."""

_DIRECT: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

_READERS: dict[Kind, Callable[[str], Any]] = {
    Kind.INT: read_int,
    Kind.LONG: read_long,
    Kind.DOUBLE: read_double,
}


def order_test(symbol: str, left: Node, right: Node) -> Evaluate:
    """Build the test of `left > right` and the other orderings.

    Raises:
        BadExpression: an operand has no order.
    """
    for part in (left, right):
        _refuse_unordered(part)
    is_fixed = isinstance(right, Constant | Negative) and right.kind is not Kind.DOUBLE
    if is_fixed and isinstance(left, Property):
        return _whole_number_test(left.key, _DIRECT[symbol], right)
    compare, test = _ordering(left.kind, right.kind), _DIRECT[symbol]
    evaluate_left, evaluate_right = left.evaluate, right.evaluate

    def evaluate(properties: bytes) -> Value:
        first = evaluate_left(properties)
        if first is None:
            return None
        second = evaluate_right(properties)
        return None if second is None else test(compare(first, second), 0)

    return evaluate


def equality_test(left: Node, right: Node) -> Evaluate:
    """Build the test of `left = right`, without the checks of `refuse_unequal`.

    A value missing on the left yields unknown; one missing on the right alone yields false.
    """
    if isinstance(left, Property) and isinstance(right, Constant) and right.kind is Kind.TEXT:
        return _text_test(left.key, right.value)
    compare = _matching(left.kind, right.kind)
    evaluate_left, evaluate_right = left.evaluate, right.evaluate

    def evaluate(properties: bytes) -> Value:
        first, second = evaluate_left(properties), evaluate_right(properties)
        if first is None:
            return True if second is None else None
        return second is not None and compare(first, second) == 0

    return evaluate


def _whole_number_test(key: bytes, test: Callable[[Any, Any], bool], number: Node) -> Evaluate:
    """A fast test for the most frequent form, `name > 5`."""
    read, value = _READERS[number.kind], number.evaluate(b"")

    def evaluate(properties: bytes) -> Value:
        found = find_property(properties, key)
        return None if found is None else test(read(found), value)

    return evaluate


def _text_test(key: bytes, text: Value) -> Evaluate:
    """A fast test for `name = 'text'`."""

    def evaluate(properties: bytes) -> Value:
        found = find_property(properties, key)
        return None if found is None else found == text

    return evaluate


def refuse_unequal(left: Node, right: Node) -> None:
    """Raises BadExpression if `left = right` is meaningless."""
    for part in (left, right):
        if isinstance(part, Constant) and part.value is None:
            raise BadExpression("NULL cannot be compared: use IS NULL or IS NOT NULL")
    both = isinstance(left, Constant) and isinstance(right, Constant)
    if both and left.is_condition and not right.is_condition:
        raise BadExpression(f"{left.source} cannot be compared with {right.source}")


def refuse_empty_range(low: Node, high: Node) -> None:
    """Raises BadExpression if the literals of `BETWEEN low AND high` form an empty range."""
    if isinstance(low, Constant) and isinstance(high, Constant):
        for part in (low, high):
            _refuse_unordered(part)
        if _ordering(high.kind, low.kind)(high.value, low.value) < 0:
            raise BadExpression(
                f"BETWEEN {low.source} AND {high.source}: the first must not be above the second"
            )


def _refuse_unordered(part: Node) -> None:
    if part.is_condition or (isinstance(part, Constant) and not part.kind.is_number):
        raise BadExpression(
            f"{part.source} has no order: >, >=, <, <= and BETWEEN compare numbers and names"
        )


def _ordering(left: Kind, right: Kind) -> Compare:
    if left is Kind.TEXT and right is Kind.TEXT:
        return lambda first, second: compare_doubles(read_double(first), read_double(second))
    return _matching(left, right)


def _matching(left: Kind, right: Kind) -> Compare:
    if Kind.BOOLEAN in {left, right}:
        return _with_condition(left, right)
    if left is Kind.TEXT and right is Kind.TEXT:
        return lambda first, second: int(first != second)
    if Kind.NOTHING in {left, right}:
        return _never
    kind = right if left is Kind.TEXT else left
    if right is Kind.TEXT or left is Kind.TEXT:
        return _with_text(kind, text_first=left is Kind.TEXT)
    if Kind.DOUBLE in {left, right}:
        return lambda first, second: compare_doubles(float(first), float(second))
    return compare_ints


def _with_text(kind: Kind, *, text_first: bool) -> Compare:
    """Read the text as the kind of the other operand."""
    read = _READERS[kind]
    compare: Compare = compare_doubles if kind is Kind.DOUBLE else compare_ints
    if text_first:
        return lambda first, second: compare(read(first), second)
    return lambda first, second: compare(first, read(second))


def _with_condition(left: Kind, right: Kind) -> Compare:
    if left is right:
        return compare_ints
    if left is Kind.TEXT:
        return lambda first, second: compare_ints(read_boolean(first), second)
    return _fails if right is Kind.TEXT else _never


def _fails(first: Value, second: Value) -> int:
    """RocketMQ cannot read a text on the right as a condition."""
    raise EvaluationFailed(second)


def _never(first: Value, second: Value) -> int:
    return -1
