"""Rows of `bolide sql` as people and programs get them."""

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pyspark.sql import Row

from bolide.cli.sql_run import print_csv, print_json, print_table

COLUMNS = ["id", "body", "at", "properties", "value"]
ROWS = [
    (1, bytearray("Grüße".encode()), datetime(2026, 7, 1, 5, tzinfo=UTC), {"a": "1"}, Row(x=[1])),
    (None, bytearray(b"\xff\x00"), None, {}, Decimal("1.50")),
]


def test_json_is_one_document_a_line() -> None:
    out = io.StringIO()
    print_json(COLUMNS, ROWS, out)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {
        "id": 1,
        "body": "Grüße",
        "at": "2026-07-01 05:00:00+00:00",
        "properties": {"a": "1"},
        "value": {"x": [1]},
    }
    assert second["body"] == {"base64": "/wA="}  # bytes that are no text
    assert (second["id"], second["value"]) == (None, "1.50")


def test_a_time_between_two_is_text() -> None:
    out = io.StringIO()
    print_json(["took"], [(timedelta(hours=1, milliseconds=5),)], out)
    assert json.loads(out.getvalue()) == {"took": "1:00:00.005000"}


def test_csv_quotes_what_has_commas() -> None:
    out = io.StringIO()
    print_csv(["a", "b"], [(1, "x, y"), (None, {"k": "v"})], out)
    assert out.getvalue() == 'a,b\n1,"x, y"\n,"{""k"": ""v""}"\n'


def test_a_table_shows_markup_as_it_is_and_cuts_nothing_for_programs() -> None:
    out = io.StringIO()
    long = "x" * 500
    print_table(["n", "text"], [(1, "[red]"), (20, long), (None, None)], out)
    lines = [[cell.strip() for cell in line.split("│")] for line in out.getvalue().splitlines()]
    assert lines[0] == ["n", "text"]
    assert lines[2:] == [["1", "[red]"], ["20", long], ["NULL", "NULL"]]
