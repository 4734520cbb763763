"""The JSON header of a frame, as fastjson writes and reads it (`RemotingSerializable`)."""

from typing import Annotated, Literal

import msgspec

from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding, Language
from bolide.protocol.java_casts import cast
from bolide.protocol.json_dialect import BadJson, parse

MAX_LENIENT_SIZE = 64 * 1024
"""Longest header for the lenient decoder, which is Python."""
MAX_DIALECT_SIZE = 16 * 1024
"""Longest header that is not even standard JSON: it is parsed by Python code on the event loop,
which takes 11 ms at worst."""

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_LanguageName = Literal[
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
]  # fmt: skip
"""The names of `Language`. A header with another name is decoded leniently."""


class _Header(msgspec.Struct):
    """The keys of a header as RocketMQ writes them; unknown keys are ignored."""

    code: _Int
    extFields: dict[str, str] | None = None  # noqa: N815  wire name
    flag: _Int = 0
    language: _LanguageName | None = "JAVA"
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0


class _LenientHeader(msgspec.Struct):
    """The same keys as the fields of a `RemotingCommand`, which has an enum of languages."""

    code: _Int = 0
    extFields: dict[str, str] | None = None  # noqa: N815
    flag: _Int = 0
    language: Language | None = Language.JAVA
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0


_strict = msgspec.json.Decoder(_Header)
_text = msgspec.json.Encoder().encode


def decode(header: bytes) -> Frame:
    """Decode a header into a frame without a body."""
    try:
        found = _strict.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(header)
    return Frame(
        code=found.code,
        fields=found.extFields,
        flag=found.flag,
        language=found.language or "OTHER",
        opaque=found.opaque,
        remark=found.remark,
        version=found.version,
    )


def is_strict(header: bytes) -> bool:
    """Whether a header is standard JSON without values of another kind."""
    try:
        _strict.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def encode(frame: Frame) -> bytes:
    """Encode a header with the keys in fastjson's order, without nulls."""
    parts = [b'{"code":%d' % frame.code]
    if frame.fields is not None:
        parts.append(b',"extFields":' + _text(frame.fields))
    parts.append(
        b',"flag":%d,"language":%s,"opaque":%d' % (frame.flag, _text(frame.language), frame.opaque)
    )
    if frame.remark is not None:
        parts.append(b',"remark":' + _text(frame.remark))
    parts.append(b',"serializeTypeCurrentRPC":"JSON","version":%d}' % frame.version)
    return b"".join(parts)


def _decode_leniently(header: bytes) -> Frame:
    """Decode what else Java accepts, and bad UTF-8, which old C++ clients send.

    An unknown language is null in Java.
    """
    text = header.decode(errors="replace")
    try:
        found = cast(parse(text, MAX_LENIENT_SIZE, MAX_DIALECT_SIZE), _LenientHeader)
    except BadJson as exc:
        raise ProtocolError(f"unreadable {HeaderEncoding.JSON.name} header: {exc}") from exc
    return Frame(
        code=found.code,
        fields=found.extFields,
        flag=found.flag,
        language=(Language.OTHER if found.language is None else found.language).name,
        opaque=found.opaque,
        remark=found.remark,
        version=found.version,
    )
