"""Messages as they come from a broker, made ready for their readers."""

import logging

from bolide.client.namespace import unwrap
from bolide.model.message import StoredMessage, SysFlag, without_compression
from bolide.model.names import RETRY_PREFIX
from bolide.model.properties import PropertyName
from bolide.protocol.compression import BadCompressedBody, CodecMissing, decompress
from bolide.protocol.hosts import unpack_host
from bolide.protocol.record import Record, iter_records

log = logging.getLogger(__name__)

_COMPRESSED = int(SysFlag.COMPRESSED)


def read_messages(
    body: bytes,
    broker_name: str,
    *,
    min_offset: int | None = None,
    max_offset: int | None = None,
    namespace: str = "",
) -> list[StoredMessage]:
    """Read the records of a reply: bodies plain, topics as their senders called them.

    A body that does not inflate is left as it is, with a warning: it must not hold up its queue.

    Raises:
        BadRecord: the bytes are no records.
    """
    return [
        _message(record, _topic(record, namespace), broker_name, min_offset, max_offset)
        for record in iter_records(body)
    ]


def read_stored(body: bytes, broker_name: str = "") -> list[StoredMessage]:
    """The same, but topics as the broker calls them, those of retries too."""
    return [_message(record, record.topic, broker_name) for record in iter_records(body)]


def _message(
    record: Record,
    topic: str,
    broker_name: str,
    min_offset: int | None = None,
    max_offset: int | None = None,
) -> StoredMessage:
    body, sys_flag = bytes(record.body), record.sys_flag
    if sys_flag & _COMPRESSED:
        body, sys_flag = _inflated(record, body)
    # fmt: off
    return StoredMessage(
        topic, body, record.properties_later(), record.flag, record.queue_id,
        record.queue_offset, record.physical_offset, sys_flag, record.born_timestamp,
        unpack_host(record.born_host), record.store_timestamp, unpack_host(record.store_host),
        record.reconsume_times, record.prepared_transaction_offset, record.body_crc, record.size,
        record.version, broker_name, min_offset, max_offset,
    )
    # fmt: on


def _topic(record: Record, namespace: str) -> str:
    topic = record.topic
    if topic.startswith(RETRY_PREFIX):
        topic = record.decode_properties().get(PropertyName.RETRY_TOPIC, topic)
    return unwrap(namespace, topic) if namespace else topic


def _inflated(record: Record, body: bytes) -> tuple[bytes, int]:
    try:
        return decompress(body, record.sys_flag), without_compression(record.sys_flag)
    except (BadCompressedBody, CodecMissing) as exc:
        place = f"{record.topic} queue {record.queue_id} at {record.queue_offset}"
        log.warning("the message of %s stays compressed: %s", place, exc)
        return body, record.sys_flag
