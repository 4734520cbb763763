"""Decoding of the records of a reply into messages; `_messages` is the compiled version."""

import struct
from collections.abc import Collection

from bolide.model.message import StoredMessage
from bolide.protocol.hosts import unpack_host
from bolide.protocol.record import Record, iter_records

_SIZE_AND_SYS_FLAG = struct.Struct(">I32xi")  # the beginning of a record


def read_messages(
    data: bytes,
    broker_name: str = "",
    min_offset: int | None = None,
    max_offset: int | None = None,
    tags: Collection[str] = (),
) -> list[StoredMessage]:
    """Decode records stored back to back; topics and bodies are not changed.

    Args:
        data: the records.
        broker_name: set on all messages, as are the two offsets.
        tags: if not empty, messages with other tags are omitted.

    Raises:
        BadRecord: a record is invalid or blank.
    """
    messages = [
        _message(record, broker_name, min_offset, max_offset) for record in iter_records(data)
    ]
    return [each for each in messages if each.tags in tags] if tags else messages


def joined_flags(data: bytes) -> int:
    """Return the bitwise OR of sysFlag over all records, without validating them."""
    flags, position, last = 0, 0, len(data) - _SIZE_AND_SYS_FLAG.size
    while position <= last:
        size, sys_flag = _SIZE_AND_SYS_FLAG.unpack_from(data, position)
        flags |= sys_flag
        position += max(size, _SIZE_AND_SYS_FLAG.size)
    return flags


def _message(
    record: Record, broker_name: str, min_offset: int | None, max_offset: int | None
) -> StoredMessage:
    # fmt: off
    return StoredMessage(
        record.topic, bytes(record.body), record.properties_later(), record.flag, record.queue_id,
        record.queue_offset, record.physical_offset, record.sys_flag, record.born_timestamp,
        unpack_host(record.born_host), record.store_timestamp, unpack_host(record.store_host),
        record.reconsume_times, record.prepared_transaction_offset, record.body_crc, record.size,
        record.version, broker_name, min_offset, max_offset,
    )
    # fmt: on
