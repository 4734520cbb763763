"""Half messages and what becomes of them, as values: no store, no clock.

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC and says by its properties where it belongs. When
its producer is asked, and when it has to make room, it is put there once more; the copy says by
TRAN_PREPARED_QUEUE_OFFSET which was the first one. An op message names the halves that are done
with: ended, moved or set aside. One for each, which RocketMQ of every version can read.
"""

from dataclasses import dataclass
from functools import cached_property

from bolide.kernel import read_record
from bolide.model.message import TransactionType, transaction_type, with_transaction_type
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Place, Record, RecordDraft, encode_record, place_record
from bolide.protocol.record_errors import BadRecord
from bolide.store.appending import Appended

OP_TAG = "d"
OP_SEPARATOR = ","
STATE = "BOLIDE_STATE"
ORIGIN = "BOLIDE_ORIGIN"
RESOLVED_BY = "BOLIDE_RESOLVED_BY"
"""What our op messages say beyond RocketMQ's: how it ended, the first half, who did it."""

_MOST_DIGITS = 18


@dataclass(frozen=True)
class Half:
    """A half message as it lies in its queue, or set aside in the topic of those given up."""

    record: Record

    @classmethod
    def find(cls, data: bytes | memoryview | None) -> "Half | None":
        """What a record says of a transaction; None if it is damaged or something else."""
        if data is None:
            return None
        try:
            record = read_record(bytes(data))
        except BadRecord:
            return None
        if not isinstance(record, Record):
            return None
        return cls(record) if record.topic in (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC) else None

    @property
    def is_aside(self) -> bool:
        return self.record.topic == TRANS_CHECK_MAX_TIME_TOPIC

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @cached_property
    def properties(self) -> dict[str, str]:
        return self.record.decode_properties()

    @property
    def group(self) -> str:
        return self.properties.get(PropertyName.PRODUCER_GROUP, "")

    @property
    def topic(self) -> str:
        return self.properties.get(PropertyName.REAL_TOPIC, "")

    @property
    def queue_id(self) -> int:
        return _number(self.properties.get(PropertyName.REAL_QUEUE_ID)) or 0

    @property
    def unique_id(self) -> str:
        return self.properties.get(PropertyName.UNIQUE_ID, "")

    @property
    def times(self) -> int:
        """How often its producer was asked."""
        return _number(self.properties.get(PropertyName.TRANSACTION_CHECK_TIMES)) or 0

    @property
    def origin(self) -> int | None:
        """Number of the first half of this transaction; None for one that RocketMQ set aside."""
        origin = _number(self.properties.get(PropertyName.PREPARED_QUEUE_OFFSET))
        if origin is None and not self.is_aside:
            return self.queue_offset
        return origin

    @property
    def began(self) -> float:
        """When the transaction began, in seconds; the producer's clock counts if we were not there
        at the time."""
        record = self.record
        is_first = self.origin == self.queue_offset and not self.is_aside
        stored = record.store_timestamp
        return (stored if is_first else min(record.born_timestamp, stored)) / 1000

    @cached_property
    def immunity(self) -> float | None:
        """Seconds in which its producer is not asked, if the message says so itself."""
        seconds = _number(self.properties.get(PropertyName.CHECK_IMMUNITY_SECONDS))
        return None if seconds is None else float(seconds)

    def moved(self, store_host: bytes, *, times: int) -> RecordDraft:
        """As it lies in its queue once more."""
        return self._copy(HALF_TOPIC, store_host, times)

    def set_aside(self, store_host: bytes, *, as_it_is: bool = False) -> RecordDraft:
        """As it lies aside; with no word more than it has, if there is no room for more."""
        topic = TRANS_CHECK_MAX_TIME_TOPIC
        if not as_it_is:
            return self._copy(topic, store_host, self.times)
        properties, flags = bytes(self.record.properties), self.record.sys_flag
        return self._draft(topic, 0, properties, store_host, sys_flag=flags)

    def committed(self, store_host: bytes, queue_id: int) -> RecordDraft:
        """As it goes where it belongs; all properties stay, as in RocketMQ."""
        record = self.record
        return self._draft(
            self.topic,
            queue_id,
            bytes(record.properties),
            store_host,
            sys_flag=with_transaction_type(record.sys_flag, TransactionType.COMMIT),
        )._replace(prepared_transaction_offset=record.physical_offset)

    def copied(self, draft: RecordDraft, place: Appended) -> "Half":
        """The copy of it that was stored at a place."""
        return Half(
            self.record._replace(
                topic=draft.topic.decode(),
                properties=memoryview(draft.properties),
                queue_id=draft.queue_id,
                queue_offset=place.queue_offset,
                physical_offset=place.physical_offset,
                store_timestamp=place.store_timestamp,
                store_host=draft.store_host,
            )
        )

    def shown(self) -> bytes:
        """The record that its producer gets when it is asked."""
        record = self.record
        properties, flags = bytes(record.properties), record.sys_flag
        draft = self._draft(
            self.topic, self.queue_id, properties, record.store_host, sys_flag=flags
        )
        shown = encode_record(draft, max_body_size=len(record.body))
        place = Place(record.queue_offset, record.physical_offset, record.store_timestamp)
        place_record(shown, 0, place)
        return bytes(shown)

    def _copy(self, topic: str, store_host: bytes, times: int) -> RecordDraft:
        properties = dict(self.properties)
        if times or PropertyName.TRANSACTION_CHECK_TIMES in properties:
            properties[PropertyName.TRANSACTION_CHECK_TIMES] = str(times)
        if self.origin is not None:
            properties[PropertyName.PREPARED_QUEUE_OFFSET] = str(self.origin)
        text = encode_properties(properties).encode()
        return self._draft(topic, 0, text, store_host, sys_flag=self.record.sys_flag)

    def _draft(
        self, topic: str, queue_id: int, properties: bytes, store_host: bytes, *, sys_flag: int
    ) -> RecordDraft:
        record = self.record
        return RecordDraft(
            topic.encode(), record.body, properties, queue_id, record.born_timestamp,
            record.born_host, store_host, record.flag, sys_flag, record.reconsume_times,
        )  # fmt: skip


def half_draft(draft: RecordDraft, properties: dict[str, str], group: str) -> RecordDraft:
    """A message that was sent in a transaction, as it waits for the end of that."""
    kept = dict(properties)
    if unique_id := properties.get(PropertyName.UNIQUE_ID):
        kept[PropertyName.TRANSACTION_ID] = unique_id
    kept.setdefault(PropertyName.PRODUCER_GROUP, group)
    kept.pop(PropertyName.PREPARED_QUEUE_OFFSET, None)
    kept.pop(PropertyName.TRANSACTION_CHECK_TIMES, None)
    kept[PropertyName.REAL_TOPIC] = draft.topic.decode()
    kept[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    return draft._replace(
        topic=HALF_TOPIC.encode(),
        queue_id=0,
        sys_flag=with_transaction_type(draft.sys_flag, TransactionType.NONE),
        properties=encode_properties(kept).encode(),
    )


def op_draft(
    half: Half, state: TransactionType, store_host: bytes, now: float, *, by: str = ""
) -> RecordDraft:
    """The op message of one half; NONE says that it was moved."""
    properties = {PropertyName.TAGS: OP_TAG, STATE: str(int(state)), ORIGIN: str(half.origin)}
    if by:
        properties[RESOLVED_BY] = by
    return RecordDraft(
        OP_HALF_TOPIC.encode(),
        str(half.queue_offset).encode(),
        encode_properties(properties).encode(),
        0,
        int(now * 1000),
        store_host,
        store_host,
    )


@dataclass(frozen=True, slots=True)
class Op:
    """What an op message says."""

    named: tuple[int, ...]
    """The halves that are done with."""
    origin: int | None = None
    state: TransactionType = TransactionType.NONE
    """How the transaction ended, if it did and one of ours says so."""

    @classmethod
    def read(cls, record: Record) -> "Op":
        properties = record.decode_properties()
        if properties.get(PropertyName.TAGS) != OP_TAG:
            return cls(())
        texts = str(record.body, "ascii", "replace").split(OP_SEPARATOR)
        named = tuple(offset for text in texts if (offset := _number(text)) is not None)
        state = transaction_type(_number(properties.get(STATE)) or 0)
        return cls(named, _number(properties.get(ORIGIN)), state)


def _number(text: str | None) -> int | None:
    """What is no plain number counts as not said."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    return int(text)
