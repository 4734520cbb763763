"""Compression of message bodies; sysFlag names the codec.

zlib is a plain RFC 1950 stream, LZ4 the frame format, zstd a standard frame. The last two need
`pip install bolide[codecs]` and are imported when first used.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from bolide.errors import BolideError
from bolide.model.message import CompressionType, compression_type
from bolide.protocol.errors import ProtocolError

MAX_PLAIN_SIZE = 64 * 1024 * 1024
"""Default limit of a decompressed body, against decompression bombs."""

DEFAULT_LEVEL = 5

Buffer = bytes | bytearray | memoryview


class CodecMissing(BolideError):
    """The body needs a library that is not installed."""

    def __init__(self, compression: CompressionType) -> None:
        super().__init__(f"{compression.name} bodies need an extra: pip install bolide[codecs]")
        self.compression = compression


class BadCompressedBody(ProtocolError):
    """The body cannot be decompressed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"compressed body: {reason}")
        self.reason = reason


class PlainBodyTooLarge(BadCompressedBody):
    """The body decompresses past the limit; no more than the limit was held in memory."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"inflates to more than {limit} bytes")
        self.limit = limit


def compress(body: Buffer, compression: CompressionType, level: int = DEFAULT_LEVEL) -> bytes:
    """Return the compressed body; set `compression.flags` in sysFlag.

    Raises:
        CodecMissing: the codec is not installed.
    """
    return _COMPRESS[compression](body, level)


def decompress(body: Buffer, sys_flag: int, limit: int = MAX_PLAIN_SIZE) -> bytes:
    """Return the plain body, which is `body` itself if sysFlag names no codec.

    Raises:
        BadCompressedBody: the body is damaged, over `limit`, or of an unknown type.
        CodecMissing: the codec is not installed.
    """
    try:
        compression = compression_type(sys_flag)
    except ValueError as exc:
        raise BadCompressedBody(f"unknown type in sysFlag {sys_flag:#x}") from exc
    return bytes(body) if compression is None else _DECOMPRESS[compression](body, limit)


def _compress_zlib(body: Buffer, level: int) -> bytes:
    return zlib.compress(body, level)


def _compress_lz4(body: Buffer, _level: int) -> bytes:
    # Java's Lz4Compressor ignores the level too.
    compressed: bytes = _codec(CompressionType.LZ4).compress(body, store_size=False)
    return compressed


def _compress_zstd(body: Buffer, level: int) -> bytes:
    compressed: bytes = _codec(CompressionType.ZSTD).ZstdCompressor(level=level).compress(body)
    return compressed


def _decompress_zlib(body: Buffer, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, limit + 1)
    except zlib.error as exc:
        raise BadCompressedBody(str(exc)) from exc
    return _whole(plain, limit, at_end=inflater.eof)


def _decompress_lz4(body: Buffer, limit: int) -> bytes:
    inflater = _codec(CompressionType.LZ4).LZ4FrameDecompressor()
    try:
        plain: bytes = inflater.decompress(body, max_length=limit + 1)
    except (RuntimeError, EOFError) as exc:
        raise BadCompressedBody(str(exc)) from exc
    return _whole(plain, limit, at_end=inflater.eof)


def _decompress_zstd(body: Buffer, limit: int) -> bytes:
    zstd = _codec(CompressionType.ZSTD)
    try:
        # The library allocates the size in the frame header, so it is checked first.
        if zstd.frame_content_size(body) > limit:
            raise PlainBodyTooLarge(limit)
        plain: bytes = zstd.ZstdDecompressor().decompress(body, max_output_size=limit)
    except zstd.ZstdError as exc:
        raise BadCompressedBody(f"{exc} (limit {limit} bytes)") from exc
    return plain


def _whole(plain: bytes, limit: int, *, at_end: bool) -> bytes:
    if len(plain) > limit:
        raise PlainBodyTooLarge(limit)
    if not at_end:
        raise BadCompressedBody("the stream is cut off")
    return plain


_COMPRESS: dict[CompressionType, Callable[[Buffer, int], bytes]] = {
    CompressionType.ZLIB: _compress_zlib,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[CompressionType, Callable[[Buffer, int], bytes]] = {
    CompressionType.ZLIB: _decompress_zlib,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
_MODULES = {CompressionType.LZ4: "lz4.frame", CompressionType.ZSTD: "zstandard"}


def _codec(compression: CompressionType) -> ModuleType:
    try:
        return import_module(_MODULES[compression])
    except ImportError as exc:
        raise CodecMissing(compression) from exc
