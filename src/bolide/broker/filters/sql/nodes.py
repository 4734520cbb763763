"""The parts of an expression: what each is known to be, and the function that evaluates it.

A property is a text or missing, and numbers come from literals only, so what a part can be is
known before any message is seen. A value that is missing or unknown is None.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bolide.broker.filters.sql.values import BadExpression, find_property
from bolide.kernel.sieves import Asked, Plan

Value = bool | int | float | str | None
Evaluate = Callable[[bytes], Value]
"""Takes a property string with 0x02 before it; may raise EvaluationFailed."""

MAX_DEPTH = 64
MAX_TERMS = 512
MAX_LISTED = 2048
TOO_DEEP = f"more than {MAX_DEPTH} nested levels: use a simpler expression"

_SHOWN = 80


class Kind(Enum):
    """What a part is when it is not None."""

    TEXT = "a text"
    INT = "a whole number"
    LONG = "a long number"
    DOUBLE = "a decimal number"
    BOOLEAN = "a condition"
    NOTHING = "NULL"

    @property
    def is_number(self) -> bool:
        return self in {Kind.INT, Kind.LONG, Kind.DOUBLE}


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression; `source` is how messages to people name it.

    Raises:
        BadExpression: with its own parts it is over a limit.
    """

    kind: Kind
    evaluate: Evaluate
    source: str
    depth: int = 1
    terms: int = 1
    listed: int = 0
    plan: Plan | None = None
    """What it asks, if that is one of the forms that the kernel knows."""

    def __post_init__(self) -> None:
        if self.depth > MAX_DEPTH:
            raise BadExpression(TOO_DEEP)
        if self.terms > MAX_TERMS:
            raise BadExpression(f"more than {MAX_TERMS} names and values: use a simpler expression")
        if self.listed > MAX_LISTED:
            raise BadExpression(f"more than {MAX_LISTED} texts in lists: use a shorter list")

    @property
    def is_condition(self) -> bool:
        return self.kind is Kind.BOOLEAN

    @property
    def told(self) -> Plan:
        """A condition for the kernel."""
        return self.plan or Asked(self.evaluate)


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal; RocketMQ checks these while it compiles."""

    value: Value = None

    @property
    def is_condition(self) -> bool:
        return self.kind in {Kind.BOOLEAN, Kind.NOTHING}


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """A number behind a minus sign, which RocketMQ does not check early."""

    value: Value = None


@dataclass(frozen=True, slots=True)
class Property(Node):
    """A name; `key` is how its value is found in a property string."""

    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Several conditions joined by one word, AND or OR."""

    word: str = ""
    links: tuple[Evaluate, ...] = ()
    plans: tuple[Plan, ...] = ()


def constant(kind: Kind, value: Value, source: str) -> Constant:
    return Constant(kind, lambda _: value, _shortened(source), value=value)


def negative(part: Constant | Negative) -> Negative:
    """The same number with the other sign."""
    value = -part.value  # type: ignore[operator]
    source, depth = _shortened(f"-{part.source}"), part.depth + 1
    return Negative(part.kind, lambda _: value, source, depth, value=value)


def name(text: str) -> Property:
    key = b"\x02" + text.encode() + b"\x01"
    source = _shortened(text)
    return Property(Kind.TEXT, lambda properties: find_property(properties, key), source, key=key)


def condition(
    evaluate: Evaluate, source: str, *parts: Node, listed: int = 0, plan: Plan | None = None
) -> Node:
    return above(Kind.BOOLEAN, evaluate, source, *parts, listed=listed, plan=plan)


def above(
    kind: Kind,
    evaluate: Evaluate,
    source: str,
    *parts: Node,
    listed: int = 0,
    plan: Plan | None = None,
) -> Node:
    """A node over others."""
    return Node(
        kind,
        evaluate,
        _shortened(source),
        1 + max(part.depth for part in parts),
        sum(part.terms for part in parts),
        listed + sum(part.listed for part in parts),
        plan,
    )


def _shortened(source: str) -> str:
    return source if len(source) <= _SHOWN else f"{source[: _SHOWN - 1]}…"
