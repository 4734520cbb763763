"""The queue of half messages and the one of op messages beside it: what is open, and how it ends.

What a restart needs is in the store: the op messages, and how far both queues were done with, as
offsets of the group CID_RMQ_SYS_TRANS. RocketMQ keeps the same, so that either can go on with a
store that the other left.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.transactions.half_messages import Half, op_draft
from bolide.broker.transactions.open_halves import (
    LastAct,
    Lineage,
    OpenHalves,
    OpPositions,
    find_last_act,
    read_ops,
)
from bolide.model.message import TransactionType
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record_errors import RecordTooLarge
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import StoreUnwritable

log = logging.getLogger(__name__)

_MOST_REMEMBERED = 10_000
_TRIES = 5


class Ended(NamedTuple):
    """How a transaction ended, and the op message that says so."""

    state: TransactionType
    op: Appended | None


_SAFE_ENDS = {int(state): Ended(state, None) for state in TransactionType}


class Act(NamedTuple):
    """What is done with a half: how, after which record, and by whom."""

    half: Half
    state: TransactionType
    after: Appended | None = None
    """The message or the copy that its op message follows; None if there is none."""
    by: str = ""


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
        self._lineage = Lineage(store)
        self._now = now
        self.open = OpenHalves()
        self._ops = OpPositions()
        self._ended: OrderedDict[int, Ended] = OrderedDict()
        """By the number of the first half: how the last ones ended."""
        self._unwritten: list[Act] = []
        """Those whose op messages the store did not take."""
        self._moved: Appended | None = None
        """The last copy that was made."""
        self._loaded = asyncio.Event()

    # ---- start

    @property
    def is_loaded(self) -> bool:
        return self._loaded.is_set()

    async def loaded(self) -> None:
        await self._loaded.wait()

    async def load(self) -> None:
        """Read what is open; others wait for it with `loaded`."""
        last = await asyncio.to_thread(self._read)
        if last is not None:
            log.info("half message %s was done with before a crash", last.half.queue_offset)
            self.close(Act(last.half, last.state))
        self._loaded.set()

    def _read(self) -> LastAct | None:
        left = read_ops(self._store, self._start(HALF_TOPIC), self._start(OP_HALF_TOPIC))
        self.open, self._ops = left.opened, left.ops
        for origin, state in left.ends.items():
            self._remember(origin, Ended(state, None))
        return find_last_act(self._store, self._lineage, self.open, self._last_record)

    def _start(self, topic: str) -> int:
        """How far a queue was done with."""
        low, high = self._store.min_offset(topic, 0), self._end(topic)
        saved = self._offsets.find(TRANSACTION_GROUP, topic, 0)
        return low if saved is None else min(max(saved, low), high)

    def _end(self, topic: str) -> int:
        return self._store.max_offset(topic, 0)

    # ---- closing

    def close(self, act: Act) -> Appended | None:
        """Write down that a half is done with, NONE: was moved.

        It counts at once. If the store takes back what it rests on it is open again.

        Returns:
            What must be safe for that: its op message, or what that would have followed if the
            store cannot take it now.

        Raises:
            StoreUnwritable: so that it is not rolled back; other states count all the same.
        """
        half, op = act.half, None
        try:
            op = self._intake.append(op_draft(half, act.state, self._host, self._now(), by=act.by))
            self._ops.note(op.queue_offset, half.queue_offset)
        except StoreUnwritable:
            if act.state is TransactionType.ROLLBACK:
                raise
            self._unwritten.append(act)
        self.open.close(half.queue_offset)
        place = op or act.after
        if act.state is not TransactionType.NONE and half.origin is not None:
            self._remember(half.origin, Ended(act.state, place))
        if place is not None:
            self._watch(act, place)
        return place

    def claim(self, queue_offset: int) -> bool:
        """Whether a half is open; if so it no longer is, and `note_ended` must follow.

        None is where appends have to wait for the disk: `close` sees to that.
        """
        if self.waits or not self.is_loaded or not self.open.is_open(queue_offset):
            return False
        self.open.close(queue_offset)
        return True

    def note_ended(self, queue_offset: int, state: int, op_offset: int) -> None:
        """Remember how a claimed half ended, and where its op message stands in its queue."""
        self._ops.note(op_offset, queue_offset)
        self._remember(queue_offset, _SAFE_ENDS[state])

    def write_missing(self) -> None:
        """Try again to write the op messages that the store did not take."""
        waiting, self._unwritten = self._unwritten, []
        for act in waiting:
            if act.after is not None and not self._durability.is_safe(act.after):
                self._unwritten.append(act)
            elif not self.open.is_open(act.half.queue_offset):
                self.close(act)

    def _watch(self, act: Act, place: Appended) -> None:
        def tell(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._taken_back(act)
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_safe(place, tell)

        self._durability.when_safe(place, tell)

    def _taken_back(self, act: Act) -> None:
        if act.after is not None and self._durability.is_safe(act.after):
            self._unwritten.append(act)  # of the two only the op message is gone
            return
        self._unwritten = [each for each in self._unwritten if each is not act]
        self.open.reopen(act.half.queue_offset)
        if act.half.origin is not None:
            self._ended.pop(act.half.origin, None)

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
        self._moved = place
        if not half.is_aside:
            self.close(Act(half, TransactionType.NONE, place))
        return half.copied(draft, place), place

    def set_aside(self, half: Half) -> None:
        """Give up on a half: it goes to the topic of such, which must exist. Raises as `move`."""
        try:
            place = self._intake.append(half.set_aside(self._host))
        except RecordTooLarge:
            place = self._intake.append(half.set_aside(self._host, as_it_is=True))
        self.close(Act(half, TransactionType.NONE, place))

    # ---- asking

    def find_end(self, half: Half) -> Ended | None:
        """How the transaction of a half ended, if that is remembered."""
        return None if half.origin is None else self._ended.get(half.origin)

    async def find_newest(self, half: Half) -> Half | None:
        """As `Lineage.find_newest`; of one that is moved meanwhile too."""
        newest = None
        for _ in range(_TRIES):
            moved = self._moved
            if moved is not None:
                with suppress(StoreUnwritable):  # nobody can read it before
                    await self._durability.reached(moved)
            newest = await asyncio.to_thread(self._lineage.find_newest, half, self.open)
            if newest is not None or moved is self._moved:
                break
        return newest

    @property
    def waits(self) -> bool:
        """Whether what was appended cannot be read at once."""
        return self._durability.waits

    async def readable(self, place: Appended) -> None:
        """Wait until a copy can be read, as those who end it will have to.

        Raises:
            StoreUnwritable: it was taken back.
        """
        await self._durability.reached(place)

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
