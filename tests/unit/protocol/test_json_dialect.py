"""The parser of what fastjson accepts: bare keys, lenient syntax, references, limits."""

import json
import time
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol import json_dialect
from bolide.protocol.json_dialect import BadJson, FrozenDict, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:10,1:20}", {0: 10, 1: 20}),
        ("{-1:1.5}", {-1: Decimal("1.5")}),
        ('{{"queueId":0,"topic":"T"}:5}', {FrozenDict({"queueId": 0, "topic": "T"}): 5}),
        ('{{"a":{1:2}}:{{}:[]}}', {FrozenDict({"a": {1: 2}}): {FrozenDict(): []}}),
        ("{name:1,_x$2:true,\u4ef7:2}", {"name": 1, "_x$2": True, "\u4ef7": 2}),
        ("{'a':'b',\"c\":'d'}", {"a": "b", "c": "d"}),
        ("{null:1,true:2}", {None: 1, "true": 2}),
        ("{1.5:1,1e3:2}", {"1.5": 1, "1000.0": 2}),
        ("{" + "9" * 30 + ":1}", {"9" * 30: 1}),
    ],
)
def test_keys(text: str, value: object) -> None:
    assert parse(text) == value
    assert parse(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[1,2],"b":null}',
        '{"a":[1,2,],"b":null,}',
        '{,"a":[,1,,2,],,"b":null,, }',
        '{"a":[1 2]"b":null}',
        '/**/{/*x*/"a"/* * / **/:/**/[1//, 3]\n,2]//\n,"b":null}//',
        '{"a":[1,2],"b":null}/* without end',
        '\ufeff \t\r\n\f\b\v\0{"a":[1,2],"b":null}\x1a\x7f ,',
        "{'a':[1,2],'b':NULL}",
        "{a:[1,2],b:undefined}",
        "{a:[1,2],b:NaN}",
    ],
)
def test_commas_comments_quotes_and_space(text: str) -> None:
    assert parse(text) == {"a": [1, 2], "b": None}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("5", 5), ("-5", -5), ("+5", 5), ("007", 7), ("5L", 5), ("5S", 5), ("5B", 5)),
        *(("1.50", Decimal("1.50")), ("+1.5F", Decimal("1.5")), ("5.", Decimal(5))),
        *((".5", Decimal("0.5")), ("1e3", 1000.0), ("1.5E-3D", 0.0015), ("1e999", float("inf"))),
        *(("-", 0), ("+", 0), ("1e", 1), ("1e+", 1), ("123456789" * 4, int("123456789" * 4))),
    ],
)
def test_numbers(text: str, number: object) -> None:
    for read in (parse(f"[{text},]")[0], parse(f"{{a:{text}}}")["a"]):
        assert read == number
        assert type(read) is type(number)
        assert str(read) == str(number)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'\x41\x7a\u4e2d\/\\\"\''", "Az\u4e2d/\\\"'"),
        (r"'\0\1\7\b\t\n\v\f\F\r'", "\0\1\7\b\t\n\v\f\f\r"),
        ("'a\nb\0'", "a\nb\0"),
        ('"a\x1ab"', "a\x1ab"),
        (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'\ud800x\udc00'", "\ufffdx\ufffd"),
        ("'a\"b'", 'a"b'),
        ('"a\'b\n"', "a'b\n"),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[", "}", "[1", '{"a"}', '{"a":}', '{"a":1', "{:1}", "{a b:1}", "[1]2"),
        *('"open', "'open", '"bad \\q"', '"\\x4g"', '"\\u00"', '"\\', "nul", "True", "nULL", "abc"),
        *("{[1]:2}", "{1 2}", "Infinity", "9" * 5000, "1." + "9" * 5000, "\u00b2", "{\u00b2:1}"),
        *("\ud800", '"\ud800"', '{1:"\ud800"}', "\u00aa", "/", "/x", "[1,/", "0x10", "new Date(5)"),
        *("[" * 100, "[" * 100_000, '{"a":' * 100_000, "{" * 100_000, "{{" * 50_000, "."),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_java_refuses_raises_bad_json(text: str) -> None:
    with pytest.raises(BadJson):
        parse(text)


def test_the_error_says_where() -> None:
    with pytest.raises(BadJson, match="a colon is missing at character 7"):
        parse("{0:1 2 3}")


def test_nesting_is_limited() -> None:
    assert parse("[" * 65 + "," + "]" * 65)
    with pytest.raises(BadJson, match="more than 64 levels"):
        parse("[" * 66 + "," + "]" * 66)


def test_a_text_over_the_limit_is_refused() -> None:
    assert parse("[1,]", max_size=4) == [1]
    with pytest.raises(BadJson, match="5 bytes that are not the expected JSON, over 4"):
        parse("[1, ]", max_size=4)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "[",
            "{",
            "/",
            "/*",
            "//\n",
            "'",
            '"',
            "\\",
            "'\\",
            ",",
            "1",
            "-",
            "1.",
            "1e",
            "$ref",
            "a",
        ),
        *("{a:", "'a',", "/**/", '{"$ref":"$"},', "{{", " ", "\0"),
    ],
)
def test_time_is_linear(piece: str) -> None:
    def seconds(size: int) -> float:
        text = "[" + piece * (size // len(piece))
        began = time.perf_counter()
        with suppress(BadJson):
            parse(text)
        return time.perf_counter() - began

    short = min(seconds(20_000) for _ in range(3))
    assert seconds(320_000) < 16 * 5 * short + 0.1  # of quadratic time it would be 256 times


def test_keys_with_chosen_hashes_do_not_collide() -> None:
    modulus = 2**61 - 1  # integers that differ by it have the same hash
    found = parse("{" + ",".join(f"{at * modulus}:1" for at in range(20_000)) + "}")
    assert len({hash(key) for key in found}) > 19_000


_signs = st.sampled_from("{}[]:,\"\\-+.019eEtrufalsn $ref\n\ud800L\u00b2'/*x")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(value=values.filter(lambda value: "$ref" not in str(value)))
@settings(max_examples=150, deadline=None)
def test_the_dialect_contains_standard_json(value: object) -> None:
    text = json.dumps(value)
    assert json_dialect._Reader(text).document() == parse(text)


@given(value=values, data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_text_raises_nothing_but_bad_json(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.text(_signs, max_size=2)) + text[at + 1 :]
    for damaged in (changed, text[:at]):
        try:
            parse(damaged)
        except BadJson as refused:
            assert str(refused)


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
    ["$.x", "$.a[5]", "$.a.b", "$[0]", "$.s[0]", "..", "@", "", "$.", "a", f"$[{'9' * 5000}]"],
)
def test_a_reference_that_leads_nowhere_is_null(path: str) -> None:
    assert parse(json.dumps({"a": [1], "s": "text", "r": {"$ref": path}}))["r"] is None


def test_a_list_cannot_become_a_key_by_reference() -> None:
    with pytest.raises(BadJson, match="a list as a key"):
        parse('{"a":[1],"t":{{"$ref":"$.a"}:1}}')


def test_references_cannot_make_much_of_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_dialect, "_MAX_REFERRED", 1000)
    text = json.dumps({"a": [1] * 99, "b": [{"$ref": "$.a"}] * 10})
    assert len(parse(text)["b"]) == 10
    with pytest.raises(BadJson, match="more than 1000"):
        parse(json.dumps({"a": [1] * 99, "b": [{"$ref": "$.a"}] * 11}))
