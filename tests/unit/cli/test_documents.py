"""Results of commands for programs, in every format."""

import csv
import io
import json
import unicodedata
from contextlib import redirect_stdout

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bolide.cli.documents import Format, documents_in, print_document


class Queue(msgspec.Struct, rename="camel"):
    queue_id: int
    max_offset: int


def printed(capsys: pytest.CaptureFixture[str], form: Format, *values: object) -> str:
    with documents_in(form):
        for value in values:
            print_document(value)
    return capsys.readouterr().out


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_structs_have_their_wire_names_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    value = [Queue(0, 7), Queue(1, 9)]
    wanted = [{"queueId": 0, "maxOffset": 7}, {"queueId": 1, "maxOffset": 9}]

    assert json.loads(printed(capsys, Format.JSON, value)) == wanted
    assert yaml.safe_load(printed(capsys, Format.YAML, value)) == wanted
    assert rows(printed(capsys, Format.CSV, value)) == [
        {"queueId": "0", "maxOffset": "7"},
        {"queueId": "1", "maxOffset": "9"},
    ]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (["a", "b"], "value\na\nb\n"),
        ({"a": 1, "b": {"c": True, "d": None}}, "a,b.c,b.d\n1,true,\n"),
        ({"queues": [{"id": 0}, {"id": 1}], "tps": 0.5}, "id,tps\n0,0.5\n1,0.5\n"),
        ({"x:1": {"role": "M"}, "x:2": {"role": "S"}}, "key,role\nx:1,M\nx:2,S\n"),
        ({"names": ["a", "b"]}, 'names\n"[""a"",""b""]"\n'),
        ([{"a": 1}, {"b": 2}], "a,b\n1,\n,2\n"),
        ([{"a": 1, "properties": {"x": "y"}}], 'a,properties\n1,"{""x"":""y""}"\n'),
        ([{"a": "x,y"}, {"a": 'say "x"'}], 'a\n"x,y"\n"say ""x"""\n'),
        (3, "value\n3\n"),
    ],
)
def test_csv_has_a_row_for_each_item(
    capsys: pytest.CaptureFixture[str], value: object, wanted: str
) -> None:
    assert printed(capsys, Format.CSV, value) == wanted


def test_documents_of_one_command_are_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    values = ({"a": 1}, {"a": 2})

    assert printed(capsys, Format.JSON, *values) == '{"a":1}\n{"a":2}\n'
    assert list(yaml.safe_load_all(printed(capsys, Format.YAML, *values))) == list(values)
    assert printed(capsys, Format.CSV, *values) == "a\n1\n2\n"


@pytest.mark.parametrize("form", [Format.JSON, Format.CSV])
@given(text=st.text())
def test_no_text_of_a_peer_leaves_its_line_or_steers_a_terminal(form: Format, text: str) -> None:
    out = io.StringIO()
    with redirect_stdout(out), documents_in(form):
        print_document([{"a": text}])
    lines = out.getvalue().split("\n")
    assert len(lines) == (2 if form is Format.JSON else 3)
    steering = {each for each in "".join(lines) if unicodedata.category(each) == "Cc"}
    assert steering <= {"\t"}
