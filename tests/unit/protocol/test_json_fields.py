"""The JSON header."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol import json_fields
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, Language

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
    header = b'{"code":1,"extFields":{"n":1,"f":1.50,"b":true,"x":null,"o":{"a":[1]},"s":"t"}}'
    fields = {"n": "1", "f": "1.50", "b": "true", "o": '{"a":[1]}', "s": "t"}
    assert json_fields.decode(header).fields == fields


def test_numbers_may_come_as_texts() -> None:
    frame = json_fields.decode(b'{"code":"105","flag":"1","opaque":"-7","version":"401"}')
    assert (frame.code, frame.flag, frame.opaque, frame.version) == (105, 1, -7, 401)


@pytest.mark.parametrize(
    ("language", "name"),
    [
        *((0, "JAVA"), (1, "CPP"), (13, "NODE_JS"), (3.0, "PYTHON"), ("3", "PYTHON")),
        *(("GO", "GO"), ("go", "GO"), ("Node_js", "NODE_JS")),
        *(("KLINGON", "OTHER"), ("", "OTHER"), (None, "OTHER")),
    ],
)
def test_a_language_is_a_name_or_an_ordinal_and_an_unknown_name_is_null(
    language: object, name: str
) -> None:
    header = json.dumps({"code": 1, "opaque": 5, "language": language}).encode()
    assert json_fields.decode(header) == Frame(code=1, opaque=5, language=name, version=0)


def test_the_names_of_languages_are_decoded_by_name() -> None:
    for language in Language:
        header = json_fields.encode(Frame(language=language.name))
        assert json_fields.decode(header).language == language.name
        assert language.name in get_args(json_fields._LanguageName)


@pytest.mark.parametrize(
    "header",
    [
        '{"code":105,"flag":null,"language":"JAVA","opaque":7,"remark":5,"version":null}',
        "{'code':105,'language':'JAVA','opaque':7,'remark':'5'}",
        '{"code":105,"opaque":7,"remark":"5",}',
        "{code:105,opaque:7,remark:'5'}",
        '{,"code":105,,"opaque":7 "remark":"5"}',
        '/*c*/{"code":105,/*c*/"opaque":7,//c\n"remark":"5"}',
        '{"code":"105","opaque":7.5,"remark":5L,"flag":false,"version":""}',
        '\ufeff{"code":105.0,"opaque":"7","remark":"\\x35"}',
        '{"code":[105],"opaque":+7,"remark":"5","flag":{},"version":"null"}',
    ],
)
def test_what_java_accepts_is_accepted_with_its_meaning(header: str) -> None:
    frame = Frame(code=105, opaque=7, remark="5", language="JAVA", version=0)
    assert json_fields.decode(header.encode()) == frame


@pytest.mark.parametrize(
    ("header", "strict"),
    [
        (REQUEST, True),
        (RESPONSE, True),
        ('{"code":1,"new":[]}', True),
        ('{"code":1,"language":0}', False),
        ('{"code":1,"extFields":{"a":1}}', False),
        ("{'code':1}", False),
        ('{"code":1,}', False),
        ("{", False),
    ],
)
def test_a_header_is_strict_if_it_is_standard_json_of_the_right_kinds(
    header: str, strict: bool
) -> None:
    assert json_fields.is_strict(header.encode()) is strict


def test_an_absent_or_null_code_is_zero() -> None:
    for header in (b"{}", b'{"code":null}', b'{"code":""}'):
        assert json_fields.decode(header) == Frame(code=0, language="JAVA", version=0)


def test_fields_may_be_lenient_too() -> None:
    header = b"{'code':1,'extFields':{'a':'it\\'s',b:2,,\"c\":null,d:[1, 2.0],}}"
    assert json_fields.decode(header).fields == {"a": "it's", "b": "2", "d": "[1,2.0]"}
    for header in (b'{"extFields":""}', b'{"extFields":null}'):
        assert json_fields.decode(header).fields is None


def test_a_long_header_is_read_only_as_java_writes_it() -> None:
    fields = {"a": "x" * json_fields.MAX_LENIENT_SIZE}
    header = json_fields.encode(Frame(fields=fields))
    assert json_fields.decode(header).fields == fields
    with pytest.raises(ProtocolError, match=f"over {json_fields.MAX_LENIENT_SIZE}"):
        json_fields.decode(header[:-1] + b",}")


def test_a_long_header_that_is_not_standard_json_is_refused() -> None:
    fields = {"a": "x" * json_fields.MAX_DIALECT_SIZE}
    standard = json_fields.encode(Frame(fields=fields)).replace(b'"PYTHON"', b"3")
    assert json_fields.decode(standard).fields == fields
    with pytest.raises(ProtocolError, match=f"over {json_fields.MAX_DIALECT_SIZE}"):
        json_fields.decode(standard[:-1] + b",}")


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    frame = json_fields.decode(b'{"code":1,"extFields":{"tags":"a\xff"},"remark":"\xfc"}')
    assert (frame.fields, frame.remark) == ({"tags": "a\ufffd"}, "\ufffd")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b"[105]",
        b'""',
        b'{"code":1',
        b'{"code":1,',
        b'{"code":{',
        b'{"code":"x"}',
        b'{"code":1,"language":14}',
        b'{"code":1,"language":true}',
        b'{"code":1,"opaque":2147483648}',
        b'{"code":1,"flag":-2147483649}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":"x"}',
        b'{"code":1,"remark":x}',
        b'{"code":1}}',
        b'{"code":1}{"code":1}',
        b'{"code":1,"new":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
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
