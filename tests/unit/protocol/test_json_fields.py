"""The JSON header."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol import json_fields
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame

# The two examples of the remoting specification, written by Java.
REQUEST = (
    '{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,'
    '"serializeTypeCurrentRPC":"JSON","version":0}'
)
RESPONSE = (
    '{"code":17,"flag":1,"language":"JAVA","opaque":1,"remark":"r",'
    '"serializeTypeCurrentRPC":"JSON","version":0}'
)
EXAMPLES = [
    (REQUEST, Frame(code=105, fields={"topic": "T"}, language="JAVA", version=0)),
    (RESPONSE, Frame(code=17, flag=1, language="JAVA", opaque=1, remark="r", version=0)),
]


@pytest.mark.parametrize(("text", "frame"), EXAMPLES)
def test_java_text_is_read_and_written_alike(text: str, frame: Frame) -> None:
    assert json_fields.decode(text.encode()) == frame
    assert json_fields.encode(frame).decode() == text


def test_the_order_of_keys_is_free_and_unknown_ones_are_passed_over() -> None:
    frame = json_fields.decode(b'{"new":[{"a":1}],"version":3,"opaque":2,"code":1,"flag":1}')
    assert frame == Frame(code=1, flag=1, opaque=2, version=3, language="JAVA")


def test_absent_members_take_javas_defaults() -> None:
    frame = json_fields.decode(b'{"code":1}')
    assert frame == Frame(code=1, language="JAVA", version=0)


def test_nulls_count_as_absent() -> None:
    frame = json_fields.decode(b'{"code":1,"extFields":null,"language":null,"remark":null}')
    assert (frame.fields, frame.remark, frame.language) == (None, None, "OTHER")


def test_empty_fields_are_told_from_none() -> None:
    assert json_fields.decode(b'{"code":1,"extFields":{}}').fields == {}
    assert b'"extFields":{}' in json_fields.encode(Frame(fields={}))


def test_values_that_are_no_texts_become_their_json() -> None:
    header = b'{"code":1,"extFields":{"n":1,"f":1.5,"b":true,"x":null,"o":{"a":[1]},"s":"t"}}'
    fields = {"n": "1", "f": "1.5", "b": "true", "o": '{"a":[1]}', "s": "t"}
    assert json_fields.decode(header).fields == fields


def test_numbers_may_come_as_texts() -> None:
    frame = json_fields.decode(b'{"code":"105","flag":"1","opaque":"-7","version":"401"}')
    assert (frame.code, frame.flag, frame.opaque, frame.version) == (105, 1, -7, 401)


def test_a_language_we_do_not_know_is_kept() -> None:
    assert json_fields.decode(b'{"code":1,"language":"KLINGON"}').language == "KLINGON"


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    frame = json_fields.decode(b'{"code":1,"extFields":{"tags":"a\xff"},"remark":"\xfc"}')
    assert (frame.fields, frame.remark) == ({"tags": "a\ufffd"}, "\ufffd")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"{}",
        b'{"code":1',
        b'{"code":null}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":1,"opaque":2147483648}',
        b'{"code":1,"flag":-2147483649}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"remark":7}',
        b'{"code":1}}',
    ],
)
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="unreadable JSON header"):
        json_fields.decode(header)


texts = st.text(st.characters(codec="utf-8"), max_size=10)


@given(language=texts, remark=texts, fields=st.dictionaries(texts, texts, max_size=3))
@settings(max_examples=80, deadline=None)
def test_every_text_is_escaped(language: str, remark: str, fields: dict[str, str]) -> None:
    header = json_fields.encode(Frame(language=language, remark=remark, fields=fields))
    read: dict[str, Any] = json.loads(header)
    assert (read["language"], read["remark"], read["extFields"]) == (language, remark, fields)
    assert list(read) == sorted(read)
