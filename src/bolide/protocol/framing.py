"""Frames to bytes and back.

| Offset            | Size          | Field                                                    |
| ----------------- | ------------- | -------------------------------------------------------- |
| 0                 | 4             | length of all that follows                               |
| 4                 | 4             | top 8 bits: header encoding; low 24 bits: header length  |
| 8                 | header length | header, see `json_fields` and `binary_fields`            |
| 8 + header length | rest          | body                                                     |

Peers may mix the two header encodings on one connection: each frame names its own.
"""

import struct
from collections.abc import Callable

import msgspec

from bolide.protocol import binary_fields, json_fields
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding

MAX_FRAME_SIZE = 16 * 1024 * 1024
"""Largest whole frame, length prefix included (`com.rocketmq.remoting.frameMaxLength`)."""

MAX_HEADER_SIZE = 1024 * 1024
"""Longest header accepted; the longest that RocketMQ writes holds 32 KiB of properties."""

_LENGTH = struct.Struct(">I")  # unsigned: a negative length reads as one over the limit
_PREFIX = struct.Struct(">II")
_HEADER_LENGTH = 0x00FF_FFFF
_CUT_REMARK = 1024


_TLS_HANDSHAKE = 0x1603
"""The first two bytes of a TLS connection, which would be a length of 350 MB."""


class FrameTooLarge(ProtocolError):
    """A peer announced a frame over the limit; the frame is not read."""

    def __init__(self, size: int, limit: int) -> None:
        text = f"a frame of {size} bytes is over the limit of {limit}"
        if size >> 16 == _TLS_HANDSHAKE:
            text = "it speaks TLS, and this port has no certificate: it is for plain text"
        super().__init__(text)
        self.size = size
        self.limit = limit


class FrameDecoder:
    """Splits a byte stream into frames. Its only state is the bytes of an incomplete frame."""

    __slots__ = ("_buffer", "_decode", "_needed", "error", "max_size")

    def __init__(
        self,
        max_size: int = MAX_FRAME_SIZE,
        decode: Callable[[bytes], Frame] | None = None,
    ) -> None:
        """`decode` replaces `decode_frame` by a faster implementation."""
        self.max_size = max_size
        self._decode = decode or decode_frame
        self.error: ProtocolError | None = None
        """Set when the stream is unusable: close it. The decoder returns no more frames."""
        self._buffer = bytearray()
        self._needed = _LENGTH.size

    @property
    def buffered(self) -> int:
        """Bytes buffered of an incomplete frame."""
        return len(self._buffer)

    @property
    def missing(self) -> int:
        """Bytes needed to make progress with an incomplete frame; 0 without one."""
        return self._needed - len(self._buffer) if self._buffer else 0

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes; returns the frames completed, in order. Check `error` afterwards."""
        if self.error is not None:
            return []
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer = bytearray()
        frames: list[Frame] = []
        try:
            at = self._cut(data, frames)
        except ProtocolError as exc:
            self.error = exc
            return frames
        if at < len(data):
            self._buffer += data[at:] if at else data
        return frames

    def _cut(self, data: bytes, frames: list[Frame]) -> int:
        """Append the complete frames of `data`; return where the incomplete one begins."""
        at, size = 0, len(data)
        while size - at >= _LENGTH.size:
            length = _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if length > self.max_size:
                raise FrameTooLarge(length, self.max_size)
            if size - at < length:
                self._needed = length
                return at
            frames.append(self._decode(data[at + _LENGTH.size : at + length]))
            at += length
        self._needed = _LENGTH.size
        return at


def frame_size(data: bytes, position: int = 0) -> int:
    """Size of the frame at `position` including its length prefix; 0 if not known yet."""
    if len(data) - position < _LENGTH.size:
        return 0
    return _LENGTH.size + int(_LENGTH.unpack_from(data, position)[0])


def decode_frame(payload: bytes) -> Frame:
    """Decode a frame from the bytes that follow its length prefix."""
    if len(payload) < _LENGTH.size:
        raise ProtocolError(f"a frame of {len(payload)} bytes has no room for its header length")
    (word,) = _LENGTH.unpack_from(payload)
    length = word & _HEADER_LENGTH
    if length > MAX_HEADER_SIZE:
        raise ProtocolError(f"a header of {length} bytes is over the limit of {MAX_HEADER_SIZE}")
    end = _LENGTH.size + length
    if end > len(payload):
        raise ProtocolError(
            f"a header of {length} bytes in a frame with {len(payload) - 4} bytes left"
        )
    encoding = word >> 24
    if encoding == HeaderEncoding.JSON:
        frame = json_fields.decode(payload[_LENGTH.size : end])
    elif encoding == HeaderEncoding.ROCKETMQ:
        frame = binary_fields.decode(payload[_LENGTH.size : end])
    else:
        raise ProtocolError(f"unknown header encoding {encoding}")
    if end < len(payload):
        frame.body = payload[end:]
    return frame


def encode_frame(frame: Frame) -> bytes:
    """Write a whole frame, length prefix included, in the encoding it names.

    Text may come from a peer: an unpaired surrogate becomes a question mark, as in Java, and a
    remark too long for a header is truncated.

    Raises:
        ValueError: the fields are longer than a header can be.
    """
    header = _encode_header(frame)
    if len(header) > _HEADER_LENGTH and frame.remark is not None:
        header = _encode_header(msgspec.structs.replace(frame, remark=frame.remark[:_CUT_REMARK]))
    if len(header) > _HEADER_LENGTH:
        raise ValueError(f"a header of {len(header)} bytes is over the limit of {_HEADER_LENGTH}")
    prefix = _PREFIX.pack(
        _LENGTH.size + len(header) + len(frame.body), frame.encoding << 24 | len(header)
    )
    return b"".join((prefix, header, frame.body))


def _encode_header(frame: Frame) -> bytes:
    encode = json_fields.encode if frame.encoding is HeaderEncoding.JSON else binary_fields.encode
    try:
        return encode(frame)
    except UnicodeEncodeError:
        return encode(_encodable(frame))


def _encodable(frame: Frame) -> Frame:
    fields = frame.fields and {_plain(key): _plain(text) for key, text in frame.fields.items()}
    remark = frame.remark and _plain(frame.remark)
    return msgspec.structs.replace(
        frame, fields=fields, remark=remark, language=_plain(frame.language)
    )


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode()
