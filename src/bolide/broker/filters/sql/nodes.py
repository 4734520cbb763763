"""Nodes of an expression: the kind of each part and the function that evaluates it.

A property is a text or missing, and numbers come from literals only, so the kind of a part is known
before any message is seen. A missing or unknown value is None.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bolide.broker.filters.sql.values import BadExpression, find_property
from bolide.kernel.sieves import Asked, Plan

Value = bool | int | float | str | None
Evaluate = Callable[[bytes], Value]
"""Takes a property string preceded by 0x02; may raise EvaluationFailed."""

MAX_DEPTH = 64
MAX_TERMS = 512
MAX_LISTED = 2048
TOO_DEEP = f"more than {MAX_DEPTH} nested levels: use a simpler expression"

_MAX_SOURCE_SHOWN = 80


class Kind(Enum):
    """The kind of a value that is not None."""

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
    """A part of an expression; `source` names it in error messages.

    Raises:
        BadExpression: the node and its parts exceed a limit.
    """

    kind: Kind
    evaluate: Evaluate
    source: str
    depth: int = 1
    terms: int = 1
    listed: int = 0
    plan: Plan | None = None
    """The equivalent kernel plan, if the kernel supports the form."""

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
    def kernel_plan(self) -> Plan:
        """The condition as a kernel plan; a form the kernel does not support calls `evaluate`."""
        return self.plan or Asked(self.evaluate)


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal; RocketMQ checks literals at compile time."""

    value: Value = None

    @property
    def is_condition(self) -> bool:
        return self.kind in {Kind.BOOLEAN, Kind.NOTHING}


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """A number after a minus sign, which RocketMQ does not check at compile time."""

    value: Value = None


@dataclass(frozen=True, slots=True)
class Property(Node):
    """A property name; `key` locates its value in a property string."""

    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Conditions joined by AND or OR."""

    word: str = ""
    links: tuple[Evaluate, ...] = ()
    plans: tuple[Plan, ...] = ()


def constant(kind: Kind, value: Value, source: str) -> Constant:
    return Constant(kind, lambda _: value, _shorten(source), value=value)


def negative(part: Constant | Negative) -> Negative:
    value = -part.value  # type: ignore[operator]
    source, depth = _shorten(f"-{part.source}"), part.depth + 1
    return Negative(part.kind, lambda _: value, source, depth, value=value)


def name(text: str) -> Property:
    key = b"\x02" + text.encode() + b"\x01"
    source = _shorten(text)
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
    """Build a node above its parts."""
    return Node(
        kind,
        evaluate,
        _shorten(source),
        1 + max(part.depth for part in parts),
        sum(part.terms for part in parts),
        listed + sum(part.listed for part in parts),
        plan,
    )


def _shorten(source: str) -> str:
    return source if len(source) <= _MAX_SOURCE_SHOWN else f"{source[: _MAX_SOURCE_SHOWN - 1]}…"
