"""Frames with binary headers: the compiled codec equals the plain-Python one."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.kernel import decode_frame, encode_frame
from bolide.protocol import framing
from bolide.protocol.frame import Frame, HeaderEncoding

BINARY = HeaderEncoding.ROCKETMQ
texts = st.text(max_size=8) | st.sampled_from(["", "T", "ü", "\ud800", "名", "x" * 300])
numbers = st.integers(-(2**31), 2**31 - 1) | st.integers(-(2**64), 2**64)
frames = st.builds(
    Frame,
    code=st.integers(-(2**18), 2**18) | numbers,
    fields=st.none() | st.dictionaries(texts, texts, max_size=4),
    flag=numbers,
    language=st.sampled_from(["JAVA", "RUST", "OTHER", "PYTHON", "none", ""]),
    opaque=numbers,
    remark=st.none() | texts,
    version=st.integers(0, 500) | numbers,
    body=st.binary(max_size=20),
    encoding=st.sampled_from([BINARY, BINARY, HeaderEncoding.JSON]),
)


def outcome(call: Callable[..., object], argument: object) -> object:
    try:
        return call(argument)
    except Exception as exc:  # noqa: BLE001  whatever one raises, the other must
        return type(exc), str(exc)


def assert_read_alike(payload: bytes) -> None:
    assert outcome(decode_frame, payload) == outcome(framing.decode_frame, payload)


@given(frame=frames)
@example(frame=Frame(encoding=BINARY, fields={"k" * 0x8000: "v"}))
@example(frame=Frame(encoding=BINARY, remark="r" * 0x0100_0000))
@example(frame=Frame(encoding=BINARY, fields={"k": "v" * 0x0100_0000}))
def test_a_frame_is_written_alike(frame: Frame) -> None:
    assert outcome(encode_frame, frame) == outcome(framing.encode_frame, frame)


@pytest.mark.parametrize(
    "changed", [{"body": bytearray(b"x")}, {"fields": {"a": 1}}, {"remark": b"x"}]
)
def test_what_is_no_frame_fails_alike(changed: dict[str, Any]) -> None:
    frame = Frame(encoding=BINARY, **changed)
    assert outcome(encode_frame, frame) == outcome(framing.encode_frame, frame)


USUAL = Frame(
    code=310,
    fields={"a": "group", "b": "T", "i": "UNIQ_KEY\x01ü\x02", "名": "x"},
    language="JAVA",
    opaque=-7,
    remark="why",
    body=b"body",
    encoding=BINARY,
)
PAYLOAD = framing.encode_frame(USUAL)[4:]


def test_a_usual_frame_is_read_as_it_was_written() -> None:
    assert decode_frame(PAYLOAD) == USUAL


@pytest.mark.parametrize("cut", range(len(PAYLOAD)))
def test_a_frame_that_is_cut_off_is_refused_alike(cut: int) -> None:
    assert_read_alike(PAYLOAD[:cut])
    size = max(cut - 4, 0)
    assert_read_alike((1 << 24 | size).to_bytes(4) + PAYLOAD[4:cut])


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFF])
def test_a_frame_with_a_wrong_byte_is_read_alike(value: int) -> None:
    for at in range(len(PAYLOAD)):
        assert_read_alike(PAYLOAD[:at] + bytes([value]) + PAYLOAD[at + 1 :])


@given(payload=st.binary(max_size=60).map(lambda data: b"\x01\0\0" + data) | st.binary(max_size=9))
def test_any_bytes_are_read_alike(payload: bytes) -> None:
    assert_read_alike(payload)


@given(
    pairs=st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=5),
    behind=st.binary(max_size=3),
    remark=st.binary(max_size=3),
)
def test_any_fields_are_read_alike(
    pairs: list[tuple[bytes, bytes]], behind: bytes, remark: bytes
) -> None:
    """Duplicate names, empty or invalid UTF-8 values, bytes behind the fields."""
    fields = b"".join(
        struct.pack(">h", len(key)) + key + struct.pack(">i", len(text)) + text
        for key, text in pairs
    )
    head = struct.pack(">hBhiii", 11, 200, -1, 5, 0, len(remark)) + remark
    header = head + struct.pack(">i", len(fields)) + fields + behind
    assert_read_alike((1 << 24 | len(header)).to_bytes(4) + header + b"body")


@pytest.mark.parametrize("count", [1023, 1024, 1025])
def test_too_many_fields_are_refused_alike(count: int) -> None:
    fields = {str(number): "x" for number in range(count)}
    assert_read_alike(framing.encode_frame(Frame(fields=fields, encoding=BINARY))[4:])
