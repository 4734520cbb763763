"""Messages as they come from a broker, made ready for their readers."""

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
from bolide.protocol.property_string import decode_properties
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
    tags: Collection[str] = (),
) -> list[StoredMessage]:
    """Read the records of a reply: bodies plain, topics as their senders called them.

    A body that does not inflate is left as it is, with a warning: it must not hold up its queue.

    Args:
        tags: leave out messages with others, if there are any.

    Raises:
        BadRecord: the bytes are no records.
    """
    found = _plain(kernel.read_messages(body, broker_name, min_offset, max_offset, tags), body)
    topics = {message.topic for message in found}
    if namespace or any(topic.startswith(RETRY_PREFIX) for topic in topics):
        found = [_as_sent(message, namespace) for message in found]
    return found


def read_stored(body: bytes, broker_name: str = "") -> list[StoredMessage]:
    """The same, but topics as the broker calls them, those of retries too."""
    return _plain(kernel.read_messages(body, broker_name), body)


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


def _as_sent(message: StoredMessage, namespace: str) -> StoredMessage:
    topic = message.topic
    if topic.startswith(RETRY_PREFIX):
        topic = message.properties.get(PropertyName.RETRY_TOPIC, topic)
    topic = unwrap(namespace, topic) if namespace else topic
    return message if topic == message.topic else structs.replace(message, topic=topic)


def _plain(messages: list[StoredMessage], body: bytes) -> list[StoredMessage]:
    """The messages of a reply with their bodies inflated."""
    return list(map(_inflate, messages)) if kernel.joined_flags(body) & _COMPRESSED else messages


def _inflate(message: StoredMessage) -> StoredMessage:
    if not message.sys_flag & _COMPRESSED:
        return message
    place = f"{message.topic} queue {message.queue_id} at {message.queue_offset}"
    body, sys_flag = _inflated(message.body, message.sys_flag, place)
    return structs.replace(message, body=body, sys_flag=sys_flag)


def _inflated(body: bytes, sys_flag: int, place: str) -> tuple[bytes, int]:
    try:
        return decompress(body, sys_flag), without_compression(sys_flag)
    except (BadCompressedBody, CodecMissing) as exc:
        log.warning("the message of %s stays compressed: %s", place, exc)
        return body, sys_flag
