"""The parser of the JSON that Java peers accept (fastjson 1.2 and 2).

RocketMQ up to 5.3 reads JSON with fastjson 1.2, 5.5 with fastjson 2, both with their default
features. The dialect here is the union of what the two accept:

* map keys are numbers and whole objects, as in `{0:10}` and `{{"queueId":0,"topic":"T"}:5}`;
* strings and names have single quotes, names have none;
* commas are repeated, trailing or missing;
* comments, control characters and a byte order mark are white space;
* strings contain `\\x41`, `\\0` and control characters;
* numbers have a plus sign, leading zeros, missing digits, or a suffix such as `L`;
* `undefined`, `NaN` and `NULL` mean null.

A second occurrence of the same object may be written as `{"$ref":"$.path"}`.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec

from bolide.protocol.errors import ProtocolError

MAX_SIZE: Final = 4 * 1024 * 1024
"""Longest text in the dialect; its parser is Python, many times slower than standard JSON."""

_MAX_DEPTH = 64
_MAX_NUMBER = 1000
_MAX_REFERRED = 1_000_000
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")
_PATH = re.compile(rf"\$(?:{_STEP.pattern})*")
_SPACE = re.compile(r"[\x00-\x20\x7f]*")
_SEPARATORS = re.compile(r"[\x00-\x20\x7f,]*")
_NUMBER = re.compile(r"([+-]?[0-9]*\.?[0-9]*)([eE][+-]?[0-9]*)?[LSBFD]?")
_STRING = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_ESCAPED = {
    **{str(code): chr(code) for code in range(8)},
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "F": "\f",
    "r": "\r",
    **{sign: sign for sign in "\"'/\\"},
}
_WORD = re.compile("[A-Za-z_$\u0100-\U0010ffff][A-Za-z0-9_$\u0100-\U0010ffff]*")
_WORDS = {"true": True, "false": False, "undefined": None, "NaN": None}
_KEY_STARTS = frozenset("{\"'+-.0123456789")


class BadJson(ProtocolError):
    """A text that is neither JSON nor the dialect, or does not have the expected shape."""


def parse(body: bytes | str, max_size: int = MAX_SIZE, max_dialect_size: int | None = None) -> Any:
    """Parse standard JSON or the dialect into plain values.

    Numbers with a fraction become `Decimal`, which keeps their digits, and those with an exponent
    `float`, as in Java. An object used as a key becomes a hashable dict. A reference that leads
    nowhere becomes None.

    Raises:
        BadJson: the text is neither, or longer than `max_size`; a text in the dialect also if it
            is longer than `max_dialect_size`.
    """
    if len(body) > max_size:
        raise BadJson(f"{len(body)} bytes that are not the expected JSON, over {max_size}")
    try:
        text = body if isinstance(body, str) else body.decode()
        text.encode()
    except UnicodeError as exc:
        raise BadJson(f"not UTF-8: {exc}") from exc
    try:
        value = _standard.decode(text)
    except (msgspec.DecodeError, BadJson, RecursionError):
        if max_dialect_size is not None and len(body) > max_dialect_size:
            raise BadJson(
                f"{len(body)} bytes of JSON in a dialect, over {max_dialect_size}"
            ) from None
        value = _Reader(text).document()
    if "$ref" not in text:
        return value
    try:
        return _References(value).resolve(value)
    except RecursionError as exc:
        raise BadJson("nested too deeply") from exc


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

    def document(self) -> Any:
        self.at = int(self.text.startswith("\ufeff"))
        value = self.value(0)
        if self.skip_separators():
            raise self.error("text after the value")
        return value

    def error(self, what: str) -> BadJson:
        return BadJson(f"{what} at character {self.at}")

    def skip_space(self) -> str:
        """Move to the next character and return it, '' at the end."""
        return self._skip(_SPACE)

    def skip_separators(self) -> str:
        """Move over white space and commas to the next character and return it."""
        return self._skip(_SEPARATORS)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        text = self.text
        while True:
            self.at = pattern.match(text, self.at).end()  # type: ignore[union-attr]
            sign = text[self.at : self.at + 1]
            if sign != "/":
                return sign
            self._skip_comment()

    def _skip_comment(self) -> None:
        """Move over a comment; one without end reaches to the end of the text."""
        end = {"//": "\n", "/*": "*/"}.get(self.text[self.at : self.at + 2])
        if end is None:
            raise self.error("a slash that begins no comment")
        found = self.text.find(end, self.at + 2)
        self.at = len(self.text) if found < 0 else found + len(end)

    def value(self, depth: int) -> Any:
        sign = self.skip_space()
        if depth > _MAX_DEPTH:
            raise self.error(f"more than {_MAX_DEPTH} levels")
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return [self.value(depth + 1) for _ in self._members("]")]
        if sign in _STRING:
            return self._string(sign)
        if sign.isalpha():
            return self._word()
        return self._number()

    def _object(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for sign in self._members("}"):
            key = self.value(depth + 1) if sign in _KEY_STARTS else self._name()
            if self.skip_space() != ":":
                raise self.error("a colon is missing")
            self.at += 1
            found[_hashable(key)] = self.value(depth + 1)
        return found

    def _members(self, end: str) -> Iterator[str]:
        """Yield the first character of each member of an object or array."""
        self.at += 1
        while (sign := self.skip_separators()) != end:
            yield sign
        self.at += 1

    def _string(self, quote: str) -> str:
        raw = self._match(_STRING[quote], "a string without end")[1]
        if "\\" not in raw:
            return raw
        text = _ESCAPE.sub(self._unescape, raw)
        # Join the halves of surrogate pairs; half a pair becomes a replacement character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _unescape(self, escape: re.Match[str]) -> str:
        if code := escape[1] or escape[2]:
            return chr(int(code, 16))
        if escape[3] not in _ESCAPED:
            raise self.error(f"a string with the unknown escape {escape[0]!r}")
        return _ESCAPED[escape[3]]

    def _name(self) -> str | None:
        name = self._match(_WORD, "a key is missing")[0]
        return None if name == "null" else name

    def _word(self) -> bool | None:
        word = self._match(_WORD, "a value is missing")[0]
        if word not in _WORDS and word not in {"null", "NULL", "Null"}:
            raise self.error(f"unknown word {word!r}")
        return _WORDS.get(word)

    def _number(self) -> int | float | Decimal:
        match = self._match(_NUMBER, "a value is missing")
        digits, exponent = match.groups()
        if not match[0] or digits == ".":
            raise self.error("a value is missing")
        if digits in {"+", "-", "+.", "-."}:
            return 0
        if exponent and exponent[-1].isdigit():
            return _fractional(digits + exponent)
        return _fractional(digits) if "." in digits else _integer(digits)

    def _match(self, pattern: re.Pattern[str], otherwise: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.error(otherwise)
        self.at = match.end()
        return match


def _integer(digits: str) -> int:
    if len(digits) > _MAX_NUMBER:
        raise BadJson(f"a number of {len(digits)} digits")
    return int(digits)


def _fractional(text: str) -> Decimal | float:
    if "e" in text or "E" in text:
        return float(text)
    if len(text) > _MAX_NUMBER:
        raise BadJson(f"a number of {len(text)} digits")
    return Decimal(text)


_standard = msgspec.json.Decoder(float_hook=_fractional)


def _hashable(key: Any) -> Any:
    """Make a key of a value. Large numbers become text: the hashes of numbers can be chosen."""
    if isinstance(key, dict):
        return FrozenDict(key)
    if isinstance(key, float | Decimal) or (isinstance(key, int) and key.bit_length() > 64):
        return str(key)
    return key


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
        value = self._root if _PATH.fullmatch(path) else None
        for name, index in _STEP.findall(path):
            holder, step = (list, int(index)) if index else (dict, name)
            try:
                value = value[step] if isinstance(value, holder) else None
            except (KeyError, IndexError):
                return None
        self._left -= _count(value)
        if self._left < 0:
            raise BadJson(f"references to more than {_MAX_REFERRED} values")
        return value


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1
