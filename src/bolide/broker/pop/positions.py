"""Where pops begin: where the last one ended, unless somebody has moved the group meanwhile."""

from collections.abc import Mapping

from bolide.broker.config import BrokerConfig
from bolide.broker.offsets import OffsetTable
from bolide.broker.pop.events import Placed, QueueName, Removed
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.queue import PopQueue
from bolide.broker.pop.state import PopState
from bolide.config import ConfigCell
from bolide.model.names import is_retry_topic
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory

FROM_START = 0
"""The init mode of groups that begin at the start of a queue."""


class Positions:
    """Brings the state together with the offsets of groups; belongs to one event loop."""

    def __init__(
        self,
        state: PopState,
        journal: Journal,
        *,
        offsets: OffsetTable,
        store: Store,
        cell: ConfigCell[BrokerConfig],
    ) -> None:
        self._state = state
        self._journal = journal
        self._offsets = offsets
        self._store = store
        self._cell = cell
        offsets.on_placed = self._placed
        offsets.on_removed = self.forget

    def require(self, name: QueueName, init_mode: int) -> tuple[PopQueue, int]:
        """The queue, its next offset within what the store has, and where it ends.

        Raises:
            StoreUnwritable, StoreClosed: it is to begin elsewhere, and that cannot be written.
        """
        topic, group, queue_id = name
        queue = self._state.queues.get(name)
        if queue is None or self._offsets.take_reset(group, topic, queue_id) is not None:
            queue = self._begin(name, init_mode)
        committed = self._offsets.find(group, topic, queue_id)
        if committed is not None and committed != queue.published:
            self._follow(queue, committed)
        high = self._store.max_offset(topic, queue_id)
        if queue.next_offset > high:  # the end of the log was lost
            self._place(queue, high)
        elif queue.next_offset < high:
            low = self._store.min_offset(topic, queue_id)
            queue.next_offset = max(queue.next_offset, low)
        return queue, high

    def peek(self, name: QueueName) -> int:
        """Where a pop would begin; changes nothing."""
        topic, group, queue_id = name
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        queue = self._state.queues.get(name)
        committed = self._offsets.find(group, topic, queue_id)
        if queue is not None and committed in {None, queue.published}:
            offset = queue.next_offset
        else:
            offset = committed or 0
        return min(max(offset, low), high)

    def popped(self, queue: PopQueue) -> None:
        """Note how far the group is, as for pulls."""
        topic, group, queue_id = queue.name
        self._offsets.pulled(group, topic, queue_id, queue.next_offset)

    def forget(self, topic: str, group: str) -> None:
        """All queues of a topic, or of a group, are gone; the other name is empty."""
        if any(topic in {"", name[0]} and group in {"", name[1]} for name in self._state.queues):
            self._journal.insist(Removed(topic, group, -1))

    # ---- inside

    def _begin(self, name: QueueName, init_mode: int) -> PopQueue:
        """A queue that is new here, or was put elsewhere."""
        topic, group, queue_id = name
        self._offsets.take_reset(group, topic, queue_id)
        committed = self._offsets.find(group, topic, queue_id)
        if committed is None or committed < 0:
            committed = self._initial(topic, queue_id, init_mode)
            self._offsets.commit(group, topic, queue_id, committed)
        self._journal.append([Placed(*name, committed)])
        queue = self._state.queues[name]
        queue.published = committed
        return queue

    def _initial(self, topic: str, queue_id: int, init_mode: int) -> int:
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if init_mode == FROM_START or is_retry_topic(topic):
            return low
        young = self._cell.value.init_pop_offset_by_check_msg_in_mem and low <= 0
        if young and self._is_recent(topic, queue_id):
            return 0
        return max(high - 1, 0)

    def _is_recent(self, topic: str, queue_id: int) -> bool:
        try:
            return self._store.is_recent(topic, queue_id, 0, may_block=False)
        except NotInMemory:
            return False

    def _follow(self, queue: PopQueue, committed: int) -> None:
        """Somebody else committed for the group: consumers that pull, or a tool."""
        is_live = bool(queue.checkpoints) or (queue.order is not None and queue.order.left > 0)
        if committed > queue.next_offset or (not is_live and committed != queue.next_offset):
            self._place(queue, committed)
        queue.published = committed

    def _place(self, queue: PopQueue, offset: int) -> None:
        self._journal.append([Placed(*queue.name, offset)])

    def _placed(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """An administrator sent the group elsewhere: what it has in hand is not waited for."""
        for queue_id, offset in offsets.items():
            queue = self._state.queues.get((topic, group, queue_id))
            if queue is not None:
                self._journal.insist(Placed(*queue.name, offset))
                queue.published = offset
