"""Conversion of records to columns, in plain Python: the reference and fallback for `_columns`.

Fields of rows are collected in one flat list and moved to their columns every few hundred rows, so
that the many small objects stay in the processor's cache.
"""

import struct
from typing import Any, NamedTuple
from zlib import crc32

from bolide.kernel.column_buffers import EVERYTHING, ColumnBuffers, Walk, Wanted
from bolide.kernel.column_building import FIELDS, ColumnBuilder
from bolide.kernel.property_columns import as_utf_8
from bolide.kernel.records import Halt, judge, refuse_outside
from bolide.kernel.results import Check, Stop
from bolide.model.message import SysFlag, without_compression
from bolide.protocol.compression import BadCompressedBody, CodecMissing, decompress
from bolide.protocol.hosts import V4_SIZE, V6_SIZE, unpack_host
from bolide.protocol.record import MAGIC_V1, MAGIC_V2, OFFSET_AT, Buffer

MAX_ROWS = 10_000
MAX_SIZE = 16 * 1024 * 1024
MAX_HOSTS = 10_000
"""Hosts whose formatted texts are cached."""

_HOSTS = ((V4_SIZE, V4_SIZE), (V6_SIZE, V4_SIZE), (V4_SIZE, V6_SIZE), (V6_SIZE, V6_SIZE))
_HEADS = tuple(struct.Struct(f">IIIiiqqiq{born}sq{store}si8xI") for born, store in _HOSTS)
_FLAG_BYTE_AT = 39  # the low byte of sysFlag, where the IPv6 bits are
_CRC_MASK = 0x7FFF_FFFF
_LONG = 1 << 63
_COMPRESSED = int(SysFlag.COMPRESSED)
_PREPARED = int(SysFlag.PREPARED)
_WRAPPED = int(SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP)

_FOLD = 512 * FIELDS
"""Length of the field list at which rows are moved to their columns."""


class Columns:
    """Collects records from buffers until it is full, and returns them as columns.

    It is full at `max_rows` rows, or when decompressed bodies and properties reach `max_size`
    bytes. Compressed bodies are decompressed; a body for which that fails stays compressed, keeps
    its sysFlag, and is counted in `left_compressed`. Invalid UTF-8 is replaced by U+FFFD.
    """

    def __init__(
        self,
        wanted: Wanted = EVERYTHING,
        *,
        properties: bool = True,
        max_rows: int = MAX_ROWS,
        max_size: int = MAX_SIZE,
    ) -> None:
        """Create an empty instance; without `properties` the last column is omitted."""
        self._wanted = wanted
        self._is_filtered = wanted._replace(topic=None) != EVERYTHING
        self._with_properties = properties
        self._max_rows = max_rows
        self._max_size = max_size
        self._topics: dict[bytes, bytes | None] = {}
        self._hosts: dict[bytes, HostTexts] = {}
        self._reset()

    def _reset(self) -> None:
        self.rows = 0
        self.size = 0
        self.left_compressed = 0
        self._fields: list[Any] = []
        self._builder = ColumnBuilder(with_properties=self._with_properties)

    def add(
        self,
        buffer: Buffer,
        position: int = 0,
        end: int | None = None,
        *,
        physical_offset: int | None = None,
        check_crc: bool = False,
        offset_delta: int = 0,
    ) -> Walk:
        """Add the records that begin between two positions of a buffer.

        Stops at an inner batch: the caller adds its messages as records (`unwrap_records`).

        Args:
            buffer: records back to back; the last one may reach past `end`.
            position: start of the first record.
            end: by default the end of the buffer.
            physical_offset: physical offset of position 0, checked against the records; None skips
                the check.
            check_crc: whether to verify body checksums, of wanted records only.
            offset_delta: added to queue offsets.

        Raises:
            ValueError: the positions are outside of the buffer.
        """
        data = bytes(buffer)
        last = len(data) if end is None else end
        refuse_outside(len(data), position, last, physical_offset or 0)
        while position < last:
            if self.rows >= self._max_rows or self.size >= self._max_size:
                return Walk(position, Stop.FULL, "")
            size = self._add_record(data, position, physical_offset, check_crc, offset_delta)
            if size < 0:
                return Walk(position, Stop.BATCH, "")
            if not size:
                halt = halt_at(data, position, physical_offset, check_crc=check_crc)
                return Walk(position, halt.stop, halt.reason)
            position += size
        return Walk(position, Stop.END, "")

    @property
    def is_full(self) -> bool:
        return self.rows >= self._max_rows or self.size >= self._max_size

    def cut(self) -> ColumnBuffers:
        """Return the columns of all added records, and reset to empty."""
        self._fold()
        columns = self._builder.cut(self.rows)
        self._reset()
        return columns

    def _fold(self) -> None:
        if self._fields:
            self._builder.add(self._fields)
            self._fields.clear()

    # ---- one record

    def _add_record(  # noqa: C901, PLR0911, PLR0912  inlined: runs once per record
        self, data: bytes, at: int, base: int | None, check_crc: bool, delta: int
    ) -> int:
        """Add the record at a position if wanted; returns its size, or 0 if it is invalid.

        The size of an inner batch is returned as a negative number; it is not added.
        """
        size: int
        try:
            head = _HEADS[data[at + _FLAG_BYTE_AT] >> 4 & 3]
            (
                size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
                born, born_host, stored, store_host, times, body_size,
            ) = head.unpack_from(data, at)  # fmt: skip
            body_at = at + head.size
            topic_at = body_at + body_size
            if magic == MAGIC_V1:
                topic_size, most = data[topic_at], 0x7F
                topic_at += 1
            elif magic == MAGIC_V2:
                topic_size, most = data[topic_at] << 8 | data[topic_at + 1], 0x7FFF
                topic_at += 2
            else:
                return 0
            text_at = topic_at + topic_size + 2
            text_size = data[text_at - 2] << 8 | data[text_at - 1]
        except (IndexError, struct.error):
            return 0
        end = at + size
        if topic_size > most or text_size > 0x7FFF or text_at + text_size != end or end > len(data):
            return 0
        if base is not None and physical_offset != base + at:
            return 0
        if sys_flag & _WRAPPED == _WRAPPED:
            return -size
        if delta:
            queue_offset = (queue_offset + delta + _LONG) % (2 * _LONG) - _LONG
        if self._is_filtered and not self._is_wanted(queue_offset, stored, sys_flag):
            return size
        raw = data[topic_at : text_at - 2]
        topic = self._topics[raw] if raw in self._topics else self._resolve_topic(raw)
        if topic is None:
            return size
        body = data[body_at : body_at + body_size]
        if check_crc and body and crc32(body) & _CRC_MASK != crc:
            return 0
        if sys_flag & _COMPRESSED:
            body, sys_flag = self._inflate(body, sys_flag)
        born_texts = self._hosts.get(born_host) or self._remember_host(born_host)
        store_texts = self._hosts.get(store_host) or self._remember_host(store_host)
        self.rows += 1
        self.size += len(body) + text_size
        self._fields += (
            topic, queue_id, queue_offset, physical_offset, store_texts.digits, data[text_at:end],
            body, born, stored, born_texts.text, store_texts.text, times, sys_flag, flag,
        )  # fmt: skip
        if len(self._fields) >= _FOLD:
            self._fold()
        return size

    def _is_wanted(self, queue_offset: int, stored: int, sys_flag: int) -> bool:
        wanted = self._wanted
        return (
            wanted.first_offset <= queue_offset < wanted.end_offset
            and wanted.since <= stored < wanted.until
            and (wanted.undelivered or not sys_flag & _PREPARED)
        )

    def _resolve_topic(self, raw: bytes) -> bytes | None:
        """Return the topic as UTF-8, or None if it is not wanted."""
        wanted = self._wanted.topic is None or self._wanted.topic(raw)
        return self._topics.setdefault(raw, as_utf_8(raw) if wanted else None)

    def _inflate(self, body: bytes, sys_flag: int) -> tuple[bytes, int]:
        plain = inflate(body, sys_flag)
        if plain is None:
            self.left_compressed += 1
            return body, sys_flag
        return plain, without_compression(sys_flag)

    def _remember_host(self, packed: bytes) -> "HostTexts":
        if len(self._hosts) >= MAX_HOSTS:
            self._hosts.clear()
        return self._hosts.setdefault(packed, host_texts(packed))


class HostTexts(NamedTuple):
    text: bytes
    """`host:port`."""
    digits: bytes
    """Hexadecimal digits, as in message ids."""


def host_texts(packed: bytes) -> HostTexts:
    return HostTexts(str(unpack_host(packed)).encode(), packed.hex().upper().encode())


def halt_at(buffer: Buffer, position: int, physical_offset: int | None, *, check_crc: bool) -> Halt:
    """Return why there is no valid record at a position."""
    base = physical_offset
    if base is None:
        own = bytes(buffer[position + OFFSET_AT : position + OFFSET_AT + 8])
        base = int.from_bytes(own, signed=True) - position
    halt = judge(buffer, position, base, Check.BODY if check_crc else Check.NONE)
    changed = Halt(Stop.DAMAGED, "it changed while it was read")
    return halt if isinstance(halt, Halt) else changed


def inflate(body: Buffer, sys_flag: int) -> bytes | None:
    """Decompress a body; None if that fails."""
    try:
        return decompress(body, sys_flag)
    except (BadCompressedBody, CodecMissing):
        return None
