import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.model.message import CompressionType
from bolide.protocol.compression import (
    BadCompressedBody,
    CodecMissing,
    PlainBodyTooLarge,
    compress,
    decompress,
)

PLAIN = b"hello bolide " * 100

every_codec = pytest.mark.parametrize("codec", CompressionType)


@every_codec
@given(body=st.binary(max_size=2000))
def test_round_trip(codec: CompressionType, body: bytes) -> None:
    assert decompress(compress(body, codec), codec.flags) == body


def test_a_body_without_the_flag_is_left_alone() -> None:
    assert decompress(memoryview(PLAIN), CompressionType.LZ4 << 8) == PLAIN


def test_the_type_of_an_old_client_is_zlib() -> None:
    assert decompress(compress(PLAIN, CompressionType.ZLIB), 0x1) == PLAIN


@every_codec
def test_a_body_cut_at_any_byte_is_refused(codec: CompressionType) -> None:
    body = compress(PLAIN, codec)
    for cut in range(len(body)):
        with pytest.raises(BadCompressedBody):
            decompress(body[:cut], codec.flags)


@every_codec
@given(body=st.binary(max_size=200))
def test_random_bytes_inflate_or_are_refused(codec: CompressionType, body: bytes) -> None:
    start = compress(PLAIN, codec)[:20]
    for data in (body, start + body):
        try:
            decompress(data, codec.flags, limit=100_000)
        except BadCompressedBody as refused:
            assert refused.reason


@every_codec
def test_a_body_of_just_the_limit_passes(codec: CompressionType) -> None:
    assert decompress(compress(PLAIN, codec), codec.flags, limit=len(PLAIN)) == PLAIN


@every_codec
def test_a_bomb_is_refused(codec: CompressionType) -> None:
    with pytest.raises(PlainBodyTooLarge) as caught:
        decompress(compress(bytes(10_000_000), codec), codec.flags, limit=1000)
    assert caught.value.limit == 1000


def test_a_zstd_bomb_that_hides_its_size_is_refused() -> None:
    import zstandard

    body = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000_000))
    with pytest.raises(BadCompressedBody, match="limit 1000 bytes"):
        decompress(body, CompressionType.ZSTD.flags, limit=1000)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(BadCompressedBody, match="0x401"):
        decompress(b"", 0x401)


@pytest.mark.parametrize(
    ("codec", "module"), [(CompressionType.LZ4, "lz4.frame"), (CompressionType.ZSTD, "zstandard")]
)
def test_a_missing_library_names_the_extra(
    codec: CompressionType, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CodecMissing, match=r"bolide\[codecs\]"):
        compress(PLAIN, codec)
    with pytest.raises(CodecMissing, match=codec.name):
        decompress(PLAIN, codec.flags)
