"""The binary header of a frame (`RocketMQSerializable`).

| Size  | Field                                                                     |
| ----- | ------------------------------------------------------------------------- |
| 2     | code, truncated to 16 bits: the POP codes (200050 …) do not fit           |
| 1     | language                                                                  |
| 2     | version                                                                   |
| 4     | opaque                                                                    |
| 4     | flag                                                                      |
| 4 + n | remark; length 0 means none                                               |
| 4 + n | fields: repeated 2-byte key length, key, 4-byte value length, value       |

A value of length 0 decodes as absent. Bytes that are not UTF-8 decode as replacement characters.
"""

import struct

from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding, Language

_MOST_FIELDS = 1024
_FIXED = struct.Struct(">hBhiii")
_KEY = struct.Struct(">h")
_LENGTH = struct.Struct(">i")
_MAX_KEY = 0x7FFF
_LANGUAGES = {language.value: language.name for language in Language}
_NUMBERS = {language.name: language.value for language in Language}


def decode(header: bytes) -> Frame:
    """Decode a header into a frame without a body."""
    try:
        return _decode(header)
    except struct.error as exc:
        raise ProtocolError(f"unreadable {HeaderEncoding.ROCKETMQ.name} header: {exc}") from exc


def encode(frame: Frame) -> bytes:
    """Encode a header; a code or version over 16 bits is truncated, as in Java.

    Raises:
        ValueError: the name of a field is too long.
    """
    remark = (frame.remark or "").encode()
    fields = _encode_fields(frame.fields) if frame.fields else b""
    fixed = _FIXED.pack(
        _short(frame.code),
        _NUMBERS.get(frame.language, Language.OTHER),
        _short(frame.version),
        frame.opaque,
        frame.flag,
        len(remark),
    )
    return b"".join((fixed, remark, _LENGTH.pack(len(fields)), fields))


def _decode(header: bytes) -> Frame:
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    at = _FIXED.size
    remark, at = _text(header, at, remark_length)
    (fields_length,) = _LENGTH.unpack_from(header, at)
    at += _LENGTH.size
    end = at + fields_length
    if fields_length < 0 or end > len(header):
        raise ProtocolError(f"{fields_length} bytes of fields where {len(header) - at} are left")
    return Frame(
        code=code,
        fields=_decode_fields(header[:end], at) if fields_length else None,
        flag=flag,
        language=_LANGUAGES.get(language, "OTHER"),
        opaque=opaque,
        remark=remark or None,
        version=version,
        encoding=HeaderEncoding.ROCKETMQ,
    )


def _decode_fields(header: bytes, at: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    for _ in range(_MOST_FIELDS + 1):
        if at >= len(header):
            return fields
        (length,) = _KEY.unpack_from(header, at)
        key, at = _text(header, at + _KEY.size, length)
        (length,) = _LENGTH.unpack_from(header, at)
        value, at = _text(header, at + _LENGTH.size, length)
        if value:
            fields[key] = value
    raise ProtocolError(f"a header of over {_MOST_FIELDS} fields")


def _text(header: bytes, at: int, length: int) -> tuple[str, int]:
    end = at + length
    if length < 0 or end > len(header):
        raise ProtocolError(f"a text of {length} bytes where {len(header) - at} are left")
    return header[at:end].decode(errors="replace"), end


def _short(number: int) -> int:
    return (number + 0x8000) % 0x10000 - 0x8000


def _encode_fields(fields: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for key, value in fields.items():
        name, text = key.encode(), value.encode()
        if len(name) > _MAX_KEY:
            raise ValueError(f"the name of a field has {len(name)} bytes, more than {_MAX_KEY}")
        parts += (_KEY.pack(len(name)), name, _LENGTH.pack(len(text)), text)
    return b"".join(parts)
