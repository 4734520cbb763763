"""Bodies as fastjson writes and reads them."""

import json
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field

from bolide.protocol.fastjson import BadJson, FrozenStruct, Struct, decode, encode
from bolide.protocol.json_dialect import MAX_SIZE, FrozenDict

LONG = st.integers(-(2**63), 2**63 - 1)
words = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda text: text != "$ref")
scalars = (
    st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | words
)
objects = st.dictionaries(words, LONG | words, max_size=2).map(FrozenDict)
keys = words | LONG | objects
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner.filter(lambda item: item is not None), max_size=3)
    ),
    max_leaves=12,
)
quick = settings(max_examples=150, deadline=None)


class Queue(FrozenStruct, frozen=True, kw_only=True):
    topic: str
    queue_id: int = 0


class Colour(Enum):
    RED = 1


class Table(Struct, kw_only=True):
    offset_table: dict[Queue, int] = field(default_factory=dict)
    by_id: dict[int, str] = field(default_factory=dict)
    put_tps: float = 0.0
    remark: str | None = None


# Reading


def test_a_body_is_read_into_its_shape_from_either_form() -> None:
    table = Table(offset_table={Queue(topic="T", queue_id=1): 5}, by_id={0: "a"})
    bare = '{"offsetTable":{{"queueId":1,"topic":"T"}:5},"byId":{0:"a"}}'
    assert decode(bare, Table) == table
    assert decode('{"byId":{"0":"a"},"new":1}', Table) == Table(by_id={0: "a"})


def test_numbers_may_come_as_texts_and_texts_be_null() -> None:
    assert decode('{"putTps":"1.5","remark":null}', Table) == Table(put_tps=1.5)


def test_what_java_accepts_is_read() -> None:
    text = "{/* a */'putTps':'1,000',,remark:7,byId:{0:{'a':1}},}"
    assert decode(text, Table) == Table(put_tps=1000, remark="7", by_id={0: '{"a":1}'})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"byId":{x:"a"}}', "byId"),
        ('{"putTps":[1,2]}', "putTps"),
        ('{"offsetTable":{{"queueId":1}:5}}', "topic"),
        ('{"offsetTable":{{"topic":"T","queueId":99999999999999999999}:5}}', "queueId"),
        ('{"offsetTable":{"T":5}}', "offsetTable"),
        ("[1]", "an object"),
        ("null", "null"),
    ],
)
def test_another_shape_is_refused_and_named(text: str, where: str) -> None:
    with pytest.raises(BadJson, match=f"not a Table: .*{where}"):
        decode(text, Table)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    for body in (b'"\xff"', b'{1:"\xff"}', b"\xff"):
        with pytest.raises(BadJson):
            decode(body, Any)


def test_a_long_body_is_read_only_as_standard_json() -> None:
    numbers = ",".join(["1"] * (MAX_SIZE // 2))
    assert len(decode(f"[{numbers}]", list[int])) == MAX_SIZE // 2
    with pytest.raises(BadJson, match=f"over {MAX_SIZE}"):
        decode(f"[{numbers},]", list[int])


_signs = st.sampled_from("{}[]:,\"\\-+.019eEtrufalsn $ref\n\ud800L\u00b2'/*x")


@given(text=st.text(_signs, max_size=40) | st.text(max_size=20))
@settings(max_examples=300, deadline=None)
def test_random_text_raises_nothing_but_bad_json(text: str) -> None:
    for shape in (Any, Table, list[int], str):
        try:
            decode(text, shape)
        except BadJson as refused:
            assert str(refused)


@given(body=st.binary(max_size=40))
@quick
def test_random_bytes_raise_nothing_but_bad_json(body: bytes) -> None:
    try:
        decode(body, Table)
    except BadJson as refused:
        assert str(refused)


@pytest.mark.parametrize("depth", [60, 200, 900, 5000])
def test_deep_nesting_raises_nothing_but_bad_json(depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"remark":', "}"), ('{"$ref":[', "]}")):
        for body in (opening * depth, opening * depth + "1" + closing * depth):
            for shape in (Any, Table):
                try:
                    decode(body, shape)
                except BadJson as refused:
                    assert str(refused)


# Writing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ({10: 1, 9: 2}, "{9:2,10:1}"),
        ({"gone": None}, "{}"),
        ({Queue(topic="T", queue_id=1): 0.0}, '{{"queueId":1,"topic":"T"}:0.0}'),
        (Table(), '{"byId":{},"offsetTable":{},"putTps":0.0}'),
        ((1, frozenset({2})), "[1,[2]]"),
        (Colour.RED, '"RED"'),
        ([float("nan"), float("inf"), -float("inf")], "[null,null,null]"),
        (10**30, "1000000000000000000000000000000"),
        ("/\u2028\x7f", '"/\u2028\x7f"'),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str) -> None:
    assert encode(value).decode() == text


def test_standard_json_has_texts_for_keys() -> None:
    value = {"t": Table(by_id={0: "a"}, offset_table={Queue(topic="T"): 1})}
    read = json.loads(encode(value, standard=True))
    assert read["t"]["byId"] == {"0": "a"}
    assert read["t"]["offsetTable"] == {'{"queueId":0,"topic":"T"}': 1}


def test_half_a_surrogate_pair_is_written_as_a_question_mark() -> None:
    assert encode({"\ud800": "a\udfff"}) == b'{"?":"a?"}'
    assert encode({"\ud800": "a\udfff"}, standard=True) == b'{"?":"a?"}'


@given(value=values)
@quick
def test_round_trip(value: object) -> None:
    assert decode(encode(value), Any) == value


@given(value=values)
@quick
def test_the_standard_form_is_json(value: object) -> None:
    json.loads(encode(value, standard=True))


@given(table=st.dictionaries(st.builds(Queue, topic=words, queue_id=LONG), LONG, max_size=3))
@quick
def test_structs_as_keys_round_trip(table: dict[Queue, int]) -> None:
    assert decode(encode(Table(offset_table=table)), Table).offset_table == table
