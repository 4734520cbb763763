"""The JSON of bodies, as RocketMQ writes and reads it (fastjson).

The dialect differs from standard JSON in map keys: numbers and whole objects are unquoted before
the colon, as in `{0:10}` and `{{"queueId":0,"topic":"T"}:5}`. Decoding accepts what Java accepts:
the dialect of `json_dialect`, and values of another kind as `java_casts` converts them.
"""

import math
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import msgspec

from bolide.protocol.java_casts import cast
from bolide.protocol.json_dialect import BadJson, parse

__all__ = ["BadJson", "FrozenStruct", "Struct", "decode", "encode"]

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class Struct(msgspec.Struct, rename="camel"):
    """Base of typed bodies: snake case in Python, camel case on the wire."""


class FrozenStruct(msgspec.Struct, frozen=True, rename="camel"):
    """Base of typed bodies that are compared or used as map keys."""


def encode(value: object, *, standard: bool = False) -> bytes:
    """Encode a body as Java does: keys sorted, no nulls, map keys unquoted.

    With `standard` all keys are quoted, so that any JSON parser can read the body.
    """
    parts: list[str] = []
    _write(_quote_keys(value) if standard else value, parts.append)
    return "".join(parts).encode()


def decode(body: bytes | str, shape: type[T]) -> T:
    """Decode a body into `shape`, from standard JSON or what else Java accepts.

    Raises:
        BadJson: Java does not accept the text either, or a required text or object is missing.
    """
    try:
        return msgspec.json.decode(body, type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return cast(parse(body), shape)


def _write(value: object, put: Callable[[str], object]) -> None:
    if isinstance(value, msgspec.Struct):
        _write_members(_members_of(value), put)
    elif isinstance(value, dict):
        _write_members(sorted(_items_of(value), key=_sort_key), put)
    elif isinstance(value, list | tuple | set | frozenset):
        _write_array(value, put)
    elif isinstance(value, Enum) and isinstance(value.name, str):
        put(_quote(value.name))
    else:
        put(_scalar(value))


def _quote_keys(value: object) -> object:
    """Convert to plain maps and lists with strings as keys."""
    if isinstance(value, msgspec.Struct):
        return {name: _quote_keys(member) for name, member in _members_of(value)}
    if isinstance(value, dict):
        return {_key_text(key): _quote_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_quote_keys(item) for item in value]
    return value


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else encode(key).decode()


def _scalar(value: object) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"  # NaN has no JSON
    if isinstance(value, str):
        return _quote(value)
    return _encode(value).decode()


def _quote(text: str) -> str:
    """Encode a JSON string; an unpaired surrogate becomes a question mark, as in Java."""
    try:
        return _encode(text).decode()
    except UnicodeEncodeError:
        return _encode(text.encode(errors="replace").decode()).decode()


def _write_members(items: Iterable[tuple[object, object]], put: Callable[[str], object]) -> None:
    opening = "{"
    for key, value in items:
        put(opening)
        _write(key, put)
        put(":")
        _write(value, put)
        opening = ","
    put("{}" if opening == "{" else "}")


def _write_array(values: Iterable[object], put: Callable[[str], object]) -> None:
    opening = "["
    for value in values:
        put(opening)
        _write(value, put)
        opening = ","
    put("[]" if opening == "[" else "]")


def _members_of(value: msgspec.Struct) -> Iterable[tuple[str, object]]:
    for wire, name in _wire_names(type(value)):
        if (member := getattr(value, name)) is not None:
            yield wire, member


def _items_of(value: dict[Any, Any]) -> Iterable[tuple[object, object]]:
    return ((key, item) for key, item in value.items() if item is not None)


def _sort_key(item: tuple[object, object]) -> tuple[str, object]:
    key = item[0]
    if isinstance(key, str | int):
        return type(key).__name__, key
    return "~", encode(key)


@cache
def _wire_names(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
