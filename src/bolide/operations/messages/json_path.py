"""Conditions on JSON bodies: `$.order.items[*].price > 100`.

A path has names (`.name`, `['any name']`), indexes (`[0]`, `[-1]`), all children (`.*`, `[*]`) and
descendants (`..name`). A path alone matches a document that has something there. With an operator
(`==`, `!=`, `<`, `<=`, `>`, `>=`, `contains`) it matches if one of the values there fulfils it; the
other side is JSON: a number, "text" or 'text', true, false, null. Numbers compare with numbers and
texts with texts; everything else is unequal.

This is the part of RFC 9535 that a filter of messages needs. There are no regular expressions and
no loops over anything but the document, so that a condition cannot cost more than the document is
large.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from bolide.operations.errors import BadInput

MAX_LENGTH = 1000
_MAX_VISITED = 100_000
"""Values looked at per document."""
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_STEP = re.compile(
    r"""\.\.(?P<deep>[^\s.\[\]=!<>'"*]+|\*)
      | \.(?P<name>[^\s.\[\]=!<>'"*]+|\*)
      | \[\s*(?P<index>-?\d{1,9})\s*\]
      | \[\s*(?P<all>\*)\s*\]
      | \[\s*'(?P<single>[^']*)'\s*\]
      | \[\s*"(?P<double>[^"]*)"\s*\]""",
    re.VERBOSE,
)
_CONDITION = re.compile(r"\s*(?P<sign>==|!=|<=|>=|<|>|=|contains\b)\s*(?P<value>.+?)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of a path: a name, an index, or None for all children."""

    key: str | int | None
    deep: bool = False


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """A path, and what a value there must be."""

    steps: tuple[_Step, ...]
    test: Callable[[object], bool] | None = None
    """None: there is any value."""

    @classmethod
    def parse(cls, text: str) -> "JsonCondition":
        """Raises BadInput."""
        text = text.strip()
        if len(text) > MAX_LENGTH:
            raise BadInput("json_path", f"longer than {MAX_LENGTH} characters")
        if not text.startswith("$"):
            raise BadInput("json_path", f"{text!r} does not begin with $: write $.name == 1")
        steps, at = [], 1
        while match := _STEP.match(text, at):
            steps.append(_step_of(match))
            at = match.end()
        rest = text[at:]
        if not rest.strip():
            return cls(tuple(steps))
        condition = _CONDITION.fullmatch(rest)
        if condition is None:
            raise BadInput(
                "json_path",
                f"{rest.strip()!r} is neither a step (.name, [0], [*], ..name) nor a condition"
                " (== 1, != 'text', < 5, contains 'part')",
            )
        return cls(tuple(steps), _test_of(condition["sign"], condition["value"]))

    def matches(self, body: bytes) -> bool:
        """Whether a body is JSON and fulfils the condition."""
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return False
        budget = [_MAX_VISITED]
        values: Iterable[object] = [document]
        for step in self.steps:
            values = _take(values, step, budget)
        return any(self.test is None or self.test(value) for value in values)


def _take(values: Iterable[object], step: _Step, budget: list[int]) -> Iterator[object]:
    for value in values:
        for each in _descendants(value, budget) if step.deep else [value]:
            budget[0] -= 1
            if budget[0] < 0:
                return
            yield from _children(each, step.key)


def _children(value: object, key: str | int | None) -> Iterable[object]:
    if isinstance(value, dict):
        if key is None:
            return value.values()
        return [value[key]] if key in value else []
    if isinstance(value, list):
        if key is None:
            return value
        if isinstance(key, int) and -len(value) <= key < len(value):
            return [value[key]]
    return []


def _descendants(value: object, budget: list[int]) -> Iterator[object]:
    """The value and everything in it, without recursion."""
    waiting = [value]
    while waiting and budget[0] > 0:
        each = waiting.pop()
        if isinstance(each, dict | list):
            budget[0] -= 1
            yield each
            waiting.extend(each.values() if isinstance(each, dict) else each)


def _step_of(match: re.Match[str]) -> _Step:
    if match["index"] is not None:
        return _Step(int(match["index"]))
    if match["all"] is not None:
        return _Step(None)
    for quoted in ("single", "double"):
        if match[quoted] is not None:
            return _Step(match[quoted])
    deep = match["deep"] is not None
    name = match["deep"] if deep else match["name"]
    return _Step(None if name == "*" else name, deep)


def _test_of(sign: str, text: str) -> Callable[[object], bool]:
    wanted = _literal(text)
    if sign == "contains":
        if not isinstance(wanted, str):
            raise BadInput("json_path", f"contains needs a text in quotes, not {text}")
        return lambda value: wanted in value if isinstance(value, str | list) else False
    compare = _OPERATORS["==" if sign == "=" else sign]
    ordered = sign in {"<", "<=", ">", ">="}
    if ordered and _sort_of(wanted) not in {"number", "text"}:
        raise BadInput("json_path", f"{sign} compares numbers and texts, not {text}")

    def test(value: object) -> bool:
        if _sort_of(value) != _sort_of(wanted):
            return sign == "!="
        return compare(value, wanted)

    return test


def _literal(text: str) -> object:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise BadInput(
            "json_path", f"{text} is no value: write a number, 'text', true, false or null"
        ) from exc


def _sort_of(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "structure"
