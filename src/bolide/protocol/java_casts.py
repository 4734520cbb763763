"""Parsed JSON as a declared type, converted as fastjson does (`TypeUtils.cast` and its readers).

A value of another kind is converted where Java converts it:

| To      | From                                                                                   |
| ------- | -------------------------------------------------------------------------------------- |
| integer | decimals, truncated; booleans; texts such as "5", "1,000", "5.0", "true"; `[5]`        |
| float   | the same                                                                               |
| boolean | 1; texts such as "true", "1", "Y"; `[true]`                                            |
| text    | numbers and booleans as written; objects and arrays as their JSON                      |
| enum    | its name in any case, or its ordinal, as a number or text; null for an unknown name    |
| list    | a single value                                                                         |
| map     | `[{…}]`                                                                                |
| struct  | an object; as a map key, the JSON text of one; null for `[]`                           |

The texts "" and "null" are null to every type but text. Null members take the default of the
field, or zero if the field is a required number or boolean, as a primitive field does in Java.
Null items and entries are dropped. fastjson 1.2 and 2 differ in rare cases; either is followed.
"""

import binascii
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from bolide.protocol.json_dialect import BadJson, parse

T = TypeVar("T")
Cast = Callable[[Any], Any]
"""Converts a parsed value; returns None for null and raises `_Uncastable`."""

_NULLS: Final = frozenset(("", "null", "NULL"))
_TRUE: Final = frozenset(("true", "1", "y", "T"))
_FALSE: Final = frozenset(("false", "0", "f", "N"))
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+)?")
_SUFFIX = re.compile(r"(?<=[\d.])[dDfFL]$")
_ORDINAL = re.compile(r"\+?[0-9]{1,4}")
_NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
_MAX_TEXT = 1000
_quote = msgspec.json.Encoder().encode


class _Uncastable(Exception):
    """A value that Java does not convert either, and the path to it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"{self.args[0]} - at `${''.join(reversed(self.path))}`"


def cast(value: Any, shape: type[T]) -> T:
    """Convert a parsed value, which `json_dialect.parse` returned, to `shape`.

    Raises:
        BadJson: Java does not convert the value, or the whole value is null.
    """
    kind: Any = shape
    name = getattr(kind, "__name__", kind)
    try:
        made: T | None = _cast_for(kind)(value)
    except _Uncastable as exc:
        raise BadJson(f"not a {name}: {exc}") from exc
    except RecursionError as exc:
        raise BadJson(f"not a {name}: nested too deeply") from exc
    if made is None and kind is not Any:
        raise BadJson(f"not a {name}: null")
    return made  # type: ignore[return-value]  # Any may be None


@cache
def _cast_for(shape: Any) -> Cast:
    return _cast_to(inspect.type_info(shape))


def _cast_to(kind: inspect.Type) -> Cast:
    return _CASTS[type(kind)](kind)


def _cast_to_key(kind: inspect.Type) -> Cast:
    cast_key = _cast_to(kind)
    if not isinstance(kind, inspect.StructType):
        return cast_key
    return lambda key: cast_key(_parsed(key) if isinstance(key, str) and key else key)


def _parsed(text: str) -> Any:
    try:
        return parse(text)
    except BadJson as exc:
        raise _Uncastable(f"{text!r:.80}, {exc}") from exc


def _main_type(optional: inspect.UnionType) -> inspect.Type:
    (kind,) = (kind for kind in optional.types if not isinstance(kind, inspect.NoneType))
    return kind


def _refusal(expected: str, value: Any) -> _Uncastable:
    return _Uncastable(f"expected {expected}, got {value!r:.80}")


# ---- scalars


def _text(value: Any) -> str | None:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | None):
        return value[0]
    return value if isinstance(value, str | None) else _json(value)


def _json(value: Any) -> str:
    """The text of a value, as Java's `toString` of JSON objects and numbers."""
    match value:
        case dict():
            members = (
                f"{_json('null' if key is None else key)}:{_json(item)}"
                for key, item in value.items()
                if item is not None
            )
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case Decimal():
            return str(value)
        case float():
            return _double_text(value)
    return _quote(value).decode()


def _double_text(value: float) -> str:
    """The text of Java's `Double.toString`."""
    if not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = Decimal(repr(value))
    if value == 0 or -3 <= number.adjusted() < 7:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    first, *rest = number.as_tuple().digits
    fraction = "".join(map(str, rest)).rstrip("0") or "0"
    return f"{'-' if value < 0 else ''}{first}.{fraction}E{number.adjusted()}"


def _integer_between(lowest: float | None, highest: float | None) -> Cast:
    low = -(2**63) if lowest is None else int(lowest)
    high = 2**63 - 1 if highest is None else int(highest)

    def cast_integer(value: Any) -> int | None:
        if isinstance(value, str):
            value = _number_of(value)
        if isinstance(value, list) and len(value) == 1:
            return cast_integer(value[0])
        if value is None:
            return None
        if isinstance(value, Decimal):
            return (int(value) - low) % (high - low + 1) + low  # out of range, bits are cut off
        if isinstance(value, float):
            return max(low, min(high, int(max(-(2.0**65), min(2.0**65, value)))))
        if isinstance(value, dict):
            return 0
        if not isinstance(value, int) or not low <= value <= high:
            raise _refusal(f"an integer from {low} to {high}", value)
        return int(value)

    return cast_integer


def _number_of(text: str) -> int | float | Decimal | None:
    """The number that a text contains; fastjson drops its commas."""
    if text in _NULLS:
        return None
    digits = text.replace(",", "")
    if digits in {"true", "false"}:
        return int(digits == "true")
    if len(digits) <= _MAX_TEXT:
        if _INTEGER.fullmatch(digits):
            return int(digits)
        if match := _DECIMAL.fullmatch(digits):
            return float(match[1] + match[2]) if match[2] else Decimal(match[1])
    raise _refusal("a number", text)


def _float(value: Any) -> float | None:
    if isinstance(value, str):
        if text := _NOT_FINITE.get(value.strip()):
            return float(text)
        value = _number_of(_SUFFIX.sub("", value.strip()))
    if isinstance(value, list) and len(value) == 1:
        return _float(value[0])
    if value is None:
        return None
    if isinstance(value, bool | float | Decimal):
        return float(value)
    if isinstance(value, int):
        return float(str(value))  # infinite where `float` of the number overflows
    if value in ([], {}):
        return 0.0
    raise _refusal("a number", value)


def _boolean(value: Any) -> bool | None:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return value == 1
    if isinstance(value, list) and len(value) == 1:
        return _boolean(value[0])
    if isinstance(value, str):
        if value in _NULLS:
            return None
        for answer, words in ((True, _TRUE), (False, _FALSE)):
            if value in words or value.lower() in words:
                return answer
    raise _refusal("a boolean", value)


def _bytes(value: Any) -> bytes | None:
    text = _text(value)
    if text is None or text in _NULLS:
        return None
    try:
        return binascii.a2b_base64(text + "==")  # the padding may be missing
    except ValueError as exc:
        raise _refusal("base64", value) from exc


def _member_of(kind: type[Enum]) -> Cast:
    members = list(kind)
    names = {member.name.lower(): member for member in members}

    def cast_member(value: Any) -> Enum | None:
        if value is None:
            return None
        if isinstance(value, str):
            ordinal = int(value) if _ORDINAL.fullmatch(value) else -1
            return members[ordinal] if 0 <= ordinal < len(members) else names.get(value.lower())
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            ordinal = _ordinal(value)
            if 0 <= ordinal < len(members):
                return members[ordinal]
        raise _refusal(f"a {kind.__name__}", value)

    return cast_member


_ordinal = _integer_between(-(2**31), 2**31 - 1)


def _plain(value: Any) -> Any:
    """The value with floats in place of decimals."""
    match value:
        case dict():
            return type(value)((_plain(key), _plain(item)) for key, item in value.items())
        case list():
            return [_plain(item) for item in value]
        case Decimal():
            return float(value)
    return value


# ---- containers


def _list_of(cast_item: Cast) -> Cast:
    as_items = _text_items if cast_item is _text else _items

    def cast_list(value: Any) -> list[Any] | None:
        items = as_items(value)
        if items is None:
            return None
        return [made for made in _each(cast_item, items) if made is not None]

    return cast_list


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    return None if value is None or value in ("", "null") else [value]


def _text_items(value: Any) -> list[Any] | None:
    """The items of a list of texts, which a single number does not become."""
    if isinstance(value, list):
        return value
    if value == "":
        return []
    return [value] if isinstance(value, str | dict) else None


def _each(cast_item: Cast, items: Iterable[Any]) -> Iterable[Any]:
    for index, item in enumerate(items):
        try:
            yield cast_item(item)
        except _Uncastable as exc:
            exc.path.append(f"[{index}]")
            raise


def _dict_of(cast_key: Cast, cast_value: Cast) -> Cast:
    def cast_dict(value: Any) -> dict[Any, Any] | None:
        if value is None or (isinstance(value, str) and value in _NULLS):
            return None
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict):
            raise _refusal("an object", value)
        made = {}
        for key, item in value.items():
            try:
                made_key, made_item = cast_key(key), cast_value(item)
            except _Uncastable as exc:
                exc.path.append(f"[{key!r:.80}]")
                raise
            if made_key is not None and made_item is not None:
                made[made_key] = made_item
        return made

    return cast_dict


def _struct(kind: inspect.StructType) -> Cast:
    fields = {field.encode_name: _Field(field) for field in kind.fields}
    zeros = {field.name: zero for field in kind.fields if (zero := _zero_of(field)) is not None}
    required = {
        field.name: field.encode_name
        for field in kind.fields
        if field.required and field.name not in zeros
    }

    def cast_struct(value: Any) -> Any:
        if value is None or value in ("", "null", []):
            return None
        if not isinstance(value, dict):
            raise _refusal("an object", value)
        made = dict(zeros)
        for key, item in value.items():
            if field := fields.get(key):
                field.add(made, item)
        if missing := required.keys() - made.keys():
            names = ", ".join(sorted(required[name] for name in missing))
            raise _Uncastable(f"missing {names}")
        try:
            return kind.cls(**made)
        except (TypeError, ValueError) as exc:
            raise _Uncastable(str(exc)) from exc

    return cast_struct


class _Field:
    """A field of a struct."""

    __slots__ = ("_cast", "_name", "_nullable", "_path")

    def __init__(self, field: inspect.Field) -> None:
        self._name = field.name
        self._path = f".{field.encode_name}"
        self._cast = _cast_to(field.type)
        self._nullable = isinstance(field.type, inspect.UnionType) and field.type.includes_none

    def add(self, made: dict[str, Any], value: Any) -> None:
        """Add the converted value; null leaves a field that cannot be None at its default."""
        try:
            member = self._cast(value)
        except _Uncastable as exc:
            exc.path.append(self._path)
            raise
        if member is not None or self._nullable:
            made[self._name] = member


def _zero_of(field: inspect.Field) -> int | float | bool | None:
    """What a required field has in Java if it is absent or null; None: there is no such value."""
    if not field.required:
        return None
    match field.type:
        case inspect.IntType():
            return 0
        case inspect.FloatType():
            return 0.0
        case inspect.BoolType():
            return False
    return None


_CASTS: Final[dict[type[inspect.Type], Callable[[Any], Cast]]] = {
    inspect.AnyType: lambda _: _plain,
    inspect.StrType: lambda _: _text,
    inspect.BoolType: lambda _: _boolean,
    inspect.IntType: lambda kind: _integer_between(kind.ge, kind.le),
    inspect.FloatType: lambda _: _float,
    inspect.BytesType: lambda _: _bytes,
    inspect.EnumType: lambda kind: _member_of(kind.cls),
    inspect.ListType: lambda kind: _list_of(_cast_to(kind.item_type)),
    inspect.DictType: lambda kind: _dict_of(_cast_to_key(kind.key_type), _cast_to(kind.value_type)),
    inspect.StructType: _struct,
    inspect.UnionType: lambda kind: _cast_to(_main_type(kind)),
}
"""The kinds of types in bodies; each entry makes the conversion to a type of that kind."""
