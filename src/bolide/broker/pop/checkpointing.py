"""Publishes how far groups are that pop, and keeps the journal short.

What is published is never ahead of what is on the disk: it is noted first, and committed when the
log is flushed up to where it ended then.
"""

import logging
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.events import OrderPopped, Placed, QueueName, Removed
from bolide.broker.pop.journal import Journal, JournalTorn
from bolide.broker.pop.ordered import OrderInfo, OrderTable, merged
from bolide.broker.pop.pop_queue import PopQueue
from bolide.broker.pop.state import PopState
from bolide.model.names import POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC
from bolide.store.contract import Store
from bolide.store.errors import StoreClosed, StoreUnwritable
from bolide.store.tables import Table

log = logging.getLogger(__name__)

MOST_BEHIND = 50_000
"""Records that are read again at a start, about."""

NOT_WRITTEN = -(2**62)
"""Of what is live and not in the journal yet."""

Offsets = dict[QueueName, int]
"""Offsets by topic, group and queue."""


class _Noted(NamedTuple):
    """An offset to be published, and the queue it is of as it was then."""

    offset: int
    queue: PopQueue | None = None
    epoch: int = 0


class PopCheckpointer:
    """Belongs to one event loop; `load` and `publish_all` belong to whoever has it alone.

    Args:
        log_end: how far the log is written.
        longest: seconds that what is live may stay in one record.
    """

    def __init__(  # noqa: PLR0913  what it reads, what it writes
        self,
        state: PopState,
        journal: Journal,
        *,
        offsets: OffsetTable,
        orders: Table[OrderTable],
        store: Store,
        log_end: Callable[[], int],
        most_behind: int = MOST_BEHIND,
        longest: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._state = state
        self._journal = journal
        self._offsets = offsets
        self._orders = orders
        self._store = store
        self._log_end = log_end
        self._most_behind = most_behind
        self._longest = longest
        self._noted: dict[QueueName, _Noted] = {}
        self._noted_at = 0
        self._told = False
        self._unwritten: list[Placed] = []
        self.further: Offsets = {}
        """Offsets to be published with the next."""

    @property
    def is_behind(self) -> bool:
        """Whether there is something to publish."""
        return bool(self._noted or self._state.changed or self.further)

    @property
    def waits_for_disk(self) -> bool:
        """Whether something was noted that the disk does not have: few messages are not hurried
        there."""
        return bool(self._noted) and self._store.flushed < self._noted_at

    def publish(self) -> None:
        """Publish what the disk has, and note what is to be published next."""
        self._keep_orders()
        if self._noted and self._store.flushed >= self._noted_at:
            self._commit()
        if not self._noted and self.is_behind and self._journal.is_whole:
            self._note()

    def shorten(self) -> bool:
        """Bring forward what lies far back in the journal; says whether there is more."""
        try:
            more = self._journal.rewrite(self._most_behind, self._longest())
            self._told = False
        except (StoreUnwritable, StoreClosed) as exc:
            if not self._told:
                log.warning("the journal of popped messages cannot be written: %s", exc)
            self._told, more = True, False
        return more

    def publish_all(self) -> None:
        """Publish the state as it is, when the log is on the disk. Blocks."""
        self._keep_orders()
        if self._journal.is_whole and self._store.flush():
            self._note()
            self._commit()
        self._orders.save()

    def save_orders(self, now: float) -> None:
        """Blocks; raises OSError."""
        self._orders.save_due(now)

    def start(self) -> None:
        """Write down what `load` had to change."""
        for event in self._unwritten:
            self._journal.insist(event)
        self._unwritten.clear()

    # ---- publishing

    def _note(self) -> None:
        state = self._state
        changed, state.changed = state.changed, set()
        for name in changed & state.queues.keys():
            queue = state.queues[name]
            self._noted[name] = _Noted(queue.low, queue, queue.epoch)
        further, self.further = self.further, {}
        oldest = state.oldest
        first = self._journal.end if oldest is None else oldest.written
        if first >= 0:
            further[POP_JOURNAL_TOPIC, POP_JOURNAL_GROUP, 0] = first
        self._noted |= {name: _Noted(offset) for name, offset in further.items()}
        self._noted_at = self._log_end()

    def _commit(self) -> None:
        noted, self._noted = self._noted, {}
        for (topic, group, queue_id), (offset, queue, epoch) in noted.items():
            if queue is not None and (queue.epoch != epoch or self._has_moved(queue)):
                continue
            taken = self._offsets.commit(group, topic, queue_id, offset)
            if taken and queue is not None:
                queue.published = offset

    def _has_moved(self, queue: PopQueue) -> bool:
        """Whether somebody else has committed since; the next pop finds out where it is to be."""
        topic, group, queue_id = queue.name
        return self._offsets.find(group, topic, queue_id) != queue.published

    def _keep_orders(self) -> None:
        if not self._state.orders_changed:
            return
        self._state.orders_changed = False
        table = OrderTable()
        for (topic, group, queue_id), queue in self._state.queues.items():
            if queue.order is not None and queue.order.left:
                copied = msgspec.structs.replace(queue.order.info)
                table.table.setdefault(f"{topic}@{group}", {})[queue_id] = copied
        self._orders.value = table
        self._orders.changed()

    # ---- loading

    def load(self, exists: Callable[[str, str], bool]) -> None:
        """Have the state be what it was; `exists` is asked of topic and group. Blocks."""
        self._replay()
        for name in list(self._state.queues):
            if not exists(name[0], name[1]):
                self._state.apply(Removed(name[0], name[1], -1), 0)
        for name, info in self._kept_orders():
            if exists(name[0], name[1]):
                self._take_order(name, info)
        for queue in list(self._state.queues.values()):
            self._fit(queue)

    def _replay(self) -> None:
        first = self._offsets.find(POP_JOURNAL_GROUP, POP_JOURNAL_TOPIC, 0)
        try:
            records = self._journal.replay(first or 0)
        except JournalTorn as exc:
            log.warning(
                "the journal of popped messages is not whole: %s; messages that were popped and"
                " not settled, and some that were, are delivered again", exc,
            )  # fmt: skip
            self._state.forget_all()
        else:
            if records:
                log.info("%s records tell of %s pops that are not over", records, len(self._state))

    def _kept_orders(self) -> Iterator[tuple[QueueName, OrderInfo]]:
        for key, queues in self._orders.value.table.items():
            topic, _, group = key.partition("@")
            for queue_id, info in queues.items():
                yield (topic, group, queue_id), info

    def _take_order(self, name: QueueName, info: OrderInfo) -> None:
        """What the file says: it may be of another broker, and newer than the journal."""
        if not info.offset_list:
            return
        known = self._state.queues.get(name)
        if known is not None and known.order is not None:
            info = merged(known.order.info, info)
            if info == known.order.info:
                return
        end = max(info.offsets) + 1
        next_offset = max(known.next_offset, end) if known else end
        self._state.apply(OrderPopped(*name, next_offset, info), NOT_WRITTEN)

    def _fit(self, queue: PopQueue) -> None:
        """Bring it together with what is committed and with what the store has."""
        topic, group, queue_id = queue.name
        queue.published = self._offsets.find(group, topic, queue_id)
        committed = queue.published or 0
        high = self._store.max_offset(topic, queue_id)
        if committed > high or queue.next_offset > high:
            end = min(committed, high)
            log.warning(
                "%s pops %s-%s again from %s on: the log was cut", group, topic, queue_id, end
            )
            self._unwritten.append(Placed(*queue.name, end))
            self._state.apply(self._unwritten[-1], NOT_WRITTEN)
            return
        self._state.settle_below(queue, committed)
        queue.next_offset = max(queue.next_offset, committed)
