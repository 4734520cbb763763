"""The JSON that Java peers write and read (fastjson 1.2).

The dialect differs from standard JSON in map keys: numbers and whole objects are unquoted before
the colon, as in `{0:10}` and `{{"queueId":0,"topic":"T"}:5}`. A second occurrence of the same
object may be written as `{"$ref":"$.path"}`; Bolide reads such references and never writes them.
"""

import math
import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import msgspec

from bolide.protocol.errors import ProtocolError

T = TypeVar("T")

MAX_DIALECT_SIZE = 4 * 1024 * 1024
"""Longest body in the dialect; its parser is Python, many times slower than standard JSON."""

_MAX_DEPTH = 64
_MAX_REFERRED = 1_000_000
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")
_PATH = re.compile(rf"\$(?:{_STEP.pattern})*")
_SPACE = re.compile(r"[ \t\r\n\f\v\b]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?[LSBFD]?")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WORDS = {"true": True, "false": False, "null": None}
_encode = msgspec.json.Encoder().encode


class BadJson(ProtocolError):
    """A body that is neither JSON nor fastjson's dialect, or does not have the expected shape."""


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
    """Decode a body into `shape`, from standard JSON or fastjson's dialect.

    Raises:
        BadJson: the text is neither, or does not have that shape.
    """
    try:
        return msgspec.json.decode(body, type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # not standard JSON, or contains a $ref or a null
    if len(body) > MAX_DIALECT_SIZE:
        raise BadJson(f"{len(body)} bytes that are not standard JSON, over {MAX_DIALECT_SIZE}")
    try:
        return msgspec.convert(_without_nulls(parse(body)), shape, strict=False)
    except msgspec.ValidationError as exc:
        raise BadJson(f"not a {getattr(shape, '__name__', shape)}: {exc}") from exc


def parse(body: bytes | str) -> Any:
    """Parse the dialect into plain values; an object used as a key becomes a hashable dict."""
    try:
        text = body if isinstance(body, str) else body.decode()
        text.encode()
    except UnicodeError as exc:
        raise BadJson(f"not UTF-8: {exc}") from exc
    reader = _Reader(text)
    value = reader.value(0)
    reader.skip_space()
    if reader.at != len(text):
        raise reader.error("text after the value")
    return _References(value).resolve(value) if '"$ref"' in text else value


def _without_nulls(value: Any) -> Any:
    """Drop null members: Java treats them as absent."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        kind = type(value)
        return kind({k: _without_nulls(item) for k, item in value.items() if item is not None})
    return value


class FrozenDict(dict[Any, Any]):
    """An object used as a map key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset((key, repr(value)) for key, value in self.items()))


class _Reader:
    """A recursive-descent parser."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, what: str) -> BadJson:
        return BadJson(f"{what} at character {self.at}")

    def skip_space(self) -> str:
        """Move to the next character and return it, '' at the end."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        sign = self.skip_space()
        if depth > _MAX_DEPTH:
            raise self.error(f"more than {_MAX_DEPTH} levels")
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return self._array(depth)
        if sign == '"':
            return self._string()
        if sign.isalpha():
            return self._word()
        return self._number()

    def _object(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in self._members("}"):
            key = self.value(depth + 1) if self.skip_space() in '{"-0123456789' else self._name()
            if self.skip_space() != ":":
                raise self.error("a colon is missing")
            self.at += 1
            try:
                found[FrozenDict(key) if isinstance(key, dict) else key] = self.value(depth + 1)
            except TypeError as exc:
                raise self.error("a key that cannot be one") from exc
        return found

    def _array(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in self._members("]")]

    def _members(self, end: str) -> Iterable[None]:
        """Step over the separators of an object or array, once for each member."""
        self.at += 1
        if self.skip_space() == end:
            self.at += 1
            return
        while True:
            yield
            sign = self.skip_space()
            self.at += 1
            if sign == end:
                return
            if sign != ",":
                self.at -= 1
                raise self.error(f"a comma or {end} is missing")
            if self.skip_space() == end:  # fastjson accepts a trailing comma
                self.at += 1
                return

    def _string(self) -> str:
        match = self._match(_STRING, "a string without end")
        try:
            return msgspec.json.decode(match, type=str)
        except (msgspec.DecodeError, UnicodeError) as exc:
            raise self.error(f"a bad string ({exc})") from exc

    def _name(self) -> str:
        return self._match(_WORD, "a key is missing")

    def _word(self) -> Any:
        word = self._match(_WORD, "a value is missing")
        if word not in _WORDS:
            raise self.error(f"unknown word {word!r}")
        return _WORDS[word]

    def _number(self) -> int | float:
        text = self._match(_NUMBER, "a value is missing").rstrip("LSBFD")
        if text.lstrip("-").isdigit() and len(text) < 64:
            return int(text)
        number = float(text)
        if not math.isfinite(number):
            raise self.error("a number out of range")
        return number

    def _match(self, pattern: re.Pattern[str], otherwise: str) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.error(otherwise)
        self.at = match.end()
        return match.group()


class _References:
    """Resolves `$ref` references; the value of a reference is not resolved again.

    A short text could refer to a long one repeatedly, so the values reached are limited.
    """

    __slots__ = ("_left", "_root")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _MAX_REFERRED

    def resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and isinstance(path := value.get("$ref"), str):
            return self._follow(path)
        made = {self._resolve_key(key): self.resolve(item) for key, item in value.items()}
        return FrozenDict(made) if isinstance(value, FrozenDict) else made

    def _resolve_key(self, key: Any) -> Any:
        resolved = self.resolve(key)
        if isinstance(resolved, list):
            raise BadJson("a list as a key")
        return FrozenDict(resolved) if isinstance(resolved, dict) else resolved

    def _follow(self, path: str) -> Any:
        """Walk `$.a.b[0]` from the root."""
        if not _PATH.fullmatch(path):
            raise BadJson(f"a reference to {path!r} is not understood")
        value = self._root
        for name, index in _STEP.findall(path):
            try:
                value = value[int(index)] if index else value[name]
            except (KeyError, IndexError, TypeError) as exc:
                raise BadJson(f"a reference to {path!r} leads nowhere") from exc
        self._left -= _count(value)
        if self._left < 0:
            raise BadJson(f"references to more than {_MAX_REFERRED} values")
        return value


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


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
