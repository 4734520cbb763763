"""Column types: the schema of messages, and DDL text for the columns of JSON bodies.

Spark compares schemas exactly, including the order of columns, so `MESSAGE_FIELDS` is the only
definition. Value schemas are written as SQL column lists: `id bigint, name string`.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from bolide.arrow.errors import BadValueSchema

TIMESTAMP = pa.timestamp("us", "UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
VALUE = "value"
MESSAGE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("topic", pa.string()),
    pa.field("broker", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("physical_offset", pa.int64()),
    pa.field("message_id", pa.string()),
    pa.field("offset_message_id", pa.string()),
    pa.field("keys", pa.string()),
    pa.field("tags", pa.string()),
    pa.field("body", pa.binary()),
    pa.field("born_timestamp", TIMESTAMP),
    pa.field("store_timestamp", TIMESTAMP),
    pa.field("born_host", pa.string()),
    pa.field("store_host", pa.string()),
    pa.field("reconsume_times", pa.int32()),
    pa.field("sys_flag", pa.int32()),
    pa.field("flag", pa.int32()),
)
PROPERTIES_FIELD = pa.field("properties", PROPERTIES)


def message_schema(
    *, include_properties: bool = True, value: pa.StructType | None = None
) -> pa.Schema:
    """The schema of every batch: the message fields, then optionally `properties` and `value`.

    All fields are declared nullable. Nulls occur only in `keys`, `tags`, `value`, and in `broker`
    for rows read from log files.
    """
    fields = [*MESSAGE_FIELDS]
    if include_properties:
        fields.append(PROPERTIES_FIELD)
    if value is not None:
        fields.append(pa.field(VALUE, value))
    return pa.schema(fields)


_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_OTHER_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
}
_MOST_DIGITS = 38
_MOST_DEPTH = 64
_KINDS = ", ".join([*_SIMPLE, "decimal(10,2)", "array<…>", "map<string,…>", "struct<a:…>"])
_PLAIN_NAME = re.compile(r"\w+")
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<symbol>[<>(),:]))")


@lru_cache(maxsize=64)
def parse_ddl(text: str, *, option: str = "valueSchema") -> pa.StructType:
    """The type of `id bigint, name string, tags array<string>, at timestamp`.

    Raises:
        BadValueSchema: the text names the option and the position of the error.
    """
    return _Parser(text, option).columns()


def to_ddl(kind: pa.StructType) -> str:
    """The inverse of `parse_ddl`."""
    return ", ".join(f"{_quoted(field.name)} {_type_name(field.type)}" for field in kind)


class _Token(NamedTuple):
    text: str
    at: int
    is_symbol: bool = False


class _Parser:
    """Recursive descent parser with one token of look-ahead."""

    def __init__(self, text: str, option: str) -> None:
        self._text = text
        self._option = option
        self._tokens = [*self._tokenize()]
        self._next = 0
        self._depth = 0

    def columns(self) -> pa.StructType:
        found = self._fields(lambda: None)
        if self._token.text:
            raise self._error("expected a comma or the end")
        return found

    # Tokens

    def _tokenize(self) -> Iterator[_Token]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._error("unexpected text", self._text.find(self._text[at:].lstrip()))
            if found["quoted"]:
                yield _Token(found["quoted"][1:-1].replace("``", "`"), found.start("quoted"))
            else:
                text = found["word"] or found["symbol"]
                yield _Token(text, found.end() - len(text), bool(found["symbol"]))
            at = found.end()
        yield _Token("", end, is_symbol=True)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _word(self, what: str) -> str:
        token = self._token
        if token.is_symbol:
            raise self._error(f"expected {what}")
        self._next += 1
        return token.text

    def _expect(self, symbol: str) -> None:
        if not self._skip(symbol):
            raise self._error(f"expected {symbol!r}")

    def _skip(self, symbol: str) -> bool:
        found = self._token.is_symbol and self._token.text == symbol
        self._next += found
        return found

    def _error(self, what: str, at: int | None = None) -> BadValueSchema:
        position = self._token.at if at is None else at
        found = (
            f"at {self._text[position : position + 20]!r}"
            if self._text[position:]
            else "at the end"
        )
        return BadValueSchema(
            f"{self._option}: {what} {found} (character {position + 1} of {self._text!r});"
            f" expected, for example, `id bigint, name string`; types: {_KINDS}"
        )

    # Types

    def _fields(self, after_name: Callable[[], None]) -> pa.StructType:
        fields: dict[str, pa.Field] = {}
        while True:
            at = self._token.at
            name = self._word("the name of a column")
            if name.lower() in fields:
                raise self._error(f"column {name!r} is declared twice", at)
            after_name()
            fields[name.lower()] = pa.field(name, self._type())
            if not self._skip(","):
                return pa.struct(list(fields.values()))

    def _type(self) -> pa.DataType:
        at = self._token.at
        word = self._word("a type").lower()
        name = _OTHER_NAMES.get(word, word)
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name not in self._COMPOSED:
            raise self._error(f"there is no type {word!r}", at)
        if self._depth == _MOST_DEPTH:
            raise self._error(f"types are nested more than {_MOST_DEPTH} deep", at)
        self._depth += 1
        found = self._COMPOSED[name](self)
        self._depth -= 1
        return found

    def _decimal(self) -> pa.DataType:
        digits, scale = 10, 0
        if self._skip("("):
            digits = self._number(_MOST_DIGITS)
            scale = self._number(digits) if self._skip(",") else 0
            self._expect(")")
        return pa.decimal128(max(digits, 1), scale)

    def _number(self, most: int) -> int:
        at = self._token.at
        word = self._word("a number")
        if not word.isdecimal() or int(word) > most:
            raise self._error(f"expected a number up to {most}", at)
        return int(word)

    def _array(self) -> pa.DataType:
        self._expect("<")
        items = self._type()
        self._expect(">")
        return pa.list_(items)

    def _map(self) -> pa.DataType:
        self._expect("<")
        at = self._token.at
        if self._type() != pa.string():
            raise self._error("the keys of JSON objects are strings: expected `string`", at)
        self._expect(",")
        values = self._type()
        self._expect(">")
        return pa.map_(pa.string(), values)

    def _struct(self) -> pa.DataType:
        self._expect("<")
        found = self._fields(lambda: self._expect(":"))
        self._expect(">")
        return found

    _COMPOSED = {"decimal": _decimal, "array": _array, "map": _map, "struct": _struct}  # noqa: RUF012


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<string,{_type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = (f"{_quoted(field.name)}:{_type_name(field.type)}" for field in kind)
        return f"struct<{','.join(fields)}>"
    return _NAMES[kind]
