"""The records of a park topic: what was set aside, and what became of it.

A group has one park topic, `%PARK%<group>`, on every broker with queues it consumes. All records
about a source queue lie in one of its queues, on the same broker, so their order is that of their
offsets ("places" below). Each is a message whose property BOLIDE_PARK holds a `ParkRecord` as JSON;
one that is too long for a property is the first line of the body, and the property is "+":

- OPEN begins a tenure: whoever got the lock of the source queue writes it, and only then reads what
  there is. Records of other epochs behind it, but for RESUME, are those of somebody who lost the
  lock without knowing yet: they count for nothing.
- PARK sets a message aside; its body is the message's, and `origin` the rest of it. The first one
  of a key parks the key. The same message may be there twice, by its offset in the source queue.
- RESUME lets a key go on: what was set aside is handled, in order, before anything new of the key.
  An administrator writes it. What lies at or before `offset` becomes dead letters instead.
- DONE says that what was set aside up to `offset` is no more.
- BLOCK says that the key failed once more while it was resumed: it is parked again.
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
"""Queues of a park topic on each broker; the number is for ever, or records would not be found."""

_LONGEST_ERROR = 500
_LONGEST_PROPERTY = 12_000
"""Bytes; all properties of a message have 32,767, and the key may stand in two of them."""
_IN_BODY = "+"
_PRODUCER = "CLIENT_INNER_PRODUCER"


class Kind(StrEnum):
    """What a record says."""

    OPEN = "open"
    PARK = "park"
    RESUME = "resume"
    DONE = "done"
    BLOCK = "block"


class Origin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a message was beside its body and flag; times in milliseconds."""

    properties: str
    physical_offset: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]


class ParkRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One record; `topic` and `queue_id` are the source queue, `offset` is one of its offsets."""

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
        """Properties and body of the message that carries it; the key can be searched for."""
        said = msgspec.json.encode(self)
        is_short = len(said) <= _LONGEST_PROPERTY
        properties = {PropertyName.KEYS: self.key} if self.key and is_short else {}
        if is_short and (body or self.origin is None):
            body = body or self.kind.encode()  # brokers want one
            return properties | {PropertyName.PARK: said.decode()}, body
        return properties | {PropertyName.PARK: _IN_BODY}, said + b"\n" + body


def read_record(message: StoredMessage) -> ParkRecord | None:
    """None if it is no such record: anybody may send to the topic."""
    said: str | bytes = message.properties.get(PropertyName.PARK, "")
    if said == _IN_BODY:
        said = message.body.partition(b"\n")[0]
    try:
        return msgspec.json.decode(said, type=ParkRecord)
    except msgspec.MsgspecError:
        return None


def body_of(carrier: StoredMessage) -> bytes:
    """The body of the message that was set aside."""
    if carrier.properties.get(PropertyName.PARK) != _IN_BODY:
        return carrier.body
    return carrier.body.partition(b"\n")[2]


def park_queue(group: str, source: MessageQueue) -> MessageQueue:
    """Where the records about a source queue lie."""
    return MessageQueue(park_topic(group), source.broker_name, source.queue_id % PARK_QUEUES)


def send_header(
    properties: dict[str, str], queue: MessageQueue, *, sys_flag: int = 0, flag: int = 0
) -> SendHeader:
    """By which the carrier of a record is written to its park queue."""
    return SendHeader(
        producer_group=_PRODUCER,
        topic=queue.topic,
        default_topic="",  # a topic made after another one would have too few queues
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
    """Short enough to stand in a property."""
    text = f"{type(error).__name__}: {_said(error)}" if error is not None else "unknown"
    return text[:_LONGEST_ERROR].encode(errors="replace").decode()


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  the error is the user's
        return "it does not say why"


def restored(record: ParkRecord, carrier: StoredMessage, topic: str) -> StoredMessage:
    """The message that a PARK record set aside, as it was when it was pulled.

    Args:
        record: the record.
        carrier: the message that carries it.
        topic: of the source queue, as users call it.

    Raises:
        ValueError: it is no record of a message.
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
