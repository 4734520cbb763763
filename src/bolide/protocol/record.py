"""The message record: the same bytes in the commit log and in a pull reply.

Everything is big-endian (`MessageExtEncoder`, `MessageDecoder`):

| Offset | Size    | Field                                                               |
| ------ | ------- | ------------------------------------------------------------------- |
| 0      | 4       | size of the whole record                                            |
| 4      | 4       | magic: 0xDAA320A7 for version 1, 0xDAA320AB for version 2           |
| 8      | 4       | CRC-32 of the body, top bit cleared                                 |
| 12     | 4       | queue id                                                            |
| 16     | 4       | flag                                                                |
| 20     | 8       | queue offset                                                        |
| 28     | 8       | physical offset                                                     |
| 36     | 4       | sysFlag; 0x10 and 0x20: born and store host are IPv6                |
| 40     | 8       | born timestamp                                                      |
| 48     | 8 or 20 | born host, see `hosts`                                              |
|        | 8       | store timestamp                                                     |
|        | 8 or 20 | store host                                                          |
|        | 4       | reconsume times                                                     |
|        | 8       | prepared transaction offset                                         |
|        | 4 + n   | body                                                                |
|        | 1 + n   | topic; the length is a signed byte, in version 2 (2 + n) a short    |
|        | 2 + n   | properties, see `property_string`; the length is a signed short     |

A record is written in two steps. `encode_record` encodes everything but the placement, so that an
invalid message is refused before the log assigns an offset; `place_record` then fills in the
offsets and the store time in place.

A blank record closes a log file without room for the next message: 4 bytes with the number of
bytes left in the file, these included, and the magic 0xCBD43194.
"""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from zlib import crc32

from bolide.model.message import StoredMessage, SysFlag
from bolide.protocol.hosts import V4_SIZE, V6_SIZE, pack_host, unpack_host
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record_errors import (
    BadChecksum,
    BadLengths,
    BadMagic,
    RecordTooLarge,
    TruncatedRecord,
)

Buffer = bytes | bytearray | memoryview

MAX_BODY_SIZE = 4 * 1024 * 1024
"""Default of the largest body (`maxMessageSize`)."""

MAX_V1_TOPIC_SIZE = 0x7F
MAX_TOPIC_SIZE = 0x7FFF
MAX_PROPERTIES_SIZE = 0x7FFF
MIN_BLANK_SIZE = 8
"""Bytes that a log file keeps free for the blank record at its end."""

MAGIC_V1 = 0xDAA320A7
"""Of a record whose topic length has one byte."""
MAGIC_V2 = 0xDAA320AB
"""Of a record whose topic length has two bytes."""
MAGIC_BLANK = 0xCBD43194
"""Of the blank record that fills the rest of a log file."""
_MAGICS = (MAGIC_V1, MAGIC_V2)

OFFSET_AT = 28
"""Where the physical offset is in a record."""

_CRC_MASK = 0x7FFF_FFFF
_V6_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_BORN_V6 = int(SysFlag.BORN_HOST_V6)
_FLAG_BYTE_AT = 39  # the low byte of sysFlag, where the IPv6 bits are
_OFFSETS_AT = 20
_BORN_HOST_AT = 48

RECORD_HEAD = struct.Struct(">II20xq")
"""Size, magic and physical offset: enough to check whether a record may begin at a position."""

_SIZE_AND_MAGIC = struct.Struct(">II")
_OFFSETS = struct.Struct(">qq")
_BODY_SIZE = struct.Struct(">I")
_MAGIC_END = 7
_TIMESTAMP = struct.Struct(">q")
_BYTE = struct.Struct(">b")
_SHORT = struct.Struct(">h")

# The record up to and including the body length, indexed by the IPv6 bits of sysFlag.
_HOST_SIZES = ((V4_SIZE, V4_SIZE), (V6_SIZE, V4_SIZE), (V4_SIZE, V6_SIZE), (V6_SIZE, V6_SIZE))
_HEADS = tuple(struct.Struct(f">IIIiiqqiq{born}sq{store}siqI") for born, store in _HOST_SIZES)
FIXED_SIZE = _HEADS[0].size - 2 * V4_SIZE
"""Bytes of a record up to and including the body length, without the hosts."""
_UNPLACED = tuple(struct.Struct(f">IIIii16xiq{born}s8x{store}siqI") for born, store in _HOST_SIZES)


class RecordDraft(NamedTuple):
    """A record without its placement. Hosts are packed (`hosts.pack_host`)."""

    topic: bytes
    body: Buffer
    properties: Buffer
    queue_id: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Placement(NamedTuple):
    """The offsets and store time (ms) that the log assigns to a record."""

    queue_offset: int
    physical_offset: int
    store_timestamp: int


class Record(NamedTuple):
    """A decoded record, in wire order; hosts are packed.

    `body` and `properties` are views: while they exist, an underlying mapping cannot be closed.
    """

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: memoryview
    topic: str
    properties: memoryview

    def decode_properties(self) -> dict[str, str]:
        return decode_property_bytes(self.properties)

    def properties_later(self) -> Callable[[], dict[str, str]]:
        """Return a function that decodes the properties on demand, from a copy of their bytes."""
        return partial(decode_property_bytes, bytes(self.properties))

    @property
    def version(self) -> int:
        return 1 if self.magic == MAGIC_V1 else 2

    def message(self) -> StoredMessage:
        """Copy the record into a message; the properties are decoded on first access."""
        # fmt: off
        return StoredMessage(
            self.topic, bytes(self.body), self.properties_later(), self.flag, self.queue_id,
            self.queue_offset, self.physical_offset, self.sys_flag, self.born_timestamp,
            unpack_host(self.born_host), self.store_timestamp, unpack_host(self.store_host),
            self.reconsume_times, self.prepared_transaction_offset,
            self.body_crc, self.size, self.version,
        )
        # fmt: on


class Blank(NamedTuple):
    """The rest of the file, `size` bytes, is unused."""

    size: int


def encode_record(draft: RecordDraft, max_body_size: int = MAX_BODY_SIZE) -> bytearray:
    """Encode a record without its placement.

    The IPv6 bits of sysFlag are derived from the hosts; those of the draft are ignored.

    Raises:
        RecordTooLarge: the body is over the limit, or the topic or the properties do not fit.
    """
    topic, body, properties, queue_id, born, born_host, store_host, flag, sys_flag, times, half = (
        draft
    )
    _refuse_oversize(len(topic), len(body), len(properties), max_body_size)
    magic, length = (MAGIC_V1, _BYTE) if len(topic) <= MAX_V1_TOPIC_SIZE else (MAGIC_V2, _SHORT)
    v6 = (len(born_host) == V6_SIZE) | (len(store_host) == V6_SIZE) << 1
    head = _UNPLACED[v6]
    size = head.size + len(body) + length.size + len(topic) + _SHORT.size + len(properties)
    sys_flag = sys_flag & ~_V6_BITS | v6 << 4
    crc = crc32(body) & _CRC_MASK
    # fmt: off
    return bytearray().join((
        head.pack(size, magic, crc, queue_id, flag, sys_flag, born, born_host, store_host,
                  times, half, len(body)),
        body, length.pack(len(topic)), topic, _SHORT.pack(len(properties)), properties,
    ))
    # fmt: on


def place_record(buffer: bytearray | memoryview, position: int, place: Placement) -> None:
    """Fill the placement into the record at `position`."""
    queue_offset, physical_offset, store_timestamp = place
    _OFFSETS.pack_into(buffer, position + _OFFSETS_AT, queue_offset, physical_offset)
    host_size = V6_SIZE if buffer[position + _FLAG_BYTE_AT] & _BORN_V6 else V4_SIZE
    _TIMESTAMP.pack_into(buffer, position + _BORN_HOST_AT + host_size, store_timestamp)


def store_time(record: Buffer) -> int:
    """Store time of a placed record, in milliseconds."""
    host_size = V6_SIZE if record[_FLAG_BYTE_AT] & _BORN_V6 else V4_SIZE
    return int(_TIMESTAMP.unpack_from(record, _BORN_HOST_AT + host_size)[0])


def property_bytes(record: Buffer) -> bytes:
    """The encoded properties of a whole record; empty if its lengths are wrong."""
    try:
        at = _HEADS[record[_FLAG_BYTE_AT] >> 4 & 3].size
        at += int(_BODY_SIZE.unpack_from(record, at - _BODY_SIZE.size)[0])
        length = _BYTE if record[_MAGIC_END] == MAGIC_V1 & 0xFF else _SHORT
        at += length.size + int(length.unpack_from(record, at)[0])
        (size,) = _SHORT.unpack_from(record, at)
    except (IndexError, struct.error):
        return b""
    return bytes(record[at + _SHORT.size : at + _SHORT.size + max(size, 0)])


def encode_message(message: StoredMessage) -> bytes:
    """Encode a stored message as a record again; size, version and CRC are computed."""
    draft = RecordDraft(
        message.topic.encode(),
        message.body,
        encode_properties(message.properties).encode(),
        message.queue_id,
        message.born_timestamp,
        pack_host(message.born_host),
        pack_host(message.store_host),
        message.flag,
        message.sys_flag,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )
    record = encode_record(draft, max_body_size=len(message.body))
    place = Placement(message.queue_offset, message.physical_offset, message.store_timestamp)
    place_record(record, 0, place)
    return bytes(record)


def encode_blank(size: int) -> bytes:
    """Return the 8 bytes that close a file with `size` bytes left, these included."""
    if size < MIN_BLANK_SIZE:
        raise ValueError(f"a blank record needs {MIN_BLANK_SIZE} bytes, {size} are left")
    return _SIZE_AND_MAGIC.pack(size, MAGIC_BLANK)


def read_record(buffer: Buffer, position: int = 0, *, check_crc: bool = False) -> Record | Blank:
    """Decode the record at `position`; only the topic and the hosts are copied.

    Raises:
        TruncatedRecord: the buffer ends before the record does.
        BadMagic: no record begins here.
        BadLengths: the lengths in the record do not add up.
        BadChecksum: with `check_crc`, the CRC of the body does not match.
    """
    left = len(buffer) - position
    if left < _SIZE_AND_MAGIC.size:
        raise TruncatedRecord(position, _SIZE_AND_MAGIC.size, left)
    size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic not in _MAGICS:
        return _read_blank(position, size, magic)
    if size > left:
        raise TruncatedRecord(position, size, left)
    record = _cut(memoryview(buffer)[position : position + size], position)
    if check_crc and record.body and crc32(record.body) & _CRC_MASK != record.body_crc:
        raise BadChecksum(position, f"the body's CRC is not {record.body_crc:#010x}")
    return record


def iter_records(buffer: Buffer, *, check_crc: bool = False) -> Iterator[Record]:
    """Decode contiguous records up to the end of the buffer, as in the body of a pull reply.

    Raises:
        BadRecord: a record is not sound, or is a blank.
    """
    position, end = 0, len(buffer)
    while position < end:
        record = read_record(buffer, position, check_crc=check_crc)
        if isinstance(record, Blank):
            raise BadMagic(position, MAGIC_BLANK)
        yield record
        position += record.size


def is_record_magic(magic: int) -> bool:
    """Whether this is the magic of a message record, as an unsigned number."""
    return magic in _MAGICS


def body_crc(body: Buffer) -> int:
    return crc32(body) & _CRC_MASK


def decode_property_bytes(text: Buffer) -> dict[str, str]:
    # Java replaces bad UTF-8 too: one bad byte must not block a whole queue.
    return decode_properties(str(text, "utf-8", "replace"))


def _refuse_oversize(topic: int, body: int, properties: int, max_body_size: int) -> None:
    if body > max_body_size:
        raise RecordTooLarge("body", body, max_body_size)
    if properties > MAX_PROPERTIES_SIZE:
        raise RecordTooLarge("properties", properties, MAX_PROPERTIES_SIZE)
    if topic > MAX_TOPIC_SIZE:
        raise RecordTooLarge("topic", topic, MAX_TOPIC_SIZE)


def _read_blank(position: int, size: int, magic: int) -> Blank:
    if magic != MAGIC_BLANK:
        raise BadMagic(position, magic)
    if size < MIN_BLANK_SIZE:
        raise BadLengths(position, f"a blank record of {size} bytes")
    return Blank(size)


def _cut(view: memoryview, position: int) -> Record:
    """Split a view of exactly one record into its fields."""
    try:
        head = _HEADS[view[_FLAG_BYTE_AT] >> 4 & 3]
        fields = head.unpack_from(view)
        body_end = head.size + fields[-1]
        topic_length = _BYTE if fields[1] == MAGIC_V1 else _SHORT
        (topic_size,) = topic_length.unpack_from(view, body_end)
        topic_at = body_end + topic_length.size
        topic_end = topic_at + topic_size
        (properties_size,) = _SHORT.unpack_from(view, topic_end)
    except (IndexError, struct.error) as exc:
        raise BadLengths(position, f"its fields do not fit into {len(view)} bytes") from exc
    properties_at = topic_end + _SHORT.size
    if topic_size < 0 or properties_at + properties_size != len(view):
        raise BadLengths(position, f"its fields do not add up to {len(view)} bytes")
    topic = str(view[topic_at:topic_end], "utf-8", "replace")
    body, properties = view[head.size : body_end], view[properties_at:]
    return Record._make((*fields[:-1], body, topic, properties))
