"""fastjson's dialect of JSON: bare keys, references, limits."""

import json
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field

from bolide.protocol import fastjson
from bolide.protocol.fastjson import (
    BadJson,
    FrozenDict,
    FrozenStruct,
    Struct,
    decode,
    encode,
    parse,
)

LONG = st.integers(-(2**63), 2**64 - 1)
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:10,1:20}", {0: 10, 1: 20}),
        ("{-1:1.5}", {-1: 1.5}),
        ('{{"queueId":0,"topic":"T"}:5}', {FrozenDict({"queueId": 0, "topic": "T"}): 5}),
        ('{{"a":{1:2}}:{{}:[]}}', {FrozenDict({"a": {1: 2}}): {FrozenDict(): []}}),
        ("{name:1,_x$2:true}", {"name": 1, "_x$2": True}),
        ("[1,2,]", [1, 2]),
        ('{"a":1,}', {"a": 1}),
        ("[]", []),
        ("{ }", {}),
        (" \t\r\n\f\b[ null , false ] ", [None, False]),
        ("5L", 5),
        ("1.5F", 1.5),
        ("1e3", 1000.0),
        ('"\\u4e2d\\n\\"\\ud83d\\ude00"', '中\n"😀'),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_the_dialect_is_read(text: str, value: object) -> None:
    assert parse(text) == value
    assert parse(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[", "}", "[1", "[1 2]", "[,]", '{"a"}', '{"a":}', '{"a":1', "{,}", "{:1}"),
        *('"open', '"bad \\x"', '"\\ud800"', '"\\', "nul", "True", "-", "+1", ".5", "1.", "1 2"),
        *("{[1]:2}", "{1 2}", "NaN", "Infinity", "1e999", "9" * 5000, "²", "{²:1}", "\ud800"),
        *("[" * 100, "[" * 100_000, '{"a":' * 100_000, "{" * 100_000, "{{" * 50_000),
        *('"\ud800"', '{1:"\ud800"}', "\x00", "ª"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_neither_raises_bad_json(text: str) -> None:
    for shape in (Any, dict[str, Any], Table):
        with pytest.raises(BadJson):
            decode(text, shape)
    with pytest.raises(BadJson):
        parse(text)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    for body in (b'"\xff"', b'{1:"\xff"}', b"\xff"):
        with pytest.raises(BadJson):
            decode(body, Any)


def test_the_error_says_where() -> None:
    with pytest.raises(BadJson, match="a comma or } is missing at character 5"):
        parse("{0:1 2:3}")


def test_nesting_is_limited() -> None:
    assert parse("[" * 65 + "]" * 65)
    with pytest.raises(BadJson, match="more than 64 levels"):
        parse("[" * 66 + "]" * 66)


_signs = st.sampled_from('{}[]:,"\\-+.019eEtrufalsn $ref\n\ud800L\u00b2')


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


@given(value=values, data=st.data())
@quick
def test_a_damaged_text_raises_nothing_but_bad_json(value: object, data: st.DataObject) -> None:
    text = encode(value).decode()
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.text(_signs, max_size=2)) + text[at + 1 :]
    for damaged in (changed, text[:at]):
        try:
            parse(damaged)
        except BadJson as refused:
            assert str(refused)


# Shapes


def test_a_body_is_read_into_its_shape_from_either_form() -> None:
    table = Table(offset_table={Queue(topic="T", queue_id=1): 5}, by_id={0: "a"})
    bare = '{"offsetTable":{{"queueId":1,"topic":"T"}:5},"byId":{0:"a"}}'
    assert decode(bare, Table) == table
    assert decode('{"byId":{"0":"a"},"new":1}', Table) == Table(by_id={0: "a"})


def test_numbers_may_come_as_texts_and_texts_be_null() -> None:
    assert decode('{"putTps":"1.5","remark":null}', Table) == Table(put_tps=1.5)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"byId":{x:"a"}}', "byId"),
        ('{"byId":{0:1e300}}', "byId"),
        ('{"remark":{0:1}}', "remark"),
        ('{"offsetTable":{{"queueId":1}:5}}', "topic"),
        ('{"offsetTable":{{"topic":"T","queueId":1e300}:5}}', "int"),
    ],
)
def test_another_shape_is_refused_and_named(text: str, where: str) -> None:
    with pytest.raises(BadJson, match=f"not a Table: .*{where}"):
        decode(text, Table)


# References


def test_a_reference_is_replaced_by_what_it_refers_to() -> None:
    text = '{"a":{"b":[1,{"c":2}]},"d":{"$ref":"$.a.b[1]"},"e":[{"$ref":"$.a"}]}'
    assert parse(text) == {"a": {"b": [1, {"c": 2}]}, "d": {"c": 2}, "e": [{"b": [1, {"c": 2}]}]}


def test_a_reference_may_stand_as_a_key() -> None:
    read = parse('{"queue":{"topic":"T"},"table":{{"$ref":"$.queue"}:5}}')
    assert read["table"] == {FrozenDict({"topic": "T"}): 5}


def test_a_reference_to_the_whole_ends() -> None:
    assert parse('{"a":{"$ref":"$"}}') == {"a": {"a": {"$ref": "$"}}}


@pytest.mark.parametrize(
    "path",
    ["$.x", "$.a[5]", "$.a.b", "$[0]", "$.s[0].x", "..", "@", "", "$.", "a", f"$[{'9' * 5000}]"],
)
def test_a_reference_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(BadJson, match="a reference to"):
        parse(json.dumps({"a": [1], "s": "text", "r": {"$ref": path}}))


def test_a_list_cannot_become_a_key_by_reference() -> None:
    with pytest.raises(BadJson, match="a list as a key"):
        parse('{"a":[1],"t":{{"$ref":"$.a"}:1}}')


def test_references_cannot_make_much_of_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastjson, "_MAX_REFERRED", 1000)
    text = json.dumps({"a": [1] * 99, "b": [{"$ref": "$.a"}] * 10})
    assert len(parse(text)["b"]) == 10
    with pytest.raises(BadJson, match="more than 1000"):
        parse(json.dumps({"a": [1] * 99, "b": [{"$ref": "$.a"}] * 11}))


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
    assert parse(encode(value)) == value
    assert decode(encode(value), Any) == value


@given(value=values)
@quick
def test_the_standard_form_is_json(value: object) -> None:
    json.loads(encode(value, standard=True))


@given(table=st.dictionaries(st.builds(Queue, topic=words, queue_id=LONG), LONG, max_size=3))
@quick
def test_structs_as_keys_round_trip(table: dict[Queue, int]) -> None:
    assert decode(encode(Table(offset_table=table)), Table).offset_table == table
