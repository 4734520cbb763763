"""The records of a park topic.

A group has one park topic, `%PARK%<group>`, on every broker whose queues it consumes. All records
about a source queue are in one queue of the park topic on the same broker, so their offsets (park
offsets) order them. Each record is a message whose property BOLIDE_PARK holds a `ParkRecord` as
JSON; a record too long for a property is the first line of the body, and the property is "+":

- OPEN begins an epoch: the member that acquired the lock of the source queue writes it before it
  reads the existing records. Later records of other epochs, except RESUME, come from a member that
  lost the lock without noticing, and are ignored (fencing).
- PARK parks a message; its body is the message's body, `origin` the rest of the message. The first
  PARK record of a key parks the key. The same message, identified by its offset in the source
  queue, may be parked twice.
- RESUME, written by an administrator, resumes a key: its parked messages are handled in order
  before new ones. Messages at or before `offset` become dead letters instead.
- DONE removes the parked messages up to `offset`.
- BLOCK parks the key again after a failure while it resumed.
"""

import time
from enum import StrEnum

import msgspec

from bolide.model.message import Host, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import park_topic
from bolide.model.properties import PropertyName
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.property_string import decode_properties, encode_properties

PARK_QUEUES = 16
"""Queues of a park topic on each broker; must never change, or records would not be found."""

_MAX_ERROR_LENGTH = 500
_MAX_PROPERTY_LENGTH = 12_000
"""Bytes; all properties together may have 32,767, and the key may occur in two of them."""
_IN_BODY = "+"
_PRODUCER = "CLIENT_INNER_PRODUCER"


class Kind(StrEnum):
    OPEN = "open"
    PARK = "park"
    RESUME = "resume"
    DONE = "done"
    BLOCK = "block"


class Origin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The attributes of a parked message except body and flag; times in milliseconds."""

    properties: str
    physical_offset: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]


class ParkRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One record; `topic`, `queue_id` and `offset` refer to the source queue."""

    kind: Kind
    topic: str
    queue_id: int
    epoch: str = ""
    key: str = ""
    offset: int = -1
    error: str = ""
    since_ms: int = 0
    origin: Origin | None = None

    def carried(self, body: bytes = b"") -> tuple[dict[str, str], bytes]:
        """Properties and body of the carrier message; it is indexed by the key."""
        encoded = msgspec.json.encode(self)
        is_short = len(encoded) <= _MAX_PROPERTY_LENGTH
        properties = {PropertyName.KEYS: self.key} if self.key and is_short else {}
        if is_short and (body or self.origin is None):
            body = body or self.kind.encode()  # brokers reject empty bodies
            return properties | {PropertyName.PARK: encoded.decode()}, body
        return properties | {PropertyName.PARK: _IN_BODY}, encoded + b"\n" + body


def read_record(message: StoredMessage) -> ParkRecord | None:
    """The record a message carries, or None: the topic may contain other messages."""
    encoded: str | bytes = message.properties.get(PropertyName.PARK, "")
    if encoded == _IN_BODY:
        encoded = message.body.partition(b"\n")[0]
    try:
        return msgspec.json.decode(encoded, type=ParkRecord)
    except msgspec.MsgspecError:
        return None


def body_of(carrier: StoredMessage) -> bytes:
    """The body of the parked message."""
    if carrier.properties.get(PropertyName.PARK) != _IN_BODY:
        return carrier.body
    return carrier.body.partition(b"\n")[2]


def park_queue(group: str, source: MessageQueue) -> MessageQueue:
    """The queue of the park topic that holds the records about a source queue."""
    return MessageQueue(park_topic(group), source.broker_name, source.queue_id % PARK_QUEUES)


def send_header(
    properties: dict[str, str], queue: MessageQueue, *, sys_flag: int = 0, flag: int = 0
) -> SendHeader:
    """The header that sends the carrier of a record to its park queue."""
    return SendHeader(
        producer_group=_PRODUCER,
        topic=queue.topic,
        default_topic="",  # a topic created from a default would have too few queues
        default_topic_queue_nums=PARK_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=int(time.time() * 1000),
        flag=flag,
        properties=encode_properties(properties),
    )


def origin_of(message: StoredMessage) -> Origin:
    return Origin(
        properties=encode_properties(message.properties),
        physical_offset=message.physical_offset,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_timestamp=message.store_timestamp,
        store_host=message.store_host,
    )


def error_text(error: BaseException | None) -> str:
    """Describe an error, truncated to fit into a property."""
    text = f"{type(error).__name__}: {_text_of(error)}" if error is not None else "unknown"
    return text[:_MAX_ERROR_LENGTH].encode(errors="replace").decode()


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  the exception class is user code
        return "no text"


def restored(record: ParkRecord, carrier: StoredMessage, topic: str) -> StoredMessage:
    """Rebuild the parked message as it was pulled.

    Args:
        record: a PARK record.
        carrier: the message that carries the record.
        topic: the topic of the source queue without namespace.

    Raises:
        ValueError: the record holds no message.
    """
    origin = record.origin
    if record.kind is not Kind.PARK or origin is None:
        raise ValueError(f"{record.kind} at {carrier.queue_offset} holds no message")
    return StoredMessage(
        topic,
        body_of(carrier),
        decode_properties(origin.properties),
        flag=carrier.flag,
        queue_id=record.queue_id,
        queue_offset=record.offset,
        physical_offset=origin.physical_offset,
        born_timestamp=origin.born_timestamp,
        born_host=Host(*origin.born_host),
        store_timestamp=origin.store_timestamp,
        store_host=Host(*origin.store_host),
        broker_name=carrier.broker_name,
    )
