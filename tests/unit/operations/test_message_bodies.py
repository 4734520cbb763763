"""Filters, JSON conditions, cursors, and bodies that people look at."""

import base64
import json
import zlib

import pytest

from bolide.model.message import StoredMessage
from bolide.operations.errors import BadInput
from bolide.operations.messages.bodies import body_of, kind_of, preview_of, printable
from bolide.operations.messages.cursors import Cursor, Spot
from bolide.operations.messages.filters import filter_of
from bolide.operations.messages.json_path import JsonCondition
from bolide.operations.messages.views import BodyKind

ORDER = json.dumps({
    "id": 7, "paid": True, "note": None, "odd name": "x",
    "items": [{"sku": "A-1", "price": 3.5}, {"sku": "B-2", "price": 120, "tags": ["new", "red"]}],
    "buyer": {"name": "Ann", "address": {"city": "Rome"}},
}).encode()  # fmt: skip


def stored(body: bytes, **properties: str) -> StoredMessage:
    return StoredMessage("Orders", body, dict(properties), store_timestamp=1000)


@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        ("$.id", True),
        ("$.none", False),
        ("$.note", True),
        ("$.note == null", True),
        ("$.id == 7", True),
        ("$.id == 7.0", True),
        ("$.id == '7'", False),
        ("$.id != '7'", True),
        ("$.paid == true", True),
        ("$.paid == 1", False),
        ("$['odd name'] = 'x'", True),
        ("$.items[0].price < 4", True),
        ("$.items[-1].sku == \"B-2\"", True),
        ("$.items[2]", False),
        ("$.items[*].price > 100", True),
        ("$.items[*].price > 120", False),
        ("$.items[*].tags contains 'red'", True),
        ("$.buyer.name contains 'nn'", True),
        ("$..city == 'Rome'", True),
        ("$..price >= 120", True),
        ("$.buyer.* == 'Ann'", True),
        ("$.items.sku", False),
    ],
)  # fmt: skip
def test_json_conditions_decide_as_written(condition: str, is_met: bool) -> None:
    assert JsonCondition.parse(condition).matches(ORDER) is is_met


@pytest.mark.parametrize("hostile", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"not json"])
def test_what_is_no_json_does_not_match(hostile: bytes) -> None:
    assert not JsonCondition.parse("$").matches(hostile)
    assert body_of(stored(hostile)).kind is not BodyKind.JSON


def test_a_condition_costs_no_more_than_the_document() -> None:
    wide = json.dumps([[[[0] * 20] * 20] * 20] * 20).encode()
    assert not JsonCondition.parse("$..*..*..* == 1").matches(wide)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("json_path", {"json_path": "id == 1"}),
        ("json_path", {"json_path": "$.a ~ 1"}),
        ("json_path", {"json_path": "$.a == b"}),
        ("json_path", {"json_path": "$.a < true"}),
        ("json_path", {"json_path": "$." + "a" * 2000}),
        ("sql", {"sql": "a >"}),
        ("sql", {"sql": "a = 1 b"}),
        ("tags", {"tags": "||"}),
        ("properties", {"properties": ["=x"]}),
    ],
)
def test_a_bad_filter_names_its_field(field: str, options: dict[str, object]) -> None:
    with pytest.raises(BadInput) as caught:
        filter_of(**options)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_all_parts_of_a_filter_must_hold() -> None:
    message = stored(ORDER, TAGS="red", KEYS="k1 k2", color="blue", size="9")
    met = {
        "tags": "green || red", "key": "k2", "properties": ["color=blue", "size"], "text": "Rome",
        "json_path": "$.id == 7", "sql": "size > 8 AND color = 'blue'", "begin_ms": 1000,
        "end_ms": 1000,
    }  # fmt: skip
    unmet = {
        "tags": "green", "key": "k", "properties": ["color=red"], "text": "rome",
        "json_path": "$.id == 8", "sql": "size > 9", "begin_ms": 1001, "end_ms": 999,
    }  # fmt: skip
    assert filter_of(**met).matches(message)  # type: ignore[arg-type]
    for name, value in unmet.items():
        assert not filter_of(**{**met, name: value}).matches(message), name  # type: ignore[arg-type]
    assert filter_of(tags="a || b", sql="x > 1").sql == ""  # a pull has one expression
    assert filter_of(sql="x > 1").pushed
    assert not filter_of(text="x").pushed


def test_cursors_survive_and_foreign_text_is_refused() -> None:
    spot = Spot(broker="broker-a", queue_id=3, position=5, low=1, high=9)
    cursor = Cursor(topic="Orders", spots=(spot,), is_back=True)
    assert Cursor.decode(cursor.encode(), "Orders") == cursor

    def packed(content: object) -> str:
        return base64.urlsafe_b64encode(zlib.compress(json.dumps(content).encode())).decode()

    bomb = packed("x" * 50_000_000)
    negative = packed([1, "Orders", False, [["a", 0, -1, 0, 0]]])
    texts = ["", "x", "é", "AAAA", bomb, negative, packed([2, "Orders", False, []]), packed({})]
    for text in texts:
        with pytest.raises(BadInput, match="leave it out"):
            Cursor.decode(text, "Orders")
    with pytest.raises(BadInput, match="belongs to topic 'Orders'"):
        Cursor.decode(cursor.encode(), "Other")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", BodyKind.EMPTY),
        (b' {"a": 1}\n', BodyKind.JSON),
        (b"[1, 2", BodyKind.TEXT),
        ("Grüße 你好".encode(), BodyKind.TEXT),
        (b"\xff\xfe\x00", BodyKind.BINARY),
        (b"a\x00b", BodyKind.BINARY),
        (b"x" * 4095 + "é".encode() * 10, BodyKind.TEXT),
    ],
)
def test_bodies_are_told_apart(body: bytes, kind: BodyKind) -> None:
    assert kind_of(body) is kind


def test_characters_that_are_obeyed_are_shown_instead() -> None:
    hostile = "\x1b[2Ja\rb\x00\u202egpj.exe\x9b\x7f\ud800\n\tend"
    shown = printable(hostile)
    assert shown == "␛[2Ja␍b␀\\u202egpj.exe\\x9b␡\\ud800\n\tend"
    assert preview_of(b"<script>\x1b[0m\n  {{ 1 }}") == "<script>␛[0m {{ 1 }}"


def test_a_huge_body_is_cut_and_says_so() -> None:
    body = body_of(stored("é".encode() * 3_000_000), limit=1001)
    assert (body.size, body.is_cut) == (6_000_000, True)
    assert body.text == "é" * 500  # not half a character
    assert len(base64.b64decode(body.base64)) == 1001
    assert body.hex_dump.startswith("00000000  c3 a9 c3 a9")
    assert body_of(stored(b"")).text == ""
    assert body_of(stored(b"abc", TAGS="x")).is_cut is False
