"""Views as results of tools: the same as data and as brief text, and cut if they are too long.

An agent reads every character, so a page of 500 topics must not fill its memory. What was cut is
named, with how to get the rest.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pydantic_core
from mcp_types import CallToolResult, TextContent

from bolide.agent_tools.tools import RESULT

MAX_CHARACTERS = 40_000
"""Of a result as JSON; agents take about a quarter as many tokens."""
CUT = "cut"
"""The field that says what is missing in a result."""

_MAX_TEXT = 2_000
"""A longer text in a result that is too long is cut first."""
_MOST_ROUNDS = 40
_INDENT = "  "


def success(view: object, parameters: Mapping[str, Any]) -> CallToolResult:
    """The result of an operation.

    Args:
        view: what it returned.
        parameters: what it was called with.
    """
    data = as_object(view)
    if notes := shorten(data, parameters):
        data[CUT] = notes
    return CallToolResult(
        content=[TextContent(text=as_text(data))], structured_content=data, is_error=False
    )


def failure(reason: str) -> CallToolResult:
    """The result of what was not done; the reason says what to do."""
    return CallToolResult(content=[TextContent(text=reason)], is_error=True)


def as_object(view: object) -> dict[str, Any]:
    """Plain JSON values; what is no object becomes one with a single field."""
    data = pydantic_core.to_jsonable_python(view, inf_nan_mode="null", fallback=str)
    return data if isinstance(data, dict) else {RESULT: data}


# Cutting


class _Place(NamedTuple):
    """A list in a result."""

    size: int
    path: str
    items: list[Any]


def shorten(data: dict[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    """Cut an object that is too long where it is longest; returns what an agent should know."""
    notes: list[str] = []
    if _size(data) <= MAX_CHARACTERS:
        return notes
    cut_texts = _cut_texts(data)
    if cut_texts:
        notes.append(f"{cut_texts} texts of more than {_MAX_TEXT} characters end with …")
    full: dict[str, tuple[int, list[Any]]] = {}
    for _ in range(_MOST_ROUNDS):
        excess = _size(data) - MAX_CHARACTERS
        longest = max(_lists(data, ""), default=None, key=lambda place: place.size)
        if excess <= 0 or longest is None or not longest.items:
            break
        full.setdefault(longest.path, (len(longest.items), longest.items))
        kept = len(longest.items) * max(longest.size - excess, 0) // max(longest.size, 1)
        del longest.items[min(kept, len(longest.items) - 1) :]
    for path, (count, items) in full.items():
        notes.append(f"{path} has {len(items)} of {count}; {_advice(path, len(items), parameters)}")
    return notes


def _advice(path: str, kept: int, parameters: Mapping[str, Any]) -> str:
    if path == "items" and "size" in parameters and kept:
        if parameters.get("page") == 1:
            return f"for the rest, call again with size={kept} and page=2, 3, …"
        return f"call again with size={kept} or less"
    if "search" in parameters:
        return "call again with a narrower search"
    return "ask for less, or for one object"


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _lists(value: Any, path: str) -> Iterator[_Place]:
    if isinstance(value, list):
        yield _Place(_size(value), path, value)
        for number, each in enumerate(value):
            yield from _lists(each, f"{path}.{number}")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _lists(each, f"{path}.{name}" if path else name)


def _cut_texts(value: Any) -> int:
    """Cut long texts where they are; returns how many there were."""
    count = 0
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(entries):
        if isinstance(each, str) and len(each) > _MAX_TEXT:
            value[key] = each[:_MAX_TEXT] + "…"
            count += 1
        elif isinstance(each, (dict, list)):
            count += _cut_texts(each)
    return count


# Text


def as_text(data: Mapping[str, Any]) -> str:
    """One line per field; lists of like objects as tables with their names once at the top."""
    return "\n".join(_lines(data, ""))


def _lines(data: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in data.items():
        if _is_table(value):
            yield f"{indent}{name}:"
            columns = list(value[0])
            yield f"{indent}{_INDENT}{' | '.join(columns)}"
            for row in value:
                yield f"{indent}{_INDENT}{' | '.join(_cell(row[column]) for column in columns)}"
        elif isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _lines(value, indent + _INDENT)
        elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
            for number, each in enumerate(value):
                yield f"{indent}{name}[{number}]:"
                inner = each if isinstance(each, dict) else {"": each}
                yield from _lines(inner, indent + _INDENT)
        else:
            yield f"{indent}{name}: {_cell(value)}"


def _is_table(value: Any) -> bool:
    """Whether a list has objects with the same fields and without objects in them."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) and row.keys() == value[0].keys() for row in value)
        and bool(value[0])
        and all(_is_flat(cell) for row in value for cell in row.values())
    )


def _is_flat(value: Any) -> bool:
    if isinstance(value, list):
        return not any(isinstance(each, (dict, list)) for each in value)
    return not isinstance(value, dict)


def _cell(value: Any) -> str:
    """A value on one line; a text in quotes if it would be mistaken for something else."""
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case str() if _is_plain(value):
            return value
        case str() | list() | dict():
            return _printable(json.dumps(value, ensure_ascii=False))
        case _:
            return str(value)


def _printable(text: str) -> str:
    """Escape what would hide or turn around what is shown beside it."""
    return "".join(each if each.isprintable() else json.dumps(each).strip('"') for each in text)


def _is_plain(text: str) -> bool:
    return (
        bool(text)
        and text.isprintable()
        and text == text.strip()
        and " | " not in text
        and text not in {"unknown", "yes", "no"}
    )
