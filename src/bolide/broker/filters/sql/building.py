"""What the parser calls for each rule of the grammar: checks, and functions made of functions."""

from collections.abc import Callable, Sequence
from typing import Any

from lark import Token, Transformer, v_args

from bolide.broker.filters.sql import nodes
from bolide.broker.filters.sql.comparing import (
    equality_test,
    order_test,
    refuse_empty_range,
    refuse_unequal,
)
from bolide.broker.filters.sql.errors import BadExpression
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
from bolide.broker.filters.sql.numbers import INT_MAX, LONG_MAX
from bolide.broker.filters.sql.planning import (
    equality_plan,
    listed_plan,
    missing_plan,
    number_plan,
)
from bolide.kernel.sieves import Joined, Negated

_NULL = constant(Kind.NOTHING, None, "NULL")

_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


@v_args(inline=True)
class Builder(Transformer[Token, Node]):
    """A method for each rule. Called bottom-up while parsing; nothing in it keeps state."""

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
            inner(properties)  # it may fail
            return None

        return nodes.above(Kind.NOTHING, evaluate, f"-{part.source}", part)

    def negation(self, _: Token, part: Node) -> Node:
        return _negated(_as_condition(part))

    def string(self, token: Token) -> Node:
        return constant(Kind.TEXT, _unquoted(token), str(token))

    def integer(self, token: Token) -> Node:
        value = int(token.rstrip("lL")) if len(token) <= _MOST_DIGITS else LONG_MAX + 1
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


_MOST_DIGITS = len(str(LONG_MAX)) + 1  # and the L


def _as_condition(part: Node) -> Node:
    """A name alone is a condition: unknown where it is missing, and false of any text."""
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

    return condition(evaluate, f"NOT {part.source}", part, plan=Negated(part.told))


def _chain(
    word: str, left: Node, right: Node, join: Callable[[Sequence[Evaluate]], Evaluate]
) -> Node:
    """One level for a whole row of ANDs or ORs: rows may be long."""
    first, second = _as_condition(left), _as_condition(right)
    row = first if isinstance(first, Chain) and first.word == word else None
    links = (*(row.links if row else (first.evaluate,)), second.evaluate)
    plans = (*(row.plans if row else (first.told,)), second.told)
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
            f"IN asks for a name before it, not {value.source}: write NOT IN behind the name"
        )
    texts = frozenset(map(_unquoted, items))
    inner = value.evaluate

    def evaluate(properties: bytes) -> Value:
        found = inner(properties)
        return None if found is None else (found in texts) is is_in

    plan = listed_plan(value, texts, is_in=is_in)
    return condition(evaluate, f"({value.source} IN …)", value, listed=len(items), plan=plan)


def _text(value: Node, word: Token, searched: Token, *, wanted: bool) -> Node:
    """Where the value is missing or no text, or nothing is searched, both forms are false."""
    looked_for, inner, has = _unquoted(searched), value.evaluate, _SEARCHES[word.type]

    def evaluate(properties: bytes) -> Value:
        if not looked_for:
            return False
        found = inner(properties)
        return isinstance(found, str) and has(found, looked_for) is wanted

    return condition(evaluate, f"({value.source} {word.type} {searched})", value)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")
