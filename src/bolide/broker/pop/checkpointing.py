"""Checkpoints of POP: commits the offsets of popping groups and compacts the journal.

Committed offsets never run ahead of the disk. The checkpointer takes a snapshot of the offsets
together with the end of the log, and commits the snapshot once the log is flushed up to that end.
"""

import logging
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.events import OrderPopped, QueueName, Removed, Repositioned
from bolide.broker.pop.journal import Journal, JournalDamaged
from bolide.broker.pop.ordered import OrderInfo, OrderTable, merge_order_info
from bolide.broker.pop.pop_queue import PopQueue
from bolide.broker.pop.state import PopState
from bolide.model.names import POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC
from bolide.store.contract import Store
from bolide.store.errors import StoreClosed, StoreUnwritable
from bolide.store.tables import Table

log = logging.getLogger(__name__)

MAX_BACKLOG = 50_000
"""Upper bound, approximately, of journal records replayed at a start."""

NOT_WRITTEN = -(2**62)
"""Journal offset of a lease that has no journal record yet."""

Offsets = dict[QueueName, int]


class _PendingCommit(NamedTuple):
    """An offset to commit, with the epoch of its queue at the time of the snapshot."""

    offset: int
    queue: PopQueue | None = None
    epoch: int = 0


class PopCheckpointer:
    """Commits offsets of popping groups and compacts the journal.

    Belongs to one event loop, except `load` and `publish_all`, which need exclusive access.

    Args:
        log_end: returns the physical offset at which the log ends.
        max_backlog: journal records after which the oldest leases are rewritten.
        max_age: returns the seconds after which a lease is rewritten.
    """

    def __init__(  # noqa: PLR0913
        self,
        state: PopState,
        journal: Journal,
        *,
        offsets: OffsetTable,
        orders: Table[OrderTable],
        store: Store,
        log_end: Callable[[], int],
        max_backlog: int = MAX_BACKLOG,
        max_age: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._state = state
        self._journal = journal
        self._offsets = offsets
        self._orders = orders
        self._store = store
        self._log_end = log_end
        self._max_backlog = max_backlog
        self._max_age = max_age
        self._pending: dict[QueueName, _PendingCommit] = {}
        self._pending_end = 0
        self._failure_logged = False
        self._repositioned: list[Repositioned] = []
        self.extra_offsets: Offsets = {}
        """Offsets of other internal topics to commit with the next snapshot."""

    @property
    def is_behind(self) -> bool:
        """Whether offsets are waiting to be committed."""
        return bool(self._pending or self._state.changed or self.extra_offsets)

    @property
    def waits_for_disk(self) -> bool:
        """Whether a snapshot waits for a flush. With few messages, no flush is due soon."""
        return bool(self._pending) and self._store.flushed < self._pending_end

    def publish(self) -> None:
        """Commit the snapshot if it is flushed, then take the next one."""
        self._refresh_order_table()
        if self._pending and self._store.flushed >= self._pending_end:
            self._commit()
        if not self._pending and self.is_behind and self._journal.is_complete:
            self._take_snapshot()

    def compact_journal(self) -> bool:
        """Rewrite old leases at the end of the journal; return whether more remain."""
        try:
            more = self._journal.rewrite(self._max_backlog, self._max_age())
            self._failure_logged = False
        except (StoreUnwritable, StoreClosed) as exc:
            if not self._failure_logged:
                log.warning("the pop journal cannot be written: %s", exc)
            self._failure_logged, more = True, False
        return more

    def publish_all(self) -> None:
        """Flush the log and commit the current state. Blocks."""
        self._refresh_order_table()
        if self._journal.is_complete and self._store.flush():
            self._take_snapshot()
            self._commit()
        self._orders.save()

    def save_orders(self, now: float) -> None:
        """Blocks; raises OSError."""
        self._orders.save_due(now)

    def start(self) -> None:
        """Write the journal records of changes made by `load`."""
        for event in self._repositioned:
            self._journal.append_or_defer(event)
        self._repositioned.clear()

    # ---- publishing

    def _take_snapshot(self) -> None:
        state = self._state
        changed, state.changed = state.changed, set()
        for name in changed & state.queues.keys():
            queue = state.queues[name]
            self._pending[name] = _PendingCommit(queue.low, queue, queue.epoch)
        extra_offsets, self.extra_offsets = self.extra_offsets, {}
        oldest = state.oldest
        first = self._journal.end if oldest is None else oldest.journal_offset
        if first >= 0:
            extra_offsets[POP_JOURNAL_TOPIC, POP_JOURNAL_GROUP, 0] = first
        self._pending |= {name: _PendingCommit(offset) for name, offset in extra_offsets.items()}
        self._pending_end = self._log_end()

    def _commit(self) -> None:
        pending, self._pending = self._pending, {}
        for (topic, group, queue_id), (offset, queue, epoch) in pending.items():
            if queue is not None and (queue.epoch != epoch or self._has_moved(queue)):
                continue
            committed = self._offsets.commit(group, topic, queue_id, offset)
            if committed and queue is not None:
                queue.published = offset

    def _has_moved(self, queue: PopQueue) -> bool:
        """Whether another client has committed since; the next pop then repositions the queue."""
        topic, group, queue_id = queue.name
        return self._offsets.find(group, topic, queue_id) != queue.published

    def _refresh_order_table(self) -> None:
        if not self._state.orders_changed:
            return
        self._state.orders_changed = False
        table = OrderTable()
        for (topic, group, queue_id), queue in self._state.queues.items():
            if queue.order is not None and queue.order.pending_count:
                copied = msgspec.structs.replace(queue.order.info)
                table.table.setdefault(f"{topic}@{group}", {})[queue_id] = copied
        self._orders.value = table
        self._orders.changed()

    # ---- loading

    def load(self, exists: Callable[[str, str], bool]) -> None:
        """Restore the state from the journal and the saved order table. Blocks.

        Args:
            exists: returns whether a topic and a group still exist.
        """
        self._replay()
        for name in list(self._state.queues):
            if not exists(name[0], name[1]):
                self._state.apply(Removed(name[0], name[1], -1), 0)
        for name, info in self._saved_orders():
            if exists(name[0], name[1]):
                self._restore_order(name, info)
        for queue in list(self._state.queues.values()):
            self._reconcile(queue)

    def _replay(self) -> None:
        first = self._offsets.find(POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC, 0)
        try:
            records = self._journal.replay(first or 0)
        except JournalDamaged as exc:
            log.warning(
                "the pop journal is incomplete: %s; popped messages that were not acknowledged,"
                " and some that were, are delivered again", exc,
            )  # fmt: skip
            self._state.forget_all()
        else:
            if records:
                log.info(
                    "replayed %s pop journal records: %s pops in flight", records, len(self._state)
                )

    def _saved_orders(self) -> Iterator[tuple[QueueName, OrderInfo]]:
        for key, queues in self._orders.value.table.items():
            topic, _, group = key.partition("@")
            for queue_id, info in queues.items():
                yield (topic, group, queue_id), info

    def _restore_order(self, name: QueueName, info: OrderInfo) -> None:
        """Apply the saved order table, which may be newer than the journal if another broker
        wrote it."""
        if not info.offset_list:
            return
        known = self._state.queues.get(name)
        if known is not None and known.order is not None:
            info = merge_order_info(known.order.info, info)
            if info == known.order.info:
                return
        end = max(info.offsets) + 1
        next_offset = max(known.next_offset, end) if known else end
        self._state.apply(OrderPopped(*name, next_offset, info), NOT_WRITTEN)

    def _reconcile(self, queue: PopQueue) -> None:
        """Reconcile a queue with the committed offset and the end of the store."""
        topic, group, queue_id = queue.name
        queue.published = self._offsets.find(group, topic, queue_id)
        committed = queue.published or 0
        high = self._store.max_offset(topic, queue_id)
        if committed > high or queue.next_offset > high:
            end = min(committed, high)
            log.warning(
                "group %s pops %s-%s again from offset %s: the log was truncated",
                group, topic, queue_id, end,
            )  # fmt: skip
            self._repositioned.append(Repositioned(*queue.name, end))
            self._state.apply(self._repositioned[-1], NOT_WRITTEN)
            return
        self._state.acknowledge_below(queue, committed)
        queue.next_offset = max(queue.next_offset, committed)
