"""The JSON header of a frame, as fastjson writes and reads it (`RemotingSerializable`)."""

from typing import Annotated, Any

import msgspec

from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _JsonHeader(msgspec.Struct):
    """The keys of a header; unknown keys are ignored."""

    code: _Int
    extFields: dict[str, str] | None = None  # noqa: N815  wire name
    flag: _Int = 0
    language: str | None = "JAVA"
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0


class _LooseHeader(_JsonHeader):
    """A header whose extFields also contain numbers, booleans or nulls."""

    extFields: dict[str, Any] | None = None  # noqa: N815


_strict = msgspec.json.Decoder(_JsonHeader)
_loose = msgspec.json.Decoder(_LooseHeader, strict=False)
_text = msgspec.json.Encoder().encode


def decode(header: bytes) -> Frame:
    """Decode a header into a frame without a body."""
    try:
        found = _strict.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _decode_loosely(header)
    return Frame(
        code=found.code,
        fields=found.extFields,
        flag=found.flag,
        language=found.language or "OTHER",
        opaque=found.opaque,
        remark=found.remark,
        version=found.version,
    )


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


def _decode_loosely(header: bytes) -> _JsonHeader:
    """Decode with replacement characters for bad UTF-8, as Java does; old C++ clients send it."""
    try:
        found = _loose.decode(header.decode(errors="replace"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ProtocolError(f"unreadable {HeaderEncoding.JSON.name} header: {exc}") from exc
    if found.extFields is not None:
        found.extFields = {
            key: value if isinstance(value, str) else _text(value).decode()
            for key, value in found.extFields.items()
            if value is not None
        }
    return found
