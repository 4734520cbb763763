"""A message that waits, as it goes on: to its real topic, or into the timer once more."""

from bolide.model.names import HALF_TOPIC, TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import MAX_PROPERTIES_SIZE, Record, RecordDraft

_MOST_DIGITS = 9


def delivered_draft(
    record: Record, properties: dict[str, str], store_host: bytes
) -> RecordDraft | None:
    """The message for its real topic, None if it belongs nowhere; all its properties stay."""
    topic = properties.get(PropertyName.REAL_TOPIC)
    queue_id = _number(properties.get(PropertyName.REAL_QUEUE_ID, ""))
    if topic is None or queue_id is None or topic in {HALF_TOPIC, TIMER_TOPIC}:
        return None
    return _draft(record, topic, queue_id, bytes(record.properties), store_host)


def rolled_draft(record: Record, properties: dict[str, str], store_host: bytes) -> RecordDraft:
    """The message as it is put into the timer again."""
    times = _number(properties.get(PropertyName.TIMER_ROLL_TIMES, "")) or 0
    kept = properties | {PropertyName.TIMER_ROLL_TIMES: str(times + 1)}
    text = encode_properties(kept).encode()
    if len(text) > MAX_PROPERTIES_SIZE:  # it must go on, counted or not
        text = bytes(record.properties)
    return _draft(record, TIMER_TOPIC, 0, text, store_host)


def with_properties(draft: RecordDraft, properties: dict[str, str]) -> RecordDraft:
    return draft._replace(properties=encode_properties(properties).encode())


def _draft(
    record: Record, topic: str, queue_id: int, properties: bytes, store_host: bytes
) -> RecordDraft:
    return RecordDraft(
        topic.encode(), bytes(record.body), properties, queue_id, record.born_timestamp,
        record.born_host, store_host, record.flag, record.sys_flag, record.reconsume_times,
        record.prepared_transaction_offset,
    )  # fmt: skip


def _number(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if plain else None
