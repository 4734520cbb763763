"""The queue of half messages and the queue of op messages: open halves and how they end.

A restart reads the state from the store: the op messages, and the progress of both queues as
offsets of group CID_RMQ_SYS_TRANS. RocketMQ stores the same, so either broker can take over a store
from the other.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from bolide.broker.background import TRANSACTIONS, on_thread
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.transactions.half_messages import Half, op_draft
from bolide.broker.transactions.open_halves import (
    InterruptedClosing,
    Lineage,
    OpenHalves,
    OpPositions,
    find_interrupted_closing,
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

_MAX_REMEMBERED = 10_000
_MAX_ATTEMPTS = 5


class TransactionEnd(NamedTuple):
    """The outcome of a transaction and the op message that records it."""

    state: TransactionType
    op: Appended | None


_DURABLE_ENDS = {int(state): TransactionEnd(state, None) for state in TransactionType}


class HalfClosing(NamedTuple):
    """The closing of a half: outcome, preceding record, and administrator."""

    half: Half
    state: TransactionType
    after: Appended | None = None
    """The message or copy that the op message follows, if any."""
    by: str = ""


class HalfQueue:
    """The half queue; belongs to one event loop, except `save`.

    Args:
        last_record: physical offset of the last record when the store was opened. The process may
            have ended between that record and its op message.
    """

    def __init__(  # noqa: PLR0913
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
        self._store_host = store_host
        self._last_record = last_record
        self._lineage = Lineage(store)
        self._now = now
        self.open = OpenHalves()
        self._ops = OpPositions()
        self._ends: OrderedDict[int, TransactionEnd] = OrderedDict()
        """Outcomes of the latest transactions, by queue offset of the first half."""
        self._unwritten_ops: list[HalfClosing] = []
        """Closings whose op messages the store refused."""
        self._last_copy: Appended | None = None
        """The last copy appended."""
        self._loaded = asyncio.Event()

    # ---- start

    @property
    def is_loaded(self) -> bool:
        return self._loaded.is_set()

    async def loaded(self) -> None:
        await self._loaded.wait()

    async def load(self) -> None:
        """Read the open halves from the store; other callers wait with `loaded`."""
        interrupted = await on_thread(TRANSACTIONS, self._recover)
        if interrupted is not None:
            log.info(
                "half message %s was closed before a crash; writing its op message",
                interrupted.half.queue_offset,
            )
            self.close(HalfClosing(interrupted.half, interrupted.state))
        self._loaded.set()

    def _recover(self) -> InterruptedClosing | None:
        recovered = read_ops(self._store, self._start(HALF_TOPIC), self._start(OP_HALF_TOPIC))
        self.open, self._ops = recovered.opened, recovered.ops
        for origin, state in recovered.ends.items():
            self._remember(origin, TransactionEnd(state, None))
        return find_interrupted_closing(self._store, self._lineage, self.open, self._last_record)

    def _start(self, topic: str) -> int:
        """Return the committed progress of a queue, within the bounds of the store."""
        low, high = self._store.min_offset(topic, 0), self._queue_end(topic)
        saved = self._offsets.find(TRANSACTION_GROUP, topic, 0)
        return low if saved is None else min(max(saved, low), high)

    def _queue_end(self, topic: str) -> int:
        return self._store.max_offset(topic, 0)

    # ---- closing

    def close(self, closing: HalfClosing) -> Appended | None:
        """Close a half and write its op message; state NONE means that it was moved.

        The closing takes effect at once. The half is open again if the store loses the record that
        the closing depends on.

        Returns:
            The append that must become durable: the op message, or the record it would have
                followed
            if the store refuses it now.

        Raises:
            StoreUnwritable: a rollback is refused; other states take effect all the same.
        """
        half, op = closing.half, None
        try:
            op = self._intake.append(
                op_draft(half, closing.state, self._store_host, self._now(), by=closing.by)
            )
            self._ops.record(op.queue_offset, half.queue_offset)
        except StoreUnwritable:
            if closing.state is TransactionType.ROLLBACK:
                raise
            self._unwritten_ops.append(closing)
        self.open.close(half.queue_offset)
        appended = op or closing.after
        if closing.state is not TransactionType.NONE and half.origin is not None:
            self._remember(half.origin, TransactionEnd(closing.state, appended))
        if appended is not None:
            self._reopen_if_lost(closing, appended)
        return appended

    def claim(self, queue_offset: int) -> bool:
        """Close a half if it is open, and return whether it was; `record_end` must follow.

        Returns False in synchronous flush mode, where `close` tracks durability.
        """
        if self.waits or not self.is_loaded or not self.open.is_open(queue_offset):
            return False
        self.open.close(queue_offset)
        return True

    def record_end(self, queue_offset: int, state: int, op_offset: int) -> None:
        """Record the outcome of a claimed half and the queue offset of its op message."""
        self._ops.record(op_offset, queue_offset)
        self._remember(queue_offset, _DURABLE_ENDS[state])

    def retry_unwritten_ops(self) -> None:
        """Write the op messages that the store refused before."""
        unwritten, self._unwritten_ops = self._unwritten_ops, []
        for closing in unwritten:
            if closing.after is not None and not self._durability.is_durable(closing.after):
                self._unwritten_ops.append(closing)
            elif not self.open.is_open(closing.half.queue_offset):
                self.close(closing)

    def _reopen_if_lost(self, closing: HalfClosing, appended: Appended) -> None:
        def on_durable(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._on_lost(closing)
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_durable(appended, on_durable)

        self._durability.when_durable(appended, on_durable)

    def _on_lost(self, closing: HalfClosing) -> None:
        if closing.after is not None and self._durability.is_durable(closing.after):
            self._unwritten_ops.append(closing)  # only the op message was lost
            return
        self._unwritten_ops = [each for each in self._unwritten_ops if each is not closing]
        self.open.reopen(closing.half.queue_offset)
        if closing.half.origin is not None:
            self._ends.pop(closing.half.origin, None)

    def _remember(self, origin: int, end: TransactionEnd) -> None:
        self._ends[origin] = end
        self._ends.move_to_end(origin)
        if len(self._ends) > _MAX_REMEMBERED:
            self._ends.popitem(last=False)

    def move(self, half: Half, *, check_times: int) -> tuple[Half, Appended]:
        """Append a copy of a half and close the old one.

        Raises:
            StoreUnwritable, StoreClosed, RecordTooLarge: the half stays where it is.
        """
        draft = half.moved_draft(self._store_host, check_times=check_times)
        appended = self._intake.append(draft)
        self._last_copy = appended
        if not half.is_set_aside:
            self.close(HalfClosing(half, TransactionType.NONE, appended))
        return half.copy_at(draft, appended), appended

    def set_aside(self, half: Half) -> None:
        """Move a half to TRANS_CHECK_MAX_TIME_TOPIC, which must exist. Raises as `move`."""
        try:
            appended = self._intake.append(half.set_aside_draft(self._store_host))
        except RecordTooLarge:
            appended = self._intake.append(half.set_aside_draft(self._store_host, unchanged=True))
        self.close(HalfClosing(half, TransactionType.NONE, appended))

    # ---- queries

    def find_end(self, half: Half) -> TransactionEnd | None:
        """Return how the transaction of a half ended, if that is remembered."""
        return None if half.origin is None else self._ends.get(half.origin)

    async def find_newest(self, half: Half) -> Half | None:
        """As `Lineage.find_newest`, also while halves are being moved."""
        newest = None
        for _ in range(_MAX_ATTEMPTS):
            last_copy = self._last_copy
            if last_copy is not None:
                with suppress(StoreUnwritable):  # it is not readable before
                    await self._durability.wait_durable(last_copy)
            newest = await on_thread(TRANSACTIONS, self._lineage.find_newest, half, self.open)
            if newest is not None or last_copy is self._last_copy:
                break
        return newest

    @property
    def waits(self) -> bool:
        """Whether an append is not readable at once."""
        return self._durability.waits

    async def wait_readable(self, appended: Appended) -> None:
        """Wait until a copy is readable, as required to end it.

        Raises:
            StoreUnwritable: the copy was lost.
        """
        await self._durability.wait_durable(appended)

    # ---- saving

    async def checkpoint(self) -> None:
        """Flush the log, then commit the progress of both queues."""
        progress = self._progress()
        if progress is not None and await on_thread(TRANSACTIONS, self._store.flush):
            self._commit(*progress)

    def save(self) -> None:
        """As `checkpoint`, at shutdown. Blocks."""
        progress = self._progress()
        if progress is not None and self._store.flush():
            self._commit(*progress)

    def _progress(self) -> tuple[int, int] | None:
        """Return where a restart would begin to read; None if that is unchanged or op messages
        are missing."""
        if not self.is_loaded or self._unwritten_ops:
            return None
        first = min(self.open.first, self._queue_end(HALF_TOPIC))
        if first == (self._offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) or 0):
            return None
        self.open.trim()
        return first, min(self._ops.first_needed(first), self._queue_end(OP_HALF_TOPIC))

    def _commit(self, first: int, position: int) -> None:
        self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, first)
        self._offsets.commit(TRANSACTION_GROUP, OP_HALF_TOPIC, 0, position)
