"""Messages as they come from a broker, made ready for their readers."""

import logging
import time

from bolide.client.namespace import unwrap
from bolide.model.message import Host, StoredMessage, SysFlag, without_compression
from bolide.model.names import RETRY_PREFIX
from bolide.model.properties import PropertyName
from bolide.protocol.compression import BadCompressedBody, CodecMissing, decompress
from bolide.protocol.headers.send import PushReplyHeader
from bolide.protocol.hosts import unpack_host
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import Record, iter_records
from bolide.remoting.address import split_address

log = logging.getLogger(__name__)

_COMPRESSED = int(SysFlag.COMPRESSED)
_EXPIRES_AT = PropertyName.EXPIRES_AT.encode()


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


def without_expired(messages: list[StoredMessage], body: bytes) -> list[StoredMessage]:
    """Those of a reply whose time is not over: brokers of Apache hand out all."""
    if _EXPIRES_AT not in body:  # of nearly all replies no message expires
        return messages
    now = time.time()
    return [each for each in messages if each.expires_at is None or each.expires_at > now]


def read_reply(header: PushReplyHeader, body: bytes, now: float) -> StoredMessage:
    """A reply as a broker pushes it; it may be stored, but nobody says where."""
    properties = decode_properties(header.properties)
    properties[PropertyName.ARRIVE_TIME] = str(int(now * 1000))
    sys_flag, place = header.sys_flag, f"{header.topic}, a reply"
    if sys_flag & _COMPRESSED:
        body, sys_flag = _inflated(body, sys_flag, place)
    return StoredMessage(
        header.topic,
        body,
        properties,
        flag=header.flag,
        queue_id=header.queue_id,
        queue_offset=-1,
        physical_offset=-1,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times,
    )


def _host(address: str) -> Host:
    try:
        return Host(*split_address(address))
    except ValueError:
        return Host("0.0.0.0", 0)  # noqa: S104  nobody listens there: it says that none is known


def _message(
    record: Record,
    topic: str,
    broker_name: str,
    min_offset: int | None = None,
    max_offset: int | None = None,
) -> StoredMessage:
    body, sys_flag = bytes(record.body), record.sys_flag
    if sys_flag & _COMPRESSED:
        place = f"{record.topic} queue {record.queue_id} at {record.queue_offset}"
        body, sys_flag = _inflated(body, sys_flag, place)
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


def _inflated(body: bytes, sys_flag: int, place: str) -> tuple[bytes, int]:
    try:
        return decompress(body, sys_flag), without_compression(sys_flag)
    except (BadCompressedBody, CodecMissing) as exc:
        log.warning("the message of %s stays compressed: %s", place, exc)
        return body, sys_flag
