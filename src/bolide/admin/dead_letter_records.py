"""A dead letter as its message describes it, which ones are meant, and the copy to send again."""

from dataclasses import dataclass

from bolide.model.message import Message, StoredMessage
from bolide.model.names import retry_topic
from bolide.model.properties import CAUSE_PROPERTIES, REPLAYED_FROM, RESERVED_NAMES, PropertyName
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.pop_info import normal_topic

_LONGEST_REASON = 200
_OF_THE_FAILURE = frozenset({
    PropertyName.ORIGIN_MESSAGE_ID, PropertyName.DEAD_LETTER_ORIGIN_TOPIC,
    PropertyName.DEAD_LETTER_ORIGIN_MESSAGE_ID, PropertyName.RECONSUME_TIME,
    PropertyName.MAX_RECONSUME_TIMES, PropertyName.CONSUME_START_TIME, PropertyName.RETRY_TOPIC,
    PropertyName.POP_CHECKPOINT, PropertyName.POP_CHECKPOINT_OFFSET, PropertyName.FIRST_POP_TIME,
})  # fmt: skip
"""Of the deliveries that failed: a copy begins anew."""
_OF_THE_FIRST_SEND = frozenset({
    PropertyName.WAIT_STORED, PropertyName.CLUSTER, PropertyName.REGION, PropertyName.TRACE_ON,
    PropertyName.RECORD_CRC, PropertyName.DEDUP_KEY, PropertyName.DELAY_LEVEL,
    PropertyName.TIMER_DELAY_SEC, PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_OUT_MS, PropertyName.TIMER_ENQUEUE_MS, PropertyName.TIMER_DEQUEUE_MS,
    PropertyName.TIMER_ROLL_TIMES, PropertyName.TIMER_DELAY_LEVEL, PropertyName.START_DELIVER_TIME,
    PropertyName.CRON, PropertyName.CRON_ZONE, PropertyName.SERIES_ID, PropertyName.SERIES_TURN,
    PropertyName.TRANSACTION_PREPARED, PropertyName.PRODUCER_GROUP, PropertyName.REAL_TOPIC,
    PropertyName.REAL_QUEUE_ID, PropertyName.TRANSACTION_CHECK_TIMES,
    PropertyName.PREPARED_QUEUE_OFFSET, PropertyName.INNER_COUNT, PropertyName.INNER_BASE,
    PropertyName.MULTI_DISPATCH, PropertyName.MULTI_QUEUE_OFFSET,
})  # fmt: skip
"""A copy must not be delayed, repeated, committed or taken for a duplicate like the original."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group has given up."""

    group: str
    queue: MessageQueue
    queue_offset: int
    message_id: str
    offset_message_id: str
    origin_topic: str | None
    """The topic that it was sent to; None if the message does not tell."""
    origin_message_id: str | None
    """The offset message id of its first copy."""
    keys: tuple[str, ...]
    tags: str | None
    tries: int
    born_ms: int
    died_ms: int
    reason: str
    """The first property of `CAUSE_PROPERTIES` that it has, else the number of tries."""

    @property
    def position(self) -> str:
        return f"{self.queue}@{self.queue_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Some dead letters of a group: all that match, or that died between two times in ms."""

    group: str
    topic: str | None = None
    """Only those that were sent to this topic."""
    key: str | None = None
    message_id: str | None = None
    """A unique id, or an offset message id of the dead letter or of its first copy."""
    begin_ms: int | None = None
    end_ms: int | None = None
    tags: str | None = None
    reason: str | None = None
    """Only those whose reason contains this, in capital letters or not."""
    text: str | None = None
    """Only those whose body, keys or properties of the user contain this, in capitals or not."""
    positions: frozenset[str] | None = None
    """Only those at one of these positions (`DeadLetter.position`)."""

    def matches(self, letter: DeadLetter) -> bool:
        """Whether all but the text fit."""
        ids = {letter.message_id, letter.offset_message_id, letter.origin_message_id}
        return (
            self.topic in {None, letter.origin_topic}
            and (self.key is None or self.key in letter.keys)
            and (self.message_id is None or self.message_id in ids)
            and self.tags in {None, letter.tags}
            and (self.reason is None or self.reason.lower() in letter.reason.lower())
            and (self.positions is None or letter.position in self.positions)
        )

    def matches_text(self, message: StoredMessage) -> bool:
        if self.text is None:
            return True
        wanted = self.text.lower()
        values = (
            value.lower()
            for name, value in message.properties.items()
            if name == PropertyName.KEYS or name not in RESERVED_NAMES  # ids match by accident
        )
        body = message.body.decode(errors="replace").lower()
        return wanted in body or any(wanted in value for value in values)

    def offsets_in(self, queue: MessageQueue) -> list[int] | None:
        """The offsets of the positions in a queue, sorted; None if any offset may fit."""
        if self.positions is None:
            return None
        found = (each.rpartition("@") for each in self.positions)
        return sorted(int(at) for of, _, at in found if of == str(queue) and at.isdecimal())


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of a topic of dead letters that is read; dead letters that come later are not."""

    spans: dict[MessageQueue, tuple[int, int]]

    @property
    def messages(self) -> int:
        return sum(max(end - begin, 0) for begin, end in self.spans.values())


def dead_letter(group: str, queue: MessageQueue, message: StoredMessage) -> DeadLetter:
    """What a message of a topic of dead letters says of itself."""
    properties = message.properties
    origin = properties.get(PropertyName.DEAD_LETTER_ORIGIN_TOPIC) or properties.get(
        PropertyName.RETRY_TOPIC
    )
    return DeadLetter(
        group=group,
        queue=queue,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        origin_topic=origin and normal_topic(origin, group),
        origin_message_id=properties.get(PropertyName.DEAD_LETTER_ORIGIN_MESSAGE_ID)
        or properties.get(PropertyName.ORIGIN_MESSAGE_ID),
        keys=message.keys,
        tags=message.tags,
        tries=message.reconsume_times,
        born_ms=message.born_timestamp,
        died_ms=message.store_timestamp,
        reason=_reason(message),
    )


def copy_of(message: StoredMessage, letter: DeadLetter, target: str) -> Message:
    """The message to send again, with its properties but those of its failed deliveries."""
    left_out = _OF_THE_FAILURE | _OF_THE_FIRST_SEND
    kept = {name: value for name, value in message.properties.items() if name not in left_out}
    if target == retry_topic(letter.group) and letter.origin_topic is not None:
        kept[PropertyName.RETRY_TOPIC] = letter.origin_topic  # under which consumers get it
    kept[REPLAYED_FROM] = letter.position
    kept.setdefault(PropertyName.UNIQUE_ID, letter.message_id)  # by which the copy is found
    return Message.unchecked(target, message.body, kept, message.flag)


def _reason(message: StoredMessage) -> str:
    for name in CAUSE_PROPERTIES:
        if text := message.properties.get(name):
            return text[:_LONGEST_REASON]
    tries = message.reconsume_times
    return "given up at the first try" if tries <= 1 else f"given up after {tries} tries"
