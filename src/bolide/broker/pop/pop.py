"""POP of one broker: builds the parts and runs their periodic work."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bolide.broker.background import REVIVAL, on_thread
from bolide.broker.consume.expiry import Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.checkpointing import MAX_BACKLOG, PopCheckpointer
from bolide.broker.pop.delivery import PopDelivery, Positions
from bolide.broker.pop.events import Event, QueueName, Repositioned
from bolide.broker.pop.java_revive_log import JavaReviveLog
from bolide.broker.pop.journal import Journal, NoIntake
from bolide.broker.pop.ordered import OrderTable
from bolide.broker.pop.polling import Admission, Polling
from bolide.broker.pop.queue_order import QueueOrder
from bolide.broker.pop.revival import RetryTopics, Reviver
from bolide.broker.pop.state import PopState
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.model.names import revive_topic
from bolide.protocol.pop_info import normal_topic
from bolide.protocol.refusals import GroupNotFound, ServiceNotAvailable
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.tables import Table

log = logging.getLogger(__name__)

_TICK = 0.5
_REWRITES_PER_RETENTION = 4
_MAX_SLEEP = 60.0
_MIN_SLEEP = 0.001


@dataclass(slots=True, kw_only=True)
class Pop:
    """All parts of POP; `run` is the background task.

    `log_end` returns the physical offset at which the log ends.
    """

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Store
    log_end: Callable[[], int]
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    statistics: Statistics
    intake: Intake
    durability: Durability
    long_polling: LongPolling
    expiring: Expiring
    orders: Table[OrderTable]
    store_host: bytes
    now: Callable[[], float] = time.time
    max_backlog: int = MAX_BACKLOG
    is_master: bool = True
    """Whether this broker may write the journal; a slave that acts keeps its events in memory."""
    is_serving: bool = field(init=False)
    """Whether this broker serves pops: as a master, or as a slave that acts for one."""
    state: PopState = field(init=False)
    journal: Journal = field(init=False)
    polling: Polling = field(init=False)
    positions: Positions = field(init=False)
    retry_topics: RetryTopics = field(init=False)
    admission: Admission = field(init=False)
    delivery: PopDelivery = field(init=False)
    reviver: Reviver = field(init=False)
    checkpointer: PopCheckpointer = field(init=False)
    java_revive_log: JavaReviveLog = field(init=False)
    is_closing: bool = field(init=False, default=False)
    """Whether pops return no more messages because the broker is shutting down."""
    _wake_up: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _taken_over: list[Event] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.is_serving = self.is_master
        self.state = PopState(self.now)
        self.polling = Polling(self.long_polling, self.cell)
        self.journal = Journal(
            self.state,
            store=self.store,
            intake=self.intake if self.is_master else NoIntake(self.store),
            durability=self.durability,
            store_host=self.store_host,
            now=self.now,
        )
        self.positions = Positions(
            self.state, self.journal, offsets=self.offsets, store=self.store, cell=self.cell
        )
        self.retry_topics = RetryTopics(
            self.cell, topics=self.topics, groups=self.groups, has_more=self.has_more
        )
        self.checkpointer = PopCheckpointer(
            self.state,
            self.journal,
            offsets=self.offsets,
            orders=self.orders,
            store=self.store,
            log_end=self.log_end,
            max_backlog=self.max_backlog,
            max_age=self._max_journal_age,
        )
        self.admission = Admission(self.cell, self.topics, self.groups)
        self._build_background_parts()

    def _build_background_parts(self) -> None:
        self.delivery = PopDelivery(
            cell=self.cell,
            store_cell=self.store_cell,
            store=self.store,
            state=self.state,
            journal=self.journal,
            positions=self.positions,
            order=QueueOrder(cell=self.cell, groups=self.groups, retry_topics=self.retry_topics),
            expiring=self.expiring,
            now=self.now,
        )
        self.reviver = Reviver(
            state=self.state,
            journal=self.journal,
            polling=self.polling,
            retry_topics=self.retry_topics,
            store=self.store,
            intake=self.intake,
            durability=self.durability,
            topics=self.topics,
            statistics=self.statistics,
            store_host=self.store_host,
        )
        self.java_revive_log = self._build_java_revive_log()

    def _build_java_revive_log(self) -> JavaReviveLog:
        config = self.cell.value
        topic = revive_topic(config.broker_cluster_name)
        found = self.topics.find(topic)
        self.intake.watch(topic, self.wake)
        return JavaReviveLog(
            topic=topic,
            queues=found.read_queue_nums if found else config.revive_queue_num,
            state=self.state,
            journal=self.journal,
            checkpointer=self.checkpointer,
            positions=self.positions,
            offsets=self.offsets,
            store=self.store,
            intake=self.intake,
            store_host=self.store_host,
            exists=self._is_queue,
        )

    # ---- life

    def load(self) -> None:
        """Restore the state after a restart. Blocks; call before serving pops."""
        self.checkpointer.load(self._exists)

    def start(self) -> None:
        for group in {name[1] for name in self.state.queues}:
            with suppress(GroupNotFound):  # a crash loses groups created just before
                self.groups.require(group)
        self.checkpointer.start()
        self._write_taken_over()
        self.java_revive_log.start()

    def take_over(self, events: Sequence[Event]) -> None:
        """Have `start` write what a slave did that acted for this master: whole queues, each with
        its position first."""
        self._taken_over += events

    def _write_taken_over(self) -> None:
        events, self._taken_over = self._taken_over, []
        known = {
            event.queue
            for event in events
            if isinstance(event, Repositioned)
            and self._is_queue(event.queue)
            and event.offset <= self.store.max_offset(event.topic, event.queue_id)
        }
        for event in events:
            if event.queue in known:
                self.journal.append_or_defer(event)
        if known:
            log.info("took %s popped queues over from the slave that acted", len(known))

    def close(self) -> None:
        self.is_closing = True

    def require_serving(self) -> None:
        """Refuse at a slave that does not act: an acknowledgement that it accepted would be lost.

        Raises:
            ServiceNotAvailable: this broker is a slave.
        """
        if not self.is_serving:
            raise ServiceNotAvailable(
                "service not available now: this broker is a slave, and the master of its group"
                " serves pops"
            )

    async def run(self) -> None:
        time = asyncio.get_running_loop().time
        published = time()
        while True:
            self._wake_up.clear()
            # Not once per pop: publishing waits for a flush.
            is_publish_due = time() - published >= _TICK
            try:
                busy = await self.work(publish=is_publish_due)
            except Exception:  # background task: log and retry
                log.exception("periodic work of POP failed; it is retried")
                busy = False
                await asyncio.sleep(_TICK)
            if is_publish_due:
                published = time()
            await self._sleep(0.0 if busy else self._pause())

    async def work(self, *, publish: bool = True) -> bool:
        """Run one round of periodic work; return whether more work is due."""
        more = await self.reviver.revive_due()
        more |= await self.java_revive_log.read()
        if publish:
            if self.checkpointer.waits_for_disk:
                await on_thread(REVIVAL, self.store.flush)
            self.checkpointer.publish()
        return self.checkpointer.compact_journal() or more

    def wake(self) -> None:
        """Wake the background task: a lease may expire earlier than it expected."""
        self._wake_up.set()

    def save_due(self, now: float) -> None:
        """Save the table of ordered pops if it is due. Blocks; raises OSError."""
        self.checkpointer.save_orders(now)

    def save(self) -> None:
        """Commit the offsets of all groups at shutdown. Blocks."""
        self.checkpointer.publish_all()

    def forget_group(self, group: str) -> None:
        """Drop the pops of a deleted group; its offsets may remain."""
        self.positions.forget("", group)

    # ---- queries

    def has_more(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a queue has messages that the group has not popped."""
        return self.count_messages(topic, group, queue_id, ordered=False) > 0

    def count_messages(self, topic: str, group: str, queue_id: int, *, ordered: bool) -> int:
        """Count the messages of a queue that the group has not popped.

        Those of an ordered pop in flight count with `ordered`: who repeats it gets them again.
        """
        name = (topic, group, queue_id)
        begin, queue = self.positions.peek(name), self.state.queues.get(name)
        if ordered and queue is not None:
            begin = min(begin, queue.low)
        return max(self.store.max_offset(topic, queue_id) - begin, 0)

    def is_open(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, *, ordered: bool
    ) -> bool:
        """Whether a queue may be popped now; an ordered pop blocks the next one."""
        queue = self.state.queues.get((topic, group, queue_id))
        return not ordered or queue is None or not self.state.is_blocked(queue, attempt_id)

    # ---- inside

    def _exists(self, topic: str, group: str) -> bool:
        return normal_topic(topic, group) in self.topics

    def _is_queue(self, name: QueueName) -> bool:
        topic = self.topics.find(name[0])
        return (
            topic is not None
            and 0 <= name[2] < topic.read_queue_nums
            and self._exists(name[0], name[1])
            and name[1] in self.groups
        )

    def _max_journal_age(self) -> float:
        """Seconds after which journal records are rewritten, well before retention deletes them."""
        return self.store_cell.value.file_reserved_hours * 3600 / _REWRITES_PER_RETENTION

    def _pause(self) -> float:
        due = self.state.next_due
        max_sleep = _TICK if self.checkpointer.is_behind else _MAX_SLEEP
        if due is None:
            return max_sleep
        # Not longer than a tick: the wall clock may be set forward.
        return min(max((due - self.state.now) / 1000, _MIN_SLEEP), _TICK, max_sleep)

    async def _sleep(self, seconds: float) -> None:
        if seconds == 0.0:
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()
