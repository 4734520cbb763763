"""Signing keys: RFC 2202, and the compiled version beside the plain-Python one."""

import hmac
import json
from base64 import b64decode
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.kernel import signatures
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.framing import decode_frame, encode_frame
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, is_signed_by, signature
from tests.unit.kernel.kernels import MISSING

if not MISSING:
    from bolide.kernel import _signatures

SECRET = b"12345678"
Key = Callable[[bytes], signatures.SigningKey]


@pytest.fixture(params=["reference", "compiled", "compiled, portable"])
def make_key(request: pytest.FixtureRequest) -> Iterator[Key]:
    if request.param == "reference":
        yield signatures.SigningKey
        return
    if MISSING:
        pytest.skip(MISSING)
    _signatures.use_sha_extensions(request.param == "compiled")
    yield _signatures.SigningKey
    _signatures.use_sha_extensions(True)


@pytest.mark.parametrize(
    ("key", "data", "digest"),
    [
        (b"\x0b" * 20, b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
        (b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (b"\xaa" * 20, b"\xdd" * 50, "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (bytes(range(1, 26)), b"\xcd" * 50, "4c9007f4026250c6bc8414f9bf50c86c2d7235da"),
        (b"\x0c" * 20, b"Test With Truncation", "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04"),
        (
            b"\xaa" * 80, b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            b"\xaa" * 80,
            b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data",
            "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
        ),
    ],
)  # fmt: skip
def test_the_cases_of_rfc_2202(make_key: Key, key: bytes, data: bytes, digest: str) -> None:
    assert b64decode(make_key(key).sign(data)).hex() == digest


def test_contents_and_secrets_of_all_sizes_around_a_block(make_key: Key) -> None:
    text = bytes(range(256)) * 3
    for size in (0, 1, 19, 20, 63, 64, 65, 300):
        key = make_key(text[:size])
        for length in (*range(140), 700):
            expected = hmac.digest(text[:size], text[:length], "sha1")
            assert b64decode(key.sign(text[:length])) == expected, (size, length)


def test_a_signed_frame_is_found_right_wherever_it_lies(make_key: Key) -> None:
    fields = {"topic": "T", ACCESS_KEY: "me"}
    fields[SIGNATURE] = signature(fields, b"body", SECRET)
    for encoding in HeaderEncoding:
        frame = encode_frame(Frame(code=310, fields=fields, body=b"body", encoding=encoding))
        key = make_key(SECRET)
        assert key.is_signed(b"abc" + frame + b"more", 3)
        assert not make_key(SECRET + b"9").is_signed(frame, 0)
        for end in range(len(frame)):
            assert not key.is_signed(frame[:end], 0)
        assert not key.is_signed(frame, -1)
        assert not key.is_signed(frame, len(frame) + 1)
        for at in range(4, len(frame)):
            changed = bytearray(frame)
            changed[at] ^= 1
            if key.is_signed(bytes(changed), 0):
                found = decode_frame(bytes(changed[4:]))  # names are not signed
                assert is_signed_by(found.fields or {}, found.body, SECRET, found.version)


values = st.one_of(
    st.text(alphabet=st.characters(codec="ascii"), max_size=20),
    st.text(max_size=12),
    st.sampled_from(["", "a/b", 'say "x"', "\\", "\x01\x02", "é", "\U0001f600", "%" * 90]),
)
names = st.one_of(
    st.sampled_from([*"abcdefghijklmn", "topic", "to", "AccessKey", "SecurityToken", "é", ""]),
    st.sampled_from(["_UNIQUE_KEY_QUERY", "Signature", "Signatures", "\U00010000", "\uffff"]),
    st.text(max_size=4),
)
requests = st.builds(
    Frame,
    code=st.integers(0, 400),
    fields=st.dictionaries(names, values, max_size=14),
    body=st.binary(max_size=150),
    version=st.sampled_from([399, 400, 500]),
    encoding=st.sampled_from(HeaderEncoding),
)


def with_json(frame: Frame, *, ascii_only: bool, slash: bool) -> bytes:
    """The frame with a JSON header as another library would write it."""
    header = {"code": frame.code, "extFields": frame.fields, "version": frame.version}
    text = json.dumps(header, ensure_ascii=ascii_only, separators=(",", ":"))
    data = (text.replace("/", "\\/") if slash else text).encode(errors="replace")
    return b"".join(
        (
            (4 + len(data) + len(frame.body)).to_bytes(4),
            len(data).to_bytes(4),
            data,
            frame.body,
        )
    )


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@given(requests, st.binary(max_size=70), st.booleans(), st.booleans(), st.booleans())
@example(Frame(fields={"": "x"}, encoding=HeaderEncoding.ROCKETMQ), b"s", False, False, False)
def test_compiled_code_never_finds_right_what_is_wrong(
    frame: Frame, secret: bytes, ascii_only: bool, slash: bool, is_right: bool
) -> None:
    fields = dict(frame.fields or {})
    is_old = frame.version <= 399
    signed = {k: v for k, v in fields.items() if is_old or k != "_UNIQUE_KEY_QUERY"}
    right = signature(signed, frame.body, secret)
    if is_right:
        fields[SIGNATURE] = right
    frame.fields = fields
    data = encode_frame(frame)
    if frame.encoding is HeaderEncoding.JSON:
        data = with_json(frame, ascii_only=ascii_only, slash=slash)
    decoded = decode_frame(data[4:])
    expected = is_signed_by(decoded.fields or {}, decoded.body, secret, decoded.version)
    assert signatures.SigningKey(secret).is_signed(data, 0) == expected
    found = _signatures.SigningKey(secret).is_signed(data, 0)
    assert found <= expected
    texts = [*fields, *fields.values()]
    plain = all(map(str.isascii, texts)) and "_UNIQUE_KEY_QUERY" not in fields
    if encoding_keeps(frame) and plain and not any('"' in name or "\\" in name for name in fields):
        names_escaped = any(not name.isprintable() for name in fields) or (
            slash and any("/" in name for name in fields)
        )
        signature_escaped = slash and "/" in fields.get(SIGNATURE, "")
        if not names_escaped and not signature_escaped:
            assert found == expected


def encoding_keeps(frame: Frame) -> bool:
    """Whether the compiled parser takes such a header: a binary one has no empty values."""
    return frame.encoding is HeaderEncoding.JSON or all((frame.fields or {}).values())


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@given(st.lists(st.permutations(sorted("abcdefghij")), max_size=5))
def test_the_order_of_earlier_requests_does_not_matter(orders: list[list[str]]) -> None:
    key = _signatures.SigningKey(SECRET)
    for number, order in enumerate(orders):
        fields = {name: f"value of {name}" for name in order[: 10 - number % 3]}
        fields[SIGNATURE] = signature(fields, b"", SECRET)
        assert key.is_signed(encode_frame(Frame(code=1, fields=fields)), 0)
