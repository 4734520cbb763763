"""Frames to bytes and back, in any pieces."""

import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding, Language
from bolide.protocol.framing import (
    MAX_FRAME_SIZE,
    FrameDecoder,
    FrameTooLarge,
    decode_frame,
    encode_frame,
)

quick = settings(max_examples=80, deadline=None)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
# What a binary header cannot tell apart is left out: empty and absent texts, empty and no fields.
some = texts.filter(bool)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    encoding = draw(st.sampled_from(HeaderEncoding))
    number = st.integers(-(2**15), 2**15 - 1) if encoding is HeaderEncoding.ROCKETMQ else ints
    return Frame(
        code=draw(number),
        fields=draw(st.none() | st.dictionaries(texts, some, min_size=1, max_size=3)),
        flag=draw(ints),
        language=draw(st.sampled_from(Language)).name,
        opaque=draw(ints),
        remark=draw(st.none() | some),
        version=draw(number),
        body=draw(st.binary(max_size=20)),
        encoding=encoding,
    )


def feed(*parts: bytes) -> tuple[list[Frame], ProtocolError | None]:
    decoder = FrameDecoder()
    return [frame for part in parts for frame in decoder.feed(part)], decoder.error


def with_header(header: bytes, encoding: int = HeaderEncoding.JSON, body: bytes = b"") -> bytes:
    prefix = struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header))
    return prefix + header + body


PING = Frame(code=105, fields={"topic": "T"}, opaque=1, body=b"body")
PONG = Frame(code=17, flag=1, opaque=1, remark="no", encoding=HeaderEncoding.ROCKETMQ)
STREAM = encode_frame(PING) + encode_frame(PONG) + encode_frame(PING)


@given(frame=frames())
@quick
def test_round_trip(frame: Frame) -> None:
    assert feed(encode_frame(frame)) == ([frame], None)


@given(sent=st.lists(frames(), max_size=4), data=st.data())
@quick
def test_a_stream_cut_anywhere_gives_the_same_frames(
    sent: list[Frame], data: st.DataObject
) -> None:
    stream = b"".join(map(encode_frame, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert feed(*parts) == (sent, None)


def test_a_stream_cut_in_two_at_every_byte_gives_the_same_frames() -> None:
    for cut in range(len(STREAM) + 1):
        assert feed(STREAM[:cut], STREAM[cut:]) == ([PING, PONG, PING], None)


def test_a_stream_of_single_bytes_gives_the_same_frames() -> None:
    assert feed(*(bytes([byte]) for byte in STREAM)) == ([PING, PONG, PING], None)


@pytest.mark.parametrize("frame", [PING, PONG])
def test_a_frame_cut_at_any_byte_waits_for_the_rest(frame: Frame) -> None:
    whole = encode_frame(frame)
    for cut in range(len(whole)):
        decoder = FrameDecoder()
        assert decoder.feed(whole[:cut]) == []
        assert (decoder.buffered, decoder.error) == (cut, None)
        assert decoder.feed(whole[cut:]) == [frame]
        assert decoder.buffered == 0


@given(parts=st.lists(st.binary(max_size=60), max_size=5))
@quick
def test_random_bytes_never_raise(parts: list[bytes]) -> None:
    feed(*parts)


@given(
    frame=frames(), at=st.integers(0, 200), byte=st.integers(0, 255), rest=st.binary(max_size=20)
)
@settings(max_examples=200, deadline=None)
def test_a_damaged_frame_never_raises(frame: Frame, at: int, byte: int, rest: bytes) -> None:
    whole = bytearray(encode_frame(frame) + rest)
    whole[at % len(whole)] = byte
    feed(bytes(whole))


@given(header=st.binary(max_size=60), encoding=st.sampled_from([0, 1, 2, 255]))
@quick
def test_a_random_header_gives_a_frame_or_an_error(header: bytes, encoding: int) -> None:
    found, error = feed(with_header(header, encoding))
    assert len(found) + (error is not None) == 1


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":1,"unknown":' + nested(100_000) + b"}",
        b'{"code":1,"extFields":{"a":' + nested(100_000) + b"}}",
        b'{"code":1,"extFields":{"a":' + b"9" * 5000 + b"}}",
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"code":2147483648}',
        b'{"flag":1',
        b"[]",
        b"",
    ],
    ids=lambda header: header[:40].decode(),
)
def test_a_hostile_json_header_ends_the_stream_and_nothing_else(header: bytes) -> None:
    found, error = feed(with_header(header))
    assert found == []
    assert "unreadable JSON header" in str(error)


def test_frames_before_the_error_come_out_and_none_after() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(encode_frame(PING) + with_header(b"{") + encode_frame(PING)) == [PING]
    assert isinstance(decoder.error, ProtocolError)
    assert decoder.feed(encode_frame(PING)) == []
    assert decoder.buffered == 0


def test_a_frame_over_the_limit_is_refused_by_its_length_alone() -> None:
    decoder = FrameDecoder(max_size=100)
    assert decoder.feed(struct.pack(">I", 97)) == []
    assert isinstance(decoder.error, FrameTooLarge)
    assert (decoder.error.size, decoder.error.limit) == (101, 100)


def test_a_frame_of_just_the_limit_passes() -> None:
    whole = encode_frame(PING)
    assert FrameDecoder(max_size=len(whole)).feed(whole) == [PING]
    assert FrameDecoder(max_size=len(whole) - 1).feed(whole) == []


def test_a_negative_length_is_over_the_limit() -> None:
    _, error = feed(struct.pack(">i", -1))
    assert str(error) == f"a frame of 4294967299 bytes is over the limit of {MAX_FRAME_SIZE}"


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (struct.pack(">I", 0), "a frame of 0 bytes has no room"),
        (struct.pack(">I", 3) + b"abc", "a frame of 3 bytes has no room"),
        (struct.pack(">II", 6, 3) + b"{}", "a header of 3 bytes in a frame with 2 bytes left"),
        (struct.pack(">II", 4, 0xFFFFF), "a header of 1048575 bytes in a frame with 0"),
        (struct.pack(">II", 4, 0xFFFFFF), "a header of 16777215 bytes is over the limit"),
        (with_header(b"{}", 2), "unknown header encoding 2"),
    ],
)
def test_a_frame_that_contradicts_itself_is_refused(stream: bytes, why: str) -> None:
    found, error = feed(stream)
    assert found == []
    assert why in str(error)


def test_decode_frame_raises_what_the_decoder_keeps() -> None:
    with pytest.raises(ProtocolError, match="no room"):
        decode_frame(b"")


# What a server may be made to echo

ECHOES: list[Any] = [
    {"remark": "topic \ud800"},
    {"fields": {"value": "\ud800", "\udfff": "x"}},
    {"language": "\ud800"},
]


@pytest.mark.parametrize("encoding", HeaderEncoding)
@pytest.mark.parametrize("echo", ECHOES, ids=str)
def test_half_a_surrogate_pair_is_written_as_a_question_mark(
    echo: dict[str, Any], encoding: HeaderEncoding
) -> None:
    (frame,), error = feed(encode_frame(Frame(**echo, encoding=encoding)))
    assert error is None
    assert frame.remark in {None, "topic ?"}
    assert frame.fields in (None, {"value": "?", "?": "x"})
    assert frame.language in {"PYTHON", "?", "OTHER"}


@given(remark=st.text(max_size=20), value=st.text(max_size=20), language=st.text(max_size=5))
@quick
def test_any_text_can_be_written_in_either_encoding(remark: str, value: str, language: str) -> None:
    for encoding in HeaderEncoding:
        frame = Frame(remark=remark, fields={"value": value}, language=language, encoding=encoding)
        (found,), error = feed(encode_frame(frame))
        assert error is None
        assert found.remark == (remark.encode(errors="replace").decode() or found.remark)


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_remark_longer_than_a_header_is_cut(encoding: HeaderEncoding) -> None:
    remark = "No topic " + "\x01" * MAX_FRAME_SIZE
    (found,), error = feed(encode_frame(Frame(code=17, remark=remark, encoding=encoding)))
    assert error is None
    assert (found.code, found.encoding) == (17, encoding)
    assert found.remark == remark[:1024]


def test_fields_longer_than_a_header_are_refused() -> None:
    with pytest.raises(ValueError, match="over the limit of 16777215"):
        encode_frame(Frame(fields={"value": "x" * MAX_FRAME_SIZE}))


def joined(frames: Iterable[Frame]) -> bytes:
    return b"".join(map(encode_frame, frames))


def test_both_encodings_may_stand_on_one_connection() -> None:
    sent = [
        Frame(code=number, encoding=encoding) for number in (1, 2) for encoding in HeaderEncoding
    ]
    assert feed(joined(sent)) == (sent, None)


def test_the_beginning_of_tls_is_named_as_such() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(bytes.fromhex("1603010200010001fc0303")) == []
    assert "it speaks TLS" in str(decoder.error)
