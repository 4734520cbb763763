"""Parser callbacks: turn grammar rules into checked nodes, with kernel plans where the kernel
supports the form."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lark import Token, Transformer, v_args

from bolide.broker.filters.sql import nodes
from bolide.broker.filters.sql.comparisons import (
    equality_test,
    order_test,
    refuse_empty_range,
    refuse_unequal,
)
from bolide.broker.filters.sql.nodes import (
    Chain,
    Constant,
    Evaluate,
    Kind,
    Negative,
    Node,
    Property,
    Value,
    condition,
    constant,
)
from bolide.broker.filters.sql.values import INT_MAX, LONG_MAX, BadExpression
from bolide.kernel.sieves import IsListed, IsThere, Joined, Negated, NumberIs, Plan, TextIs

_LIMITS = {Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}
_REPLACEMENT = "\ufffd"
"""Replacement for invalid UTF-8: texts that contain it may be equal though their bytes differ."""


def number_plan(symbol: str, left: Node, right: Node) -> Plan | None:
    """The plan of `name > 5` and other comparisons with a number."""
    if not (isinstance(left, Property) and isinstance(right, Constant | Negative)):
        return None
    if right.kind not in _LIMITS or not isinstance(right.value, int):
        return None
    return NumberIs(left.key, symbol, right.value, _LIMITS[right.kind])


def equality_plan(left: Node, right: Node) -> Plan | None:
    if isinstance(left, Property) and isinstance(right, Constant) and isinstance(right.value, str):
        text = _bytes_of(right.value)
        return None if text is None else TextIs(left.key, text)
    return number_plan("=", left, right)


def missing_plan(part: Node) -> Plan | None:
    """The plan of `name IS NULL`."""
    return Negated(IsThere(part.key)) if isinstance(part, Property) else None


def listed_plan(part: Property, texts: Iterable[str], *, is_in: bool) -> Plan | None:
    found = frozenset(map(_bytes_of, texts))
    if None in found:
        return None
    plan = IsListed(part.key, frozenset(text for text in found if text is not None))
    return plan if is_in else Negated(plan)


def _bytes_of(text: str) -> bytes | None:
    """Encode a text as in a property string; None if it has several encodings."""
    try:
        return None if _REPLACEMENT in text else text.encode()
    except UnicodeEncodeError:
        return None


_NULL = constant(Kind.NOTHING, None, "NULL")
_MAX_DIGITS = len(str(LONG_MAX)) + 1  # and the L

_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


@v_args(inline=True)
class Builder(Transformer[Token, Node]):
    """One method per grammar rule, called bottom-up while parsing; stateless."""

    def start(self, whole: Node) -> Node:
        return _as_condition(whole)

    def either(self, left: Node, _: Token, right: Node) -> Node:
        return _chain("OR", left, right, _any_of)

    def both(self, left: Node, _: Token, right: Node) -> Node:
        return _chain("AND", left, right, _all_of)

    # ---- comparisons

    def equal(self, left: Node, right: Node) -> Node:
        refuse_unequal(left, right)
        source = f"({left.source} = {right.source})"
        plan = equality_plan(left, right)
        return condition(equality_test(left, right), source, left, right, plan=plan)

    def not_equal(self, left: Node, _: Token, right: Node) -> Node:
        return _negated(self.equal(left, right))

    def is_null(self, left: Node, *_: Token) -> Node:
        test, plan = equality_test(left, _NULL), missing_plan(left)
        return condition(test, f"({left.source} IS NULL)", left, plan=plan)

    def is_not_null(self, left: Node, *_: Token) -> Node:
        return _negated(self.is_null(left))

    def ordered(self, left: Node, symbol: Token, right: Node) -> Node:
        return _ordered(str(symbol), left, right)

    def between(self, value: Node, _: Token, low: Node, __: Token, high: Node) -> Node:
        refuse_empty_range(low, high)
        tests = _ordered(">=", value, low), _ordered("<=", value, high)
        return _chain("AND", *tests, _all_of)

    def not_between(self, value: Node, *rest: Any) -> Node:
        low, high = rest[2], rest[4]
        tests = _ordered("<", value, low), _ordered(">", value, high)
        return _chain("OR", *tests, _any_of)

    def listed(self, value: Node, _: Token, *items: Token) -> Node:
        return _listed(value, items, is_in=True)

    def not_listed(self, value: Node, _: Token, __: Token, *items: Token) -> Node:
        return _listed(value, items, is_in=False)

    def text(self, value: Node, word: Token, searched: Token) -> Node:
        return _text(value, word, searched, wanted=True)

    def not_text(self, value: Node, _: Token, word: Token, searched: Token) -> Node:
        return _text(value, word, searched, wanted=False)

    # ---- single parts

    def negative(self, part: Node) -> Node:
        if isinstance(part, Constant | Negative) and part.kind.is_number:
            return nodes.negative(part)
        inner = part.evaluate

        def evaluate(properties: bytes) -> Value:
            inner(properties)  # evaluated for its errors
            return None

        return nodes.above(Kind.NOTHING, evaluate, f"-{part.source}", part)

    def negation(self, _: Token, part: Node) -> Node:
        return _negated(_as_condition(part))

    def string(self, token: Token) -> Node:
        return constant(Kind.TEXT, _unquoted(token), str(token))

    def integer(self, token: Token) -> Node:
        value = int(token.rstrip("lL")) if len(token) <= _MAX_DIGITS else LONG_MAX + 1
        if value > LONG_MAX:
            raise BadExpression(f"{token[:40]} is above {LONG_MAX}, the largest number")
        return constant(Kind.INT if value <= INT_MAX else Kind.LONG, value, str(token))

    def decimal(self, token: Token) -> Node:
        value = float(token)
        if value in {0.0, float("inf")}:
            limit = "too large" if value else "0: write 0 without a decimal point"
            raise BadExpression(f"{token[:40]} is {limit}")
        return constant(Kind.DOUBLE, value, str(token))

    def true(self, _: Token) -> Node:
        return constant(Kind.BOOLEAN, True, "TRUE")

    def false(self, _: Token) -> Node:
        return constant(Kind.BOOLEAN, False, "FALSE")

    def null(self, _: Token) -> Node:
        return _NULL

    def name(self, token: Token) -> Node:
        return nodes.name(str(token))


def _as_condition(part: Node) -> Node:
    """A name alone is a condition: unknown if the property is missing, else false."""
    if part.is_condition:
        return part
    if isinstance(part, Property):
        inner = part.evaluate
        return condition(lambda p: None if inner(p) is None else False, part.source, part)
    raise BadExpression(f"{part.source} is neither true nor false: compare it with something")


def _negated(part: Node) -> Node:
    inner = part.evaluate

    def evaluate(properties: bytes) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return condition(evaluate, f"NOT {part.source}", part, plan=Negated(part.kernel_plan))


def _chain(
    word: str, left: Node, right: Node, join: Callable[[Sequence[Evaluate]], Evaluate]
) -> Node:
    """Join conditions on one level: chains of ANDs or ORs may be long."""
    first, second = _as_condition(left), _as_condition(right)
    row = first if isinstance(first, Chain) and first.word == word else None
    links = (*(row.links if row else (first.evaluate,)), second.evaluate)
    plans = (*(row.plans if row else (first.kernel_plan,)), second.kernel_plan)
    return Chain(
        Kind.BOOLEAN,
        join(links),
        f"(… {word} {second.source})",
        max(first.depth if row else first.depth + 1, second.depth + 1),
        first.terms + second.terms,
        first.listed + second.listed,
        Joined(word == "AND", plans),
        word=word,
        links=links,
        plans=plans,
    )


def _any_of(tests: Sequence[Evaluate]) -> Evaluate:
    def evaluate(properties: bytes) -> Value:
        outcome: Value = False
        for test in tests:
            value = test(properties)
            if value:
                return True
            if value is None:
                outcome = None
        return outcome

    return evaluate


def _all_of(tests: Sequence[Evaluate]) -> Evaluate:
    def evaluate(properties: bytes) -> Value:
        outcome: Value = True
        for test in tests:
            value = test(properties)
            if value is None:
                outcome = None
            elif not value:
                return False
        return outcome

    return evaluate


def _ordered(symbol: str, left: Node, right: Node) -> Node:
    source = f"({left.source} {symbol} {right.source})"
    plan = number_plan(symbol, left, right)
    return condition(order_test(symbol, left, right), source, left, right, plan=plan)


def _listed(value: Node, items: Sequence[Token], *, is_in: bool) -> Node:
    if not isinstance(value, Property):
        raise BadExpression(
            f"IN requires a name before it, not {value.source}: write NOT IN behind the name"
        )
    texts = frozenset(map(_unquoted, items))
    inner = value.evaluate

    def evaluate(properties: bytes) -> Value:
        found = inner(properties)
        return None if found is None else (found in texts) is is_in

    plan = listed_plan(value, texts, is_in=is_in)
    return condition(evaluate, f"({value.source} IN …)", value, listed=len(items), plan=plan)


def _text(value: Node, word: Token, searched: Token, *, wanted: bool) -> Node:
    """Both forms are false if the value is missing or no text, or the searched text is empty."""
    searched_text, inner, contains = _unquoted(searched), value.evaluate, _SEARCHES[word.type]

    def evaluate(properties: bytes) -> Value:
        if not searched_text:
            return False
        found = inner(properties)
        return isinstance(found, str) and contains(found, searched_text) is wanted

    return condition(evaluate, f"({value.source} {word.type} {searched})", value)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")
