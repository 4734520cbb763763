"""JSON bodies as columns."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.arrow import json_values
from bolide.arrow.errors import BadValueSchema
from bolide.arrow.json_values import decode_values
from bolide.arrow.schema import TIMESTAMP, parse_ddl, to_ddl

EVERYTHING = (
    "id bigint, `a name` string, s struct<a:int,`b``c`:array<boolean>>, xs array<string>,"
    " m map<string,double>, ts timestamp, d decimal(10,2), day date, raw binary, tiny tinyint,"
    " small smallint, f float"
)


def test_columns_are_declared_as_in_sql() -> None:
    assert parse_ddl(EVERYTHING) == pa.struct([
        ("id", pa.int64()),
        ("a name", pa.string()),
        ("s", pa.struct([("a", pa.int32()), ("b`c", pa.list_(pa.bool_()))])),
        ("xs", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("ts", TIMESTAMP),
        ("d", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("f", pa.float32()),
    ])  # fmt: skip


def test_the_text_of_a_type_is_read_as_that_type() -> None:
    text = to_ddl(parse_ddl(EVERYTHING))
    assert text == EVERYTHING
    assert parse_ddl(text) == parse_ddl(EVERYTHING)


def test_types_have_other_names_and_any_case() -> None:
    other = "a LONG, b Integer, c short, d byte, e real, f dec, g NUMERIC ( 5 , 1 )"
    plain = "a bigint, b int, c smallint, d tinyint, e float, f decimal(10,0), g decimal(5,1)"
    assert parse_ddl(other) == parse_ddl(plain)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected the name of a column at the end"),
        ("id", "expected a type at the end"),
        ("id bigint,", "expected the name of a column at the end"),
        ("id bigint name string", "expected a comma or the end at 'name string' (character 11 of"),
        ("id number", "there is no type 'number' at 'number' (character 4 of"),
        ("id bigint, ID string", "column 'ID' is declared twice at 'ID string'"),
        ("xs array<string", "expected '>' at the end"),
        ("s struct<a int>", "expected ':' at 'int>'"),
        ("m map<int,string>", "the keys of JSON objects are strings: expected `string` at 'int,"),
        ("d decimal(39,2)", "expected a number up to 38 at '39,2)'"),
        ("d decimal(4,5)", "expected a number up to 4 at '5)'"),
        ("id bigint; x int", "unexpected text at '; x int' (character 10 of"),
        ("xs " + "array<" * 5000, "types are nested more than 64 deep at 'array<"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(BadValueSchema, match=r"^valueSchema: ") as refused:
        parse_ddl(text)
    assert says in str(refused.value)


def decoded(ddl: str, *bodies: bytes | None) -> list[Any]:
    found = decode_values(pa.array(bodies, pa.binary()), parse_ddl(ddl))
    found.validate(full=True)
    assert found.type == parse_ddl(ddl)
    return list(found.to_pylist())


def test_every_type_is_decoded() -> None:
    body = {
        "id": 2**53 + 1, "a name": "ä", "s": {"a": 1, "b`c": [True, None]}, "xs": ["a", None],
        "m": {"x": 1, "y": None}, "ts": "2024-05-01T08:00:00.25", "d": 1.1, "day": "2024-05-01",
        "raw": "AP8=", "tiny": -128, "small": 1, "f": 0.5, "other": [{}],
    }  # fmt: skip
    (row,) = decoded(EVERYTHING, json.dumps(body).encode())
    assert row == {
        "id": 2**53 + 1, "a name": "ä", "s": {"a": 1, "b`c": [True, None]}, "xs": ["a", None],
        "m": [("x", 1.0), ("y", None)], "ts": datetime(2024, 5, 1, 8, 0, 0, 250_000, tzinfo=UTC),
        "d": Decimal("1.10"), "day": date(2024, 5, 1), "raw": b"\x00\xff", "tiny": -128,
        "small": 1, "f": 0.5,
    }  # fmt: skip


def test_times_with_a_zone_are_the_same_moment_in_utc() -> None:
    rows = decoded("at timestamp", b'{"at":"2024-05-01T08:00:00+02:00"}')
    assert rows == [{"at": datetime(2024, 5, 1, 6, tzinfo=UTC)}]


MISFITS = (
    b"", b"\x00\xff", b"null", b"[1]", b"7", b'"x"', b"{", b"}", b"{}{}", b'{"id":1}{"id":2}',
    b'{"id":1}\n{"id":2}', b'{"id":"1"}', b'{"id":1.5}', b'{"id":9223372036854775808}',
    b'{"id":1,"name":7}', b'{"id":1,"name":"\xff"}', b'{"id":1} {', b'{"id":{"id":', b'{"id":1',
)  # fmt: skip


@pytest.mark.parametrize("also", ["", ", at timestamp"], ids=["quick", "one by one"])
def test_a_body_that_does_not_fit_is_null_and_its_neighbours_are_not(also: str) -> None:
    good = [b'{"id":1}', b' {"id":2,"name":null} ', b'{"name":"x","more":[1,{"id":"x"}]}', b"{}"]
    nothing = {"at": None} if also else {}
    rows = decoded(f"id bigint, name string{also}", *MISFITS, *good, None, *MISFITS)
    assert rows == [
        *[None] * len(MISFITS),
        {"id": 1, "name": None, **nothing},
        {"id": 2, "name": None, **nothing},
        {"id": None, "name": "x", **nothing},
        {"id": None, "name": None, **nothing},
        *[None] * (len(MISFITS) + 1),
    ]


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Inf", b"1.8e308", b"-1e400"])
@pytest.mark.parametrize("neighbour", [b'{"a":1.5}', b"not JSON"], ids=["quick", "one by one"])
def test_numbers_that_are_none_make_their_row_null(number: bytes, neighbour: bytes) -> None:
    bodies = [b'{"a":%s}' % number, b'{"xs":[{"a":%s}]}' % number, neighbour]
    rows = decoded("a double, xs array<struct<a:double>>", *bodies)
    assert rows[:2] == [None, None]


def test_numbers_that_a_column_cannot_hold_make_their_row_null() -> None:
    assert decoded("d decimal(4,2)", b'{"d":"1.25"}', b'{"d":1.255}', b'{"d":1000}') == [
        {"d": Decimal("1.25")},
        None,
        None,
    ]
    assert decoded("n tinyint", b'{"n":127}', b'{"n":128}') == [{"n": 127}, None]


def test_no_bodies_are_no_values() -> None:
    assert decoded("id bigint") == []


def test_more_bodies_than_are_decoded_at_a_time_keep_their_order() -> None:
    bodies = [b'{"id":%d}' % number if number % 700 else b"?" for number in range(2500)]
    assert decoded("id bigint", *bodies) == [
        {"id": number} if number % 700 else None for number in range(2500)
    ]


@pytest.mark.parametrize("body", ['{"größe": 5}'.encode(), rb'{"gr\u00f6\u00dfe": 5}'])
def test_names_beyond_ascii_are_found_one_by_one_too(body: bytes) -> None:
    json_values._reader.cache_clear()
    each = json_values._decode_each(pa.array([body], pa.binary()), parse_ddl("`größe` int"))
    assert each.to_pylist() == [{"größe": 5}]


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "é"]), inner, max_size=4)
    ),
    max_leaves=8,
)
texts = anything.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20)


@given(st.lists(texts, max_size=5))
def test_both_ways_of_decoding_agree(bodies: list[bytes]) -> None:
    kind = parse_ddl("a int, b string, c struct<a:double,b:array<bigint>>, `é` boolean")
    array = pa.array(bodies, pa.binary())
    each = json_values._decode_each(array, kind)
    together = json_values._decode_together(array, kind)
    assert together is None or together.to_pylist() == each.to_pylist()
    assert decode_values(array, kind).to_pylist() == each.to_pylist()
