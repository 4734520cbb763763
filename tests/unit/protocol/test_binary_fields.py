"""The binary header."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol import binary_fields
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding, Language


def frame(**values: object) -> Frame:
    return Frame(**({"encoding": HeaderEncoding.ROCKETMQ} | values))  # type: ignore[arg-type]


def header(
    remark: bytes = b"",
    fields: bytes = b"",
    remark_length: int | None = None,
    fields_length: int | None = None,
) -> bytes:
    """A header whose lengths may lie."""
    first = len(remark) if remark_length is None else remark_length
    second = len(fields) if fields_length is None else fields_length
    start = struct.pack(">hBhiii", 17, 0, 0, 1, 1, first)
    return start + remark + struct.pack(">i", second) + fields


def entry(key: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value


WHOLE = header(b"remark", entry(b"topic", b"T") + entry(b"queueId", b"3"))


def test_the_example_of_the_specification() -> None:
    data = bytes.fromhex("00110000000000000100000001000000017200000000")
    expected = frame(code=17, flag=1, opaque=1, remark="r", language="JAVA", version=0)
    assert binary_fields.decode(data) == expected
    assert binary_fields.encode(expected) == data


def test_fields_are_written_in_their_order() -> None:
    expected = frame(
        code=17,
        flag=1,
        opaque=1,
        language="JAVA",
        version=0,
        remark="remark",
        fields={"topic": "T", "queueId": "3"},
    )
    assert binary_fields.decode(WHOLE) == expected
    assert binary_fields.encode(expected) == WHOLE


def test_empty_texts_read_as_absent() -> None:
    read = binary_fields.decode(binary_fields.encode(frame(remark="", fields={"a": "", "b": "1"})))
    assert (read.remark, read.fields) == (None, {"b": "1"})


def test_empty_fields_read_as_none() -> None:
    assert binary_fields.decode(binary_fields.encode(frame(fields={}))).fields is None


@pytest.mark.parametrize("language", Language)
def test_every_language_has_its_number(language: Language) -> None:
    data = binary_fields.encode(frame(language=language.name))
    assert data[2] == language
    assert binary_fields.decode(data).language == language.name


def test_an_unknown_language_is_other() -> None:
    data = bytearray(binary_fields.encode(frame(language="KLINGON")))
    assert data[2] == Language.OTHER
    data[2] = 200
    assert binary_fields.decode(bytes(data)).language == "OTHER"


@pytest.mark.parametrize(("number", "cut"), [(200050, 3442), (32768, -32768), (-1006, -1006)])
def test_code_and_version_are_cut_to_16_bits(number: int, cut: int) -> None:
    read = binary_fields.decode(binary_fields.encode(frame(code=number, version=number)))
    assert (read.code, read.version) == (cut, cut)


def test_a_field_name_that_is_too_long_is_our_mistake() -> None:
    binary_fields.encode(frame(fields={"k" * 32767: "v"}))
    with pytest.raises(ValueError, match="32768 bytes"):
        binary_fields.encode(frame(fields={"k" * 32768: "v"}))


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    read = binary_fields.decode(header(b"\xff", entry(b"tags", b"a\xfc")))
    assert (read.remark, read.fields) == ("\ufffd", {"tags": "a\ufffd"})


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_header_cut_at_any_byte_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        binary_fields.decode(WHOLE[:cut])


def test_bytes_after_the_fields_are_passed_over() -> None:
    assert binary_fields.decode(WHOLE + b"more") == binary_fields.decode(WHOLE)


@pytest.mark.parametrize(
    "data",
    [
        header(b"r", remark_length=-1),
        header(b"r", remark_length=2**31 - 1),
        header(fields_length=-1),
        header(fields_length=2**31 - 1),
        header(fields_length=1),
        header(b"", struct.pack(">h", -1) + entry(b"", b"v")),
        header(b"", struct.pack(">h", 100) + b"key"),
        header(b"", struct.pack(">h", 1) + b"k" + struct.pack(">i", -1)),
        header(b"", struct.pack(">h", 1) + b"k" + struct.pack(">i", 2**31 - 1)),
    ],
)
def test_a_length_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        binary_fields.decode(data)


@given(data=st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise_nothing_but_a_protocol_error(data: bytes) -> None:
    for each in (data, WHOLE[:21] + data, header(b"", data)):
        try:
            binary_fields.decode(each)
        except ProtocolError as refused:
            assert str(refused)
