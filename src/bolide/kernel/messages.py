"""The records of a reply as messages, all at once; `_messages` has the compiled twin."""

import struct
from collections.abc import Collection

from bolide.model.message import StoredMessage
from bolide.protocol.hosts import unpack_host
from bolide.protocol.record import Record, iter_records

_SIZE_AND_SYS_FLAG = struct.Struct(">I32xi")  # how a record begins


def read_messages(
    data: bytes,
    broker_name: str = "",
    min_offset: int | None = None,
    max_offset: int | None = None,
    tags: Collection[str] = (),
) -> list[StoredMessage]:
    """Read records that lie back to back, as stored: topics and bodies are left as they are.

    Args:
        data: the records and nothing else.
        broker_name: as the messages have it, like the two offsets.
        tags: leave out messages with others, if there are any.

    Raises:
        BadRecord: one of the records is not sound, or a blank one is among them.
    """
    messages = [
        _message(record, broker_name, min_offset, max_offset) for record in iter_records(data)
    ]
    return [each for each in messages if each.tags in tags] if tags else messages


def joined_flags(data: bytes) -> int:
    """The bits of sysFlag that any of the records has set, as far as their sizes lead."""
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
