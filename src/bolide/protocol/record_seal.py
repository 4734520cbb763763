"""The CRC property of RocketMQ 5.x (`enabledAppendPropCRC`): a checksum over a whole record.

The property is the last one and always 20 bytes: `__CRC32#` 0x01, ten digits, 0x02. The number is
the CRC-32 of all bytes before it, top bit cleared; its digits are in reverse order, padded with
zeros at the end.

Call order: `with_seal_room` reserves the property in a draft, the record is encoded and placed,
`seal_record` writes the checksum.
"""

import struct
from zlib import crc32

from bolide.model.properties import PropertyName
from bolide.protocol.record_errors import BadChecksum

Buffer = bytes | bytearray | memoryview

_NAME = PropertyName.RECORD_CRC.encode() + b"\x01"
_DIGITS = 10
_END = b"\x02"
SEAL_SIZE = len(_NAME) + _DIGITS + len(_END)

_SIZE = struct.Struct(">I")


def with_seal_room(properties: bytes) -> bytes:
    """Reserve the property; the properties must not contain it already."""
    if properties and not properties.endswith(_END):
        properties += _END
    return properties + _seal(0)


def seal_record(buffer: bytearray | memoryview, position: int = 0) -> None:
    """Write the seal of the record at `position`; the record must not change afterwards."""
    view, seal_at = _split(buffer, position)
    view[seal_at:] = _seal(_crc(view[:seal_at]))


def check_seal(buffer: Buffer, position: int = 0) -> None:
    """Check a record that `read_record` found sound.

    Raises:
        BadChecksum: the record has no seal, or its checksum differs.
    """
    view, seal_at = _split(buffer, position)
    seal = view[seal_at:]
    if seal[: len(_NAME)] != _NAME:
        raise BadChecksum(position, f"no property {PropertyName.RECORD_CRC} at its end")
    if seal != _seal(_crc(view[:seal_at])):
        raise BadChecksum(position, "the record's CRC is another than the property says")


def _split(buffer: Buffer, position: int) -> tuple[memoryview, int]:
    (size,) = _SIZE.unpack_from(buffer, position)
    return memoryview(buffer)[position : position + size], size - SEAL_SIZE


def _crc(data: memoryview) -> int:
    return crc32(data) & 0x7FFF_FFFF


def _seal(crc: int) -> bytes:
    return _NAME + f"{crc:0{_DIGITS}d}"[::-1].encode() + _END
