"""What a broker that starts finds of transactions in its store."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from bolide.broker.transactions.half import Half, Op
from bolide.broker.transactions.lineage import Lineage
from bolide.broker.transactions.open_halves import OpenHalves, OpPositions
from bolide.kernel import read_record
from bolide.model.message import TransactionType, transaction_type
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.contract import Store
from bolide.store.reading import ReadLimits

_AT_ONCE = ReadLimits(max_count=512, max_size=4 * 1024 * 1024, max_scanned=512)
_READ_AT_LEAST = 2000
"""Op messages, to know how the last transactions ended."""


class Left(NamedTuple):
    """What the broker before left."""

    opened: OpenHalves
    ops: OpPositions
    ends: dict[int, TransactionType]
    """How transactions ended, by the number of their first half; the last ones only."""


class LastAct(NamedTuple):
    """A half that was done with, and whose op message is missing."""

    half: Half
    state: TransactionType


def read_ops(store: Store, first: int, position: int) -> Left:
    """Read which halves are open, from where both queues were done with. Blocks."""
    left = Left(OpenHalves(first), OpPositions(position), {})
    end, halves = store.max_offset(OP_HALF_TOPIC, 0), store.max_offset(HALF_TOPIC, 0)
    begin = max(min(position, end - _READ_AT_LEAST), store.min_offset(OP_HALF_TOPIC, 0))
    for record in read_all(store, OP_HALF_TOPIC, begin, end):
        op = Op.read(record)
        # One that is not stored yet is nonsense, and far ahead it would take memory.
        named = [offset for offset in op.named if offset < halves]
        for offset in named:
            left.opened.close(offset)
        left.ops.note(record.queue_offset, max(named, default=-1))
        if op.origin is not None and op.state is not TransactionType.NONE:
            left.ends[op.origin] = op.state
    return left


def find_last_act(
    store: Store, lineage: Lineage, opened: OpenHalves, last_record: int
) -> LastAct | None:
    """What the last record before a crash was the first part of. Blocks.

    An op message follows the message that it belongs to at once: only the last one can be missing.
    """
    data = None if last_record < 0 else store.record_at(last_record)
    try:
        record = None if data is None else read_record(bytes(data))
    except BadRecord:
        return None
    if not isinstance(record, Record):
        return None
    if record.topic == HALF_TOPIC:
        half, state = lineage.find_before(Half(record)), TransactionType.NONE
    else:
        half, state = _find_half_of(store, record), TransactionType.COMMIT
    if half is None or half.is_aside or not opened.is_open(half.queue_offset):
        return None
    return LastAct(half, state)


def _find_half_of(store: Store, record: Record) -> Half | None:
    """The half of a message that was committed."""
    if transaction_type(record.sys_flag) is not TransactionType.COMMIT:
        return None
    half = Half.find(store.record_at(record.prepared_transaction_offset))
    unique_id = record.decode_properties().get(PropertyName.UNIQUE_ID)
    return half if half is not None and half.unique_id == unique_id else None


def read_all(store: Store, topic: str, begin: int, end: int) -> Iterator[Record]:
    """The records of queue 0 of a topic from `begin` to before `end`. Blocks."""
    while begin < end:
        found = store.read(topic, 0, begin, _AT_ONCE)
        for data in found.records:
            with suppress(BadRecord):
                record = read_record(bytes(data))
                if isinstance(record, Record):
                    yield record
        if found.next_offset <= begin:
            return
        begin = found.next_offset
