"""POP of one broker: its parts, and the task that keeps them going."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bolide.broker.consume.expiry import Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.checkpointing import MOST_BEHIND, PopCheckpointer
from bolide.broker.pop.delivery import PopDelivery, Positions
from bolide.broker.pop.events import QueueName
from bolide.broker.pop.java_revive_log import JavaReviveLog
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.ordered import OrderTable
from bolide.broker.pop.polling import Admission, Polling
from bolide.broker.pop.revival import Retries, Reviver
from bolide.broker.pop.state import PopState
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.model.names import revive_topic
from bolide.protocol.pop_info import normal_topic
from bolide.protocol.refusals import GroupNotFound
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.tables import Table

log = logging.getLogger(__name__)

_TICK = 0.5
_PARTS_OF_RETENTION = 4
_LONGEST_SLEEP = 60.0
_SHORTEST_SLEEP = 0.001


@dataclass(slots=True, kw_only=True)
class Pop:
    """Everything about popped messages; `run` is its task.

    `log_end` says how far the log is written.
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
    most_behind: int = MOST_BEHIND
    state: PopState = field(init=False)
    journal: Journal = field(init=False)
    polling: Polling = field(init=False)
    positions: Positions = field(init=False)
    retries: Retries = field(init=False)
    admission: Admission = field(init=False)
    popping: PopDelivery = field(init=False)
    reviver: Reviver = field(init=False)
    keeper: PopCheckpointer = field(init=False)
    legacy: JavaReviveLog = field(init=False)
    is_closing: bool = field(init=False, default=False)
    """Whether nothing is given away any more: nobody would be there to take it."""
    _woken: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.state = PopState(self.now)
        self.polling = Polling(self.long_polling, self.cell)
        self.journal = Journal(
            self.state,
            store=self.store,
            intake=self.intake,
            durability=self.durability,
            store_host=self.store_host,
            now=self.now,
        )
        self.positions = Positions(
            self.state, self.journal, offsets=self.offsets, store=self.store, cell=self.cell
        )
        self.retries = Retries(
            self.cell, topics=self.topics, groups=self.groups, has_more=self.has_more
        )
        self.keeper = PopCheckpointer(
            self.state,
            self.journal,
            offsets=self.offsets,
            orders=self.orders,
            store=self.store,
            log_end=self.log_end,
            most_behind=self.most_behind,
            longest=self._longest_in_place,
        )
        self.admission = Admission(self.cell, self.topics, self.groups)
        self._build_workers()

    def _build_workers(self) -> None:
        self.popping = PopDelivery(
            cell=self.cell,
            store_cell=self.store_cell,
            store=self.store,
            state=self.state,
            journal=self.journal,
            positions=self.positions,
            retries=self.retries,
            expiring=self.expiring,
            now=self.now,
        )
        self.reviver = Reviver(
            state=self.state,
            journal=self.journal,
            polling=self.polling,
            retries=self.retries,
            store=self.store,
            intake=self.intake,
            durability=self.durability,
            topics=self.topics,
            statistics=self.statistics,
            store_host=self.store_host,
        )
        self.legacy = self._legacy()

    def _legacy(self) -> JavaReviveLog:
        config = self.cell.value
        topic = revive_topic(config.broker_cluster_name)
        found = self.topics.find(topic)
        self.intake.watch(topic, self.wake)
        return JavaReviveLog(
            topic=topic,
            queues=found.read_queue_nums if found else config.revive_queue_num,
            state=self.state,
            journal=self.journal,
            keeper=self.keeper,
            positions=self.positions,
            offsets=self.offsets,
            store=self.store,
            intake=self.intake,
            store_host=self.store_host,
            exists=self._is_queue,
        )

    # ---- life

    def load(self) -> None:
        """Know again what was popped. Blocks: call it before anybody pops."""
        self.keeper.load(self._exists)

    def start(self) -> None:
        for group in {name[1] for name in self.state.queues}:
            with suppress(GroupNotFound):  # a crash forgets groups that were made just before
                self.groups.require(group)
        self.keeper.start()
        self.legacy.start()

    def close(self) -> None:
        self.is_closing = True

    async def run(self) -> None:
        time = asyncio.get_running_loop().time
        published = time()
        while True:
            self._woken.clear()
            # Not as often as somebody pops: it waits for the disk.
            is_time = time() - published >= _TICK
            try:
                busy = await self.work(publish=is_time)
            except Exception:  # whatever it is, it is tried again
                log.exception("a chore of popped messages failed")
                busy = False
                await asyncio.sleep(_TICK)
            if is_time:
                published = time()
            await self._rest(0.0 if busy else self._pause())

    async def work(self, *, publish: bool = True) -> bool:
        """Do what there is to do now; says whether there is more."""
        more = await self.reviver.revive_due()
        more |= await self.legacy.read()
        if publish:
            if self.keeper.waits_for_disk:
                await asyncio.to_thread(self.store.flush)
            self.keeper.publish()
        return self.keeper.shorten() or more

    def wake(self) -> None:
        """Something may be due earlier than it was."""
        self._woken.set()

    def save_due(self, now: float) -> None:
        """Save what belongs into a file of its own, if it is time. Blocks; raises OSError."""
        self.keeper.save_orders(now)

    def save(self) -> None:
        """Publish how far all groups are, at the very end. Blocks."""
        self.keeper.publish_all()

    def forget_group(self, group: str) -> None:
        """A group is deleted; its offsets may stay."""
        self.positions.forget("", group)

    # ---- asked by others

    def has_more(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a queue has something that the group has not popped."""
        begin = self.positions.peek((topic, group, queue_id))
        return self.store.max_offset(topic, queue_id) > begin

    def is_open(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, *, ordered: bool
    ) -> bool:
        """Whether a queue may be popped now: in order, one pop waits for the other."""
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

    def _longest_in_place(self) -> float:
        """Seconds that the journal may be relied on: retention deletes what is older."""
        return self.store_cell.value.file_reserved_hours * 3600 / _PARTS_OF_RETENTION

    def _pause(self) -> float:
        due = self.state.next_due
        longest = _TICK if self.keeper.is_behind else _LONGEST_SLEEP
        if due is None:
            return longest
        # Not longer than a tick, whatever the clock says: somebody may move it.
        return min(max((due - self.state.now) / 1000, _SHORTEST_SLEEP), _TICK, longest)

    async def _rest(self, seconds: float) -> None:
        if seconds == 0.0:
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
