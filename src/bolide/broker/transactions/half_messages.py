"""Half messages and op messages as values: no store, no clock.

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC; its properties name its real topic and queue. When
its producer is asked, or when it must be moved, a copy is appended there; property
TRAN_PREPARED_QUEUE_OFFSET of the copy refers to the first half. An op message names halves that are
closed: ended, moved or set aside. Bolide writes one op message per half, which every version of
RocketMQ can read.
"""

from dataclasses import dataclass
from functools import cached_property

from bolide.kernel import read_record
from bolide.model.message import TransactionType, transaction_type, with_transaction_type
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.model.properties import PropertyName, parse_number
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Placement, Record, RecordDraft, encode_record, place_record
from bolide.protocol.record_errors import BadRecord
from bolide.store.appending import Appended

OP_TAG = "d"
OP_SEPARATOR = ","
STATE = "BOLIDE_STATE"
ORIGIN = "BOLIDE_ORIGIN"
RESOLVED_BY = "BOLIDE_RESOLVED_BY"
"""Properties of our op messages beyond those of RocketMQ: outcome, first half, administrator."""


@dataclass(frozen=True)
class Half:
    """A half message in its queue, or set aside in TRANS_CHECK_MAX_TIME_TOPIC."""

    record: Record

    @classmethod
    def find(cls, data: bytes | memoryview | None) -> "Half | None":
        """Parse a record; None if it is damaged or no half message."""
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
    def is_set_aside(self) -> bool:
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
        return parse_number(self.properties.get(PropertyName.REAL_QUEUE_ID)) or 0

    @property
    def unique_id(self) -> str:
        return self.properties.get(PropertyName.UNIQUE_ID, "")

    @property
    def check_times(self) -> int:
        """How often the producer was asked."""
        return parse_number(self.properties.get(PropertyName.TRANSACTION_CHECK_TIMES)) or 0

    @property
    def origin(self) -> int | None:
        """Queue offset of the first half of this transaction; None for one set aside by
        RocketMQ."""
        origin = parse_number(self.properties.get(PropertyName.PREPARED_QUEUE_OFFSET))
        if origin is None and not self.is_set_aside:
            return self.queue_offset
        return origin

    @property
    def began(self) -> float:
        """When the transaction began, in seconds; by the clock of the producer if the store time
        of the first half is not known."""
        record = self.record
        is_first = self.origin == self.queue_offset and not self.is_set_aside
        stored = record.store_timestamp
        return (stored if is_first else min(record.born_timestamp, stored)) / 1000

    @cached_property
    def immunity(self) -> float | None:
        """Seconds during which the producer is not asked, if the message sets them."""
        seconds = parse_number(self.properties.get(PropertyName.CHECK_IMMUNITY_SECONDS))
        return None if seconds is None else float(seconds)

    def moved_draft(self, store_host: bytes, *, check_times: int) -> RecordDraft:
        """Build the copy that is appended to the half queue."""
        return self._copy(HALF_TOPIC, store_host, check_times)

    def set_aside_draft(self, store_host: bytes, *, unchanged: bool = False) -> RecordDraft:
        """Build the copy that is set aside; unchanged if more properties do not fit."""
        topic = TRANS_CHECK_MAX_TIME_TOPIC
        if not unchanged:
            return self._copy(topic, store_host, self.check_times)
        properties, flags = bytes(self.record.properties), self.record.sys_flag
        return self._draft(topic, 0, properties, store_host, sys_flag=flags)

    def committed_draft(self, store_host: bytes, queue_id: int) -> RecordDraft:
        """Build the committed message; it keeps all properties, as in RocketMQ."""
        record = self.record
        return self._draft(
            self.topic,
            queue_id,
            bytes(record.properties),
            store_host,
            sys_flag=with_transaction_type(record.sys_flag, TransactionType.COMMIT),
        )._replace(prepared_transaction_offset=record.physical_offset)

    def copy_at(self, draft: RecordDraft, appended: Appended) -> "Half":
        """Return the copy of this half that was stored there."""
        return Half(
            self.record._replace(
                topic=draft.topic.decode(),
                properties=memoryview(draft.properties),
                queue_id=draft.queue_id,
                queue_offset=appended.queue_offset,
                physical_offset=appended.physical_offset,
                store_timestamp=appended.store_timestamp,
                store_host=draft.store_host,
            )
        )

    def for_producer(self) -> bytes:
        """Encode the record that is sent to the producer in a check request."""
        record = self.record
        properties, flags = bytes(record.properties), record.sys_flag
        draft = self._draft(
            self.topic, self.queue_id, properties, record.store_host, sys_flag=flags
        )
        encoded = encode_record(draft, max_body_size=len(record.body))
        place = Placement(record.queue_offset, record.physical_offset, record.store_timestamp)
        place_record(encoded, 0, place)
        return bytes(encoded)

    def _copy(self, topic: str, store_host: bytes, check_times: int) -> RecordDraft:
        properties = dict(self.properties)
        if check_times or PropertyName.TRANSACTION_CHECK_TIMES in properties:
            properties[PropertyName.TRANSACTION_CHECK_TIMES] = str(check_times)
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
    """Address a transactional message to the half topic."""
    updated = dict(properties)
    if unique_id := properties.get(PropertyName.UNIQUE_ID):
        updated[PropertyName.TRANSACTION_ID] = unique_id
    updated.setdefault(PropertyName.PRODUCER_GROUP, group)
    updated.pop(PropertyName.PREPARED_QUEUE_OFFSET, None)
    updated.pop(PropertyName.TRANSACTION_CHECK_TIMES, None)
    updated[PropertyName.REAL_TOPIC] = draft.topic.decode()
    updated[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    return draft._replace(
        topic=HALF_TOPIC.encode(),
        queue_id=0,
        sys_flag=with_transaction_type(draft.sys_flag, TransactionType.NONE),
        properties=encode_properties(updated).encode(),
    )


def op_draft(
    half: Half, state: TransactionType, store_host: bytes, now: float, *, by: str = ""
) -> RecordDraft:
    """Build the op message of one half; state NONE means that the half was moved."""
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
    """The content of an op message."""

    half_offsets: tuple[int, ...]
    """Queue offsets of the closed halves."""
    origin: int | None = None
    state: TransactionType = TransactionType.NONE
    """The outcome; NONE if the op message does not say."""

    @classmethod
    def read(cls, record: Record) -> "Op":
        properties = record.decode_properties()
        if properties.get(PropertyName.TAGS) != OP_TAG:
            return cls(())
        numbers = str(record.body, "ascii", "replace").split(OP_SEPARATOR)
        offsets = tuple(number for text in numbers if (number := parse_number(text)) is not None)
        state = transaction_type(parse_number(properties.get(STATE)) or 0)
        return cls(offsets, parse_number(properties.get(ORIGIN)), state)
