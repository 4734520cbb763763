"""The queue of half messages and the one of op messages beside it: what is open, and how it ends.

What a restart needs is in the store: the op messages, and how far both queues were done with, as
offsets of the group CID_RMQ_SYS_TRANS. RocketMQ keeps the same, so that either can go on with a
store that the other left.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from bolide.broker.durability import Durability
from bolide.broker.intake import Intake
from bolide.broker.offsets import OffsetTable
from bolide.broker.transactions.half import Half, Op, op_draft
from bolide.broker.transactions.open_halves import OpenHalves, OpPositions
from bolide.kernel import read_record
from bolide.model.message import TransactionType, transaction_type
from bolide.model.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANSACTION_GROUP,
)
from bolide.model.properties import PropertyName
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import StoreUnwritable
from bolide.store.reading import ReadLimits, ReadStatus

log = logging.getLogger(__name__)

_AT_ONCE = ReadLimits(max_count=512, max_size=4 * 1024 * 1024, max_scanned=512)
_MOST_COPIES = 64
"""Of one half message that are looked through."""
_MOST_REMEMBERED = 10_000
_READ_AT_LEAST = 2000
"""Op messages, to remember how the last transactions ended."""
_GONE = (
    ReadStatus.MESSAGE_WAS_REMOVING,
    ReadStatus.OFFSET_FOUND_NULL,
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.NO_MATCHED_MESSAGE,
)


class Ended(NamedTuple):
    """How a transaction ended, and the op message that says so."""

    state: TransactionType
    op: Appended | None


class HalfQueue:
    """Belongs to one event loop, except for `save`.

    Args:
        last_record: where the last record lay when the store was opened: the process may have
            ended between it and the op message that belongs to it.
    """

    def __init__(  # noqa: PLR0913  the store by all its doors
        self,
        store: Store,
        intake: Intake,
        durability: Durability,
        offsets: OffsetTable,
        *,
        store_host: bytes,
        last_record: int = -1,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._intake = intake
        self._durability = durability
        self._offsets = offsets
        self._host = store_host
        self._last_record = last_record
        self._now = now
        self.open = OpenHalves()
        self._ops = OpPositions()
        self._ended: OrderedDict[int, Ended] = OrderedDict()
        """By the number of the first half: how the last ones ended."""
        self._unwritten: list[tuple[Half, TransactionType, str]] = []
        """Halves that are done with and whose op messages the store did not take."""
        self._loaded = asyncio.Event()

    # ---- start

    @property
    def is_loaded(self) -> bool:
        return self._loaded.is_set()

    async def loaded(self) -> None:
        await self._loaded.wait()

    async def load(self) -> None:
        """Read what is open; others wait for it with `loaded`."""
        missing = await asyncio.to_thread(self._read)
        if missing is not None:
            half, state = missing
            log.info("half message %s was done with before the broker ended", half.queue_offset)
            self.close(half, state)
        self._loaded.set()

    def _read(self) -> tuple[Half, TransactionType] | None:
        first, at = self._start(HALF_TOPIC), self._start(OP_HALF_TOPIC)
        self.open, self._ops = OpenHalves(first), OpPositions(at)
        end = self._end(OP_HALF_TOPIC)
        earlier = max(min(at, end - _READ_AT_LEAST), self._store.min_offset(OP_HALF_TOPIC, 0))
        for record in read_all(self._store, OP_HALF_TOPIC, earlier, end):
            self._note(record.queue_offset, Op.read(record))
        return self._find_missing()

    def _note(self, position: int, op: Op) -> None:
        for offset in op.named:
            # Far ahead of the queue it is nonsense, and would take memory.
            if offset < self._end(HALF_TOPIC):
                self.open.close(offset)
        self._ops.note(position, max(op.named, default=-1))
        if op.origin is not None and op.state is not TransactionType.NONE:
            self._remember(op.origin, Ended(op.state, None))

    def _start(self, topic: str) -> int:
        low, high = self._store.min_offset(topic, 0), self._end(topic)
        saved = self._offsets.find(TRANSACTION_GROUP, topic, 0)
        return low if saved is None else min(max(saved, low), high)

    def _end(self, topic: str) -> int:
        return self._store.max_offset(topic, 0)

    def _find_missing(self) -> tuple[Half, TransactionType] | None:
        """What the last act before a crash was done with, if its op message is missing."""
        last = None if self._last_record < 0 else self._store.record_at(self._last_record)
        try:
            record = None if last is None else read_record(bytes(last))
        except BadRecord:
            return None
        if not isinstance(record, Record):
            return None
        if record.topic == HALF_TOPIC:
            half, state = self._find_before(Half(record)), TransactionType.NONE
        else:
            half, state = self._find_half_of(record), TransactionType.COMMIT
        is_open = half is not None and not half.is_aside and self.open.is_open(half.queue_offset)
        return (half, state) if half is not None and is_open else None

    def _find_half_of(self, record: Record) -> Half | None:
        """The half of a message that was committed."""
        if transaction_type(record.sys_flag) is not TransactionType.COMMIT:
            return None
        half = Half.find(self._store.record_at(record.prepared_transaction_offset))
        unique_id = record.decode_properties().get(PropertyName.UNIQUE_ID)
        return half if half is not None and half.unique_id == unique_id else None

    def _find_before(self, half: Half) -> Half | None:
        """The half that this one is a copy of."""
        if half.origin == half.queue_offset:
            return None
        older = [each for each in self._copies(half) if _place(each) < _place(half)]
        return max(older, key=_place, default=None)

    # ---- closing

    def close(self, half: Half, state: TransactionType, *, by: str = "") -> Appended | None:
        """Write down that a half is done with, NONE: was moved; None if the store cannot now.

        It counts at once. If the store takes it back it is open again.
        """
        self.open.close(half.queue_offset)
        op: Appended | None = None
        try:
            op = self._intake.append(op_draft(half, state, self._host, self._now(), by=by))
        except StoreUnwritable:
            self._unwritten.append((half, state, by))
        else:
            self._ops.note(op.queue_offset, half.queue_offset)
            self._watch(half, op)
        if state is not TransactionType.NONE and half.origin is not None:
            self._remember(half.origin, Ended(state, op))
        return op

    def write_missing(self) -> None:
        """Try again to write the op messages that the store did not take."""
        waiting, self._unwritten = self._unwritten, []
        for half, state, by in waiting:
            if not self.open.is_open(half.queue_offset):
                self.close(half, state, by=by)

    def _watch(self, half: Half, op: Appended) -> None:
        def tell(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self.open.reopen(half.queue_offset)
                if half.origin is not None:
                    self._ended.pop(half.origin, None)
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_safe(op, tell)

        self._durability.when_safe(op, tell)

    def _remember(self, origin: int, ended: Ended) -> None:
        self._ended[origin] = ended
        self._ended.move_to_end(origin)
        if len(self._ended) > _MOST_REMEMBERED:
            self._ended.popitem(last=False)

    def move(self, half: Half, *, times: int) -> tuple[Half, Appended]:
        """Put a half into its queue once more, and be done with where it was.

        Raises:
            StoreUnwritable, StoreClosed, RecordTooLarge: it stays where it is.
        """
        draft = half.moved(self._host, times=times)
        place = self._intake.append(draft)
        if not half.is_aside:
            self.close(half, TransactionType.NONE)
        return half.copied(draft, place), place

    def set_aside(self, half: Half) -> None:
        """Give up on a half: it goes to the topic of such, which must exist. Raises as `move`."""
        self._intake.append(half.set_aside(self._host))
        self.close(half, TransactionType.NONE)

    # ---- asking

    def find_end(self, half: Half) -> Ended | None:
        """How the transaction of a half ended, if that is remembered."""
        return None if half.origin is None else self._ended.get(half.origin)

    async def find_newest(self, half: Half) -> Half | None:
        """The half of the same transaction that is open now, or that was set aside and not taken up
        again; None if there is none."""
        return await asyncio.to_thread(self._find_newest, half)

    def _find_newest(self, half: Half) -> Half | None:
        halves = self._copies(half) + ([] if half.is_aside else [half])
        newest = max(halves, key=_place, default=None)
        if newest is not None and self.open.is_open(newest.queue_offset):
            return newest
        aside = self._copies(half, TRANS_CHECK_MAX_TIME_TOPIC) + ([half] if half.is_aside else [])
        last = max(aside, key=_place, default=None)
        if last is None or (newest is not None and _place(newest) > _place(last)):
            return None
        return last

    def _copies(self, half: Half, topic: str = HALF_TOPIC) -> list[Half]:
        if not half.unique_id:
            return []
        records = self._store.find(topic, half.unique_id, limit=_MOST_COPIES)
        found = [each for data in records if (each := Half.find(data))]
        return [
            each
            for each in found
            if each.unique_id == half.unique_id
            and _is_same(each, half)
            and each.topic == half.topic
        ]

    # ---- saving

    async def checkpoint(self) -> None:
        """Note how far both queues are done with, when what that rests on is on the disk."""
        progress = self._progress()
        if progress is not None and await asyncio.to_thread(self._store.flush):
            self._commit(*progress)

    def save(self) -> None:
        """As `checkpoint`, when nobody uses the queue any more. Blocks."""
        progress = self._progress()
        if progress is not None and self._store.flush():
            self._commit(*progress)

    def _progress(self) -> tuple[int, int] | None:
        """Where a restart would begin to read; None if it is to begin where it was told before."""
        if not self.is_loaded or self._unwritten:
            return None
        first = min(self.open.first, self._end(HALF_TOPIC))
        if first == (self._offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) or 0):
            return None
        self.open.trim()
        return first, min(self._ops.first_needed(first), self._end(OP_HALF_TOPIC))

    def _commit(self, first: int, position: int) -> None:
        self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, first)
        self._offsets.commit(TRANSACTION_GROUP, OP_HALF_TOPIC, 0, position)


def read_all(store: Store, topic: str, begin: int, end: int) -> Iterator[Record]:
    """The records of queue 0 of a topic from `begin` to before `end`. Blocks."""
    while begin < end:
        found = store.read(topic, 0, begin, _AT_ONCE)
        for data in found.records:
            with suppress(BadRecord):
                record = read_record(bytes(data))
                if isinstance(record, Record):
                    yield record
        if found.next_offset <= begin or not (found.records or found.status in _GONE):
            return
        begin = found.next_offset


def _place(half: Half) -> int:
    return half.record.physical_offset


def _is_same(half: Half, other: Half) -> bool:
    """Whether two halves are of one transaction; one that RocketMQ set aside does not say."""
    return half.origin is None or other.origin is None or half.origin == other.origin
