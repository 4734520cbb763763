"""Inner batches: records whose body is a batch of messages (`MessageDecoder.decodeMessage`).

Topics with `queue.type=BatchCQ` have them. Such a record has the sysFlag bits INNER_BATCH and
NEEDS_UNWRAP; its property INNER_NUM says how many messages are in its body, INNER_BASE the queue
offset of the first. The body has the format of `batch` and may be compressed as a whole.
"""

from collections.abc import Iterator
from itertools import islice

from bolide.model.message import SysFlag
from bolide.protocol.batch import BadBatch, BatchItem, iter_batch
from bolide.protocol.compression import BadCompressedBody, CodecMissing, decompress
from bolide.protocol.record import (
    Placement,
    Record,
    RecordDraft,
    body_crc,
    encode_record,
    iter_records,
    place_record,
)

INNER_FLAGS = int(SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP)
"""A record with both bits is unwrapped by whoever consumes it."""

_OF_THE_RECORD = int(
    SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP | SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE
)


def is_wrapped(sys_flag: int) -> bool:
    """Whether the body of a record is to be read as a batch."""
    return sys_flag & INNER_FLAGS == INNER_FLAGS


def count_items(body: bytes, most: int) -> int:
    """Return the number of messages in the body of a batch, or `most` + 1. Raises BadBatch."""
    return sum(1 for _ in islice(iter_batch(body), most + 1))


def unwrap(record: Record) -> list[Record]:
    """Return the messages of an inner batch, as records with their own queue offsets.

    They have the position, times and hosts of the record. Any other record is returned as it is,
    and so is one whose body cannot be read: its queue must not be blocked.
    """
    if not is_wrapped(record.sys_flag):
        return [record]
    try:
        items = list(iter_batch(decompress(record.body, record.sys_flag)))
    except (BadBatch, BadCompressedBody, CodecMissing):
        return [record]
    return [_message(record, number, item) for number, item in enumerate(items)]


def _message(record: Record, number: int, item: BatchItem) -> Record:
    inside = len(item.body) + len(item.properties)
    return record._replace(
        size=record.size - len(record.body) - len(record.properties) + inside,
        body_crc=body_crc(item.body),
        flag=item.flag,
        queue_offset=record.queue_offset + number,
        sys_flag=record.sys_flag & ~_OF_THE_RECORD,
        body=item.body,
        properties=item.properties,
    )


def unwrap_records(data: bytes, first_offset: int = 0) -> bytes:
    """Encode contiguous records again, with each message of an inner batch as a record.

    No record of the result has the flags of inner batches.

    Args:
        data: the records.
        first_offset: queue offset below which messages of inner batches are left out.

    Raises:
        BadRecord: a record is not sound, or is a blank.
    """
    return b"".join(_encoded(data, first_offset))


def _encoded(data: bytes, first_offset: int) -> Iterator[bytes | bytearray]:
    position = 0
    for record in iter_records(data):
        if is_wrapped(record.sys_flag):
            for message in unwrap(record):
                if message is record:  # it cannot be read, and must not be tried again
                    yield encode(record._replace(sys_flag=record.sys_flag & ~INNER_FLAGS))
                elif message.queue_offset >= first_offset:
                    yield encode(message)
        else:
            yield data[position : position + record.size]
        position += record.size


def encode(record: Record) -> bytearray:
    """Encode a record; its size and checksum are computed."""
    draft = RecordDraft(
        record.topic.encode(), record.body, record.properties, record.queue_id,
        record.born_timestamp, record.born_host, record.store_host, record.flag, record.sys_flag,
        record.reconsume_times, record.prepared_transaction_offset,
    )  # fmt: skip
    found = encode_record(draft, len(record.body))
    place = Placement(record.queue_offset, record.physical_offset, record.store_timestamp)
    place_record(found, 0, place)
    return found
