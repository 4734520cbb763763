"""Values of another kind, converted as Java does."""

from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field

from bolide.protocol.header import Int, Long
from bolide.protocol.java_casts import cast
from bolide.protocol.json_dialect import BadJson, FrozenDict


class Colour(StrEnum):
    RED = "RED"
    DARK_BLUE = "DARK_BLUE"


class Key(msgspec.Struct, frozen=True):
    name: str
    number: Int


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    number: Int = 16
    long: Long = 1
    share: float = 0.5
    on: bool = True
    text: str = "default"
    remark: str | None = "default"
    colour: Colour = Colour.DARK_BLUE
    numbers: list[Int] = field(default_factory=list)
    words: list[str] = field(default_factory=lambda: ["default"])
    table: dict[str, str] = field(default_factory=dict)
    by_number: dict[int, str] = field(default_factory=dict)
    by_key: dict[Key, Long] = field(default_factory=dict)
    key: Key = Key("default", 0)
    bits: bytes = b""


def member(name: str, value: Any) -> Any:
    return getattr(
        cast({name: value}, Shape), {"byNumber": "by_number", "byKey": "by_key"}.get(name, name)
    )


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((5, 5), (-(2**31), -(2**31)), (Decimal("5.9"), 5), (Decimal("-5.9"), -5), (1e3, 1000)),
        *((True, 1), (False, 0), ("5", 5), ("+5", 5), ("-5", -5), ("1,000", 1000), ("5.9", 5)),
        *(("1e3", 1000), ("true", 1), ("false", 0), ([5], 5), (["5"], 5), ({}, 0), ({"a": 1}, 0)),
        *((None, 16), ("", 16), ("null", 16), ("NULL", 16), ([None], 16)),
        *((1e19, 2**31 - 1), (-1e400, -(2**31)), (Decimal("4294967297.5"), 1)),
    ],
)
def test_integers(value: object, number: int) -> None:
    assert member("number", value) == number
    assert type(member("number", value)) is int


@pytest.mark.parametrize(
    "value",
    [
        2**31,
        -(2**31) - 1,
        "2147483648",
        "x",
        " 5",
        "5L",
        "0x5",
        "1_0",
        "Null",
        [],
        [1, 2],
        "9" * 5000,
    ],
)
def test_no_integers(value: object) -> None:
    with pytest.raises(BadJson, match=r"not a Shape: expected an? .* - at `\$\.number`"):
        member("number", value)


@pytest.mark.parametrize(
    ("value", "share"),
    [
        *(
            (2, 2.0),
            (Decimal("1.5"), 1.5),
            (1e3, 1000.0),
            (True, 1.0),
            ("1.5", 1.5),
            (" 1.5 ", 1.5),
        ),
        *(
            ("1.5D", 1.5),
            ("1,000.5", 1000.5),
            ([2], 2.0),
            ([], 0.0),
            ({}, 0.0),
            (None, 0.5),
            ("", 0.5),
        ),
        *(("Infinity", float("inf")), (10**400, float("inf"))),
    ],
)
def test_floats(value: object, share: float) -> None:
    assert member("share", value) == share
    assert type(member("share", value)) is float


@pytest.mark.parametrize(
    ("value", "on"),
    [
        *((True, True), (False, False), (1, True), (0, False), (2, False), (Decimal("0.5"), False)),
        *(("true", True), ("TRUE", True), ("1", True), ("Y", True), ("y", True), ("T", True)),
        *(("false", False), ("0", False), ("F", False), ("f", False), ("N", False), ([1], True)),
        *((None, True), ("", True), ("null", True)),
    ],
)
def test_booleans(value: object, on: bool) -> None:
    assert member("on", value) is on


@pytest.mark.parametrize("value", ["yes", "t", "n", "2", " true", [], {}, [1, 2]])
def test_no_booleans(value: object) -> None:
    with pytest.raises(BadJson, match="a boolean"):
        member("on", value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            ("a", "a"),
            ("", ""),
            (7, "7"),
            (Decimal("1.50"), "1.50"),
            (True, "true"),
            (2**70, str(2**70)),
        ),
        *(
            (1e3, "1000.0"),
            (1e7, "1.0E7"),
            (1.5e-4, "1.5E-4"),
            (0.0, "0.0"),
            (float("inf"), "Infinity"),
        ),
        *(
            ([1, "a", None], '[1,"a",null]'),
            (["a"], "a"),
            ([], "[]"),
            ({}, "{}"),
            (None, "default"),
        ),
        ({"a": [1, Decimal("2.0")], "b": None, 3: {"c": 'd"'}}, '{"a":[1,2.0],3:{"c":"d\\""}}'),
    ],
)
def test_texts(value: object, text: str) -> None:
    assert member("text", value) == text


def test_null_is_none_where_a_field_can_be_none() -> None:
    assert member("remark", None) is None


@pytest.mark.parametrize(
    ("value", "colour"),
    [
        *(("RED", Colour.RED), ("red", Colour.RED), ("Dark_Blue", Colour.DARK_BLUE)),
        *((0, Colour.RED), (1, Colour.DARK_BLUE), ("0", Colour.RED), (Decimal("0.9"), Colour.RED)),
        *(
            ("GREEN", Colour.DARK_BLUE),
            ("", Colour.DARK_BLUE),
            (None, Colour.DARK_BLUE),
            ("7", Colour.DARK_BLUE),
        ),
    ],
)
def test_enums_by_name_and_ordinal_and_unknown_names_are_null(
    value: object, colour: Colour
) -> None:
    assert member("colour", value) is colour


@pytest.mark.parametrize("value", [2, -1, 1e9, True, [], {}, ["RED"]])
def test_no_enums(value: object) -> None:
    with pytest.raises(BadJson, match="a Colour"):
        member("colour", value)


def test_lists() -> None:
    assert member("numbers", ["1", None, 2.0, True]) == [1, 2, 1]
    assert member("numbers", 5) == [5]
    assert member("words", "a") == ["a"]
    assert member("words", ["a", 1, None, {"b": 2}]) == ["a", "1", '{"b":2}']
    assert (member("words", ""), member("words", 5), member("words", None)) == (
        [],
        ["default"],
        ["default"],
    )
    with pytest.raises(BadJson, match=r"`\$\.numbers\[1\]`"):
        member("numbers", [1, "x"])


def test_maps() -> None:
    assert member("table", {"a": 1, "b": None, None: 2, 3: True}) == {"a": "1", "3": "true"}
    assert member("table", [{"a": 1}]) == {"a": "1"}
    assert (member("table", ""), member("table", "null")) == ({}, {})
    assert member("byNumber", {"0": "a", 1: 2, "1.5": "x"}) == {0: "a", 1: "x"}
    for bad in ([], [1], 5, "x", {"a": 1}):
        with pytest.raises(BadJson, match="byNumber"):
            member("byNumber", bad)


def test_objects_as_keys_and_their_texts() -> None:
    key = FrozenDict({"name": "a", "number": "3"})
    assert member("byKey", {key: "5"}) == {Key("a", 3): 5}
    assert member("byKey", {"{name:'a',number:3}": 5, None: 6}) == {Key("a", 3): 5}
    with pytest.raises(BadJson, match="byKey"):
        member("byKey", {"x": 5})


def test_a_required_number_is_zero_if_absent_or_null_and_a_required_text_is_refused() -> None:
    assert cast({"name": "a"}, Key) == cast({"name": "a", "number": None}, Key) == Key("a", 0)
    for value in ({}, {"name": None}, {"number": 1}):
        with pytest.raises(BadJson, match="not a Key: missing name"):
            cast(value, Key)


@pytest.mark.parametrize("value", [None, "", "null", []])
def test_what_counts_as_no_object(value: object) -> None:
    assert member("key", value) == Key("default", 0)
    with pytest.raises(BadJson, match="not a Shape: null"):
        cast(value, Shape)


@pytest.mark.parametrize("value", [5, True, "x", [1], [{}]])
def test_no_objects(value: object) -> None:
    with pytest.raises(BadJson, match="an object"):
        member("key", value)


def test_bytes_are_base64() -> None:
    assert member("bits", "Aw==") == member("bits", "Aw") == b"\x03"
    assert member("bits", None) == b""
    with pytest.raises(BadJson, match="base64"):
        member("bits", "A")


def test_any_has_floats() -> None:
    assert cast({"a": [Decimal("1.5"), 1e3, None]}, dict[str, Any]) == {"a": [1.5, 1e3, None]}


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.none() | st.text(max_size=3) | st.integers(-9, 9), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    name=st.sampled_from(msgspec.structs.fields(Shape)).map(lambda each: each.encode_name),
    value=_values,
)
@settings(max_examples=500, deadline=None)
def test_any_value_is_converted_or_refused(name: str, value: object) -> None:
    try:
        made = cast({name: value}, Shape)
    except BadJson as refused:
        assert str(refused)
    else:
        assert msgspec.convert(msgspec.to_builtins(made), Shape, strict=False) == made
