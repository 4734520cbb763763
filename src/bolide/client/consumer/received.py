"""Decoding of messages received from brokers: decompression, namespaces, retry topics, expiry."""

import logging
import time
from collections.abc import Collection

from msgspec import structs

from bolide import kernel
from bolide.client.instance.settings import unwrap
from bolide.model.message import Host, StoredMessage, SysFlag, without_compression
from bolide.model.names import RETRY_PREFIX
from bolide.model.properties import PropertyName
from bolide.protocol.compression import BadCompressedBody, CodecMissing, decompress
from bolide.protocol.headers.send import PushReplyHeader
from bolide.protocol.inner_batch import unwrap_records
from bolide.protocol.property_string import decode_properties
from bolide.remoting.address import split_address

log = logging.getLogger(__name__)

_COMPRESSED = int(SysFlag.COMPRESSED)
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_EXPIRES_AT = PropertyName.EXPIRES_AT.encode()


def read_messages(  # noqa: PLR0913  what a reply says of its messages, and what is wanted
    body: bytes,
    broker_name: str,
    *,
    min_offset: int | None = None,
    max_offset: int | None = None,
    namespace: str = "",
    tags: Collection[str] = (),
    first_offset: int = 0,
) -> list[StoredMessage]:
    """Read the records of a reply, with decompressed bodies and the topics used by senders.

    The messages of an inner batch are single messages here.

    A body that cannot be decompressed is kept as it is, with a warning, so as not to block its
    queue.

    Args:
        tags: if not empty, leave out messages with other tags.
        first_offset: leave out messages of an inner batch below this queue offset.

    Raises:
        BadRecord: the bytes are not records.
    """
    flags = kernel.joined_flags(body)
    if flags & _INNER_BATCH:
        body = unwrap_records(body, first_offset)
    messages = _plain(kernel.read_messages(body, broker_name, min_offset, max_offset, tags), flags)
    topics = {message.topic for message in messages}
    if namespace or any(topic.startswith(RETRY_PREFIX) for topic in topics):
        messages = [_with_sent_topic(message, namespace) for message in messages]
    return messages


def read_stored(body: bytes, broker_name: str = "") -> list[StoredMessage]:
    """Like `read_messages`, but with the topics of the broker, including retry topics."""
    flags = kernel.joined_flags(body)
    if flags & _INNER_BATCH:
        body = unwrap_records(body)
    return _plain(kernel.read_messages(body, broker_name), flags)


def without_expired(messages: list[StoredMessage], body: bytes) -> list[StoredMessage]:
    """Leave out expired messages, which RocketMQ's own brokers deliver."""
    if _EXPIRES_AT not in body:  # the common case: no message of the reply expires
        return messages
    now = time.time()
    return [each for each in messages if each.expires_at is None or each.expires_at > now]


def read_reply(header: PushReplyHeader, body: bytes, now: float) -> StoredMessage:
    """Read a reply that a broker pushes; its offsets are unknown."""
    properties = decode_properties(header.properties)
    properties[PropertyName.ARRIVE_TIME] = str(int(now * 1000))
    sys_flag, description = header.sys_flag, f"{header.topic}, a reply"
    if sys_flag & _COMPRESSED:
        body, sys_flag = _decompressed(body, sys_flag, description)
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
        return Host("0.0.0.0", 0)  # noqa: S104  stands for an unknown host, never bound


def _with_sent_topic(message: StoredMessage, namespace: str) -> StoredMessage:
    topic = message.topic
    if topic.startswith(RETRY_PREFIX):
        topic = message.properties.get(PropertyName.RETRY_TOPIC, topic)
    topic = unwrap(namespace, topic) if namespace else topic
    return message if topic == message.topic else structs.replace(message, topic=topic)


def _plain(messages: list[StoredMessage], flags: int) -> list[StoredMessage]:
    """The messages of a reply with decompressed bodies; `flags` joins the sysFlag of all."""
    return list(map(_decompress, messages)) if flags & _COMPRESSED else messages


def _decompress(message: StoredMessage) -> StoredMessage:
    if not message.sys_flag & _COMPRESSED:
        return message
    description = f"{message.topic} queue {message.queue_id} at {message.queue_offset}"
    body, sys_flag = _decompressed(message.body, message.sys_flag, description)
    return structs.replace(message, body=body, sys_flag=sys_flag)


def _decompressed(body: bytes, sys_flag: int, description: str) -> tuple[bytes, int]:
    try:
        return decompress(body, sys_flag), without_compression(sys_flag)
    except (BadCompressedBody, CodecMissing) as exc:
        log.warning("the message of %s stays compressed: %s", description, exc)
        return body, sys_flag
