"""The parts of a broker, as those who put handlers together get them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bolide.broker.arrivals import Arrivals
from bolide.broker.assignments import Assignments
from bolide.broker.background import Background
from bolide.broker.clients import ClientTable
from bolide.broker.config import BrokerConfig
from bolide.broker.delay import DelayScheduler
from bolide.broker.duplicates import Duplicates
from bolide.broker.durability import Durability
from bolide.broker.expiry import Expiring
from bolide.broker.fast_path import FastPath
from bolide.broker.filters.filters import Filters
from bolide.broker.groups import GroupTable
from bolide.broker.hooks import Hooks
from bolide.broker.intake import Intake
from bolide.broker.keeping import Keeping
from bolide.broker.key_windows import KeyWindows
from bolide.broker.offsets import OffsetTable
from bolide.broker.pop.orders import OrderTable
from bolide.broker.pop.service import Pop
from bolide.broker.pull_lanes import PullLanes
from bolide.broker.pulls import PullParts, Pulls
from bolide.broker.queue_locks import QueueLocks
from bolide.broker.recurring import Recurring
from bolide.broker.send_lanes import SendLanes
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers, Timetable
from bolide.broker.topics import TopicTable
from bolide.broker.transactions.coordinator import Coordinator
from bolide.broker.transactions.ending import EndingParts
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import UniqueIdMaker
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore
from bolide.store.tables import Table


@dataclass(slots=True, kw_only=True)
class Parts:
    """Only `app` and `handlers.all_handlers` see them all; each handler gets the few it needs."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: MessageStore
    ignored: Mapping[str, str]
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    locks: QueueLocks
    statistics: Statistics
    durability: Durability
    arrivals: Arrivals
    intake: Intake
    background: Background
    delay: DelayScheduler
    timers: Timers
    assignments: Assignments
    expiring: Expiring
    filters: Filters
    orders: Table[OrderTable]
    hooks: Hooks
    unique_ids: UniqueIdMaker
    host: Host
    now: Callable[[], float]
    duplicates: Duplicates = field(init=False)
    fast_path: FastPath = field(init=False)
    keeping: Keeping = field(init=False)
    pop: Pop = field(init=False)
    pulls: Pulls = field(init=False)
    transactions: Coordinator = field(init=False)

    def __post_init__(self) -> None:
        windows = KeyWindows(
            cell=self.cell,
            store=self.store,
            topics=self.topics,
            background=self.background,
            waiting=self.delay.progress,
            now=self.now,
        )
        self.duplicates = Duplicates(
            windows,
            store=self.store,
            intake=self.intake,
            durability=self.durability,
            now=self.now,
        )
        self.timers.on_delivered.append(Recurring(self.topics.find, self.now).continued)
        self.delay.is_delivered = self.duplicates.is_delivered
        self.pulls = self._pulls()
        self.transactions = self._coordinator()
        self.fast_path = FastPath(self._send_lanes(), PullLanes(self.pulls))
        self.pop = self._pop()
        self.keeping = Keeping(
            pop=self.pop,
            offsets=self.offsets,
            groups=self.groups,
            delay=self.delay,
            timers=self.timers,
            filters=self.filters,
            statistics=self.statistics,
            clients=self.clients,
            locks=self.locks,
            store_config=self.store_cell,
        )

    def _coordinator(self) -> Coordinator:
        ending = EndingParts(
            store=self.store,
            topics=self.topics,
            intake=self.intake,
            duplicates=self.duplicates,
            durability=self.durability,
            statistics=self.statistics,
            store_host=pack_host(self.host),
            max_level=self.delay.max_level,
            timetable=Timetable(self.cell, self.now, lenient=True),
            now=self.now,
        )
        return Coordinator(
            ending,
            cell=self.cell,
            store_cell=self.store_cell,
            offsets=self.offsets,
            clients=self.clients,
            host=self.host,
            last_record=self.store.log.last_record,
        )

    def _send_lanes(self) -> SendLanes:
        return SendLanes(
            cell=self.cell,
            store_cell=self.store_cell,
            store=self.store,
            topics=self.topics,
            intake=self.intake,
            durability=self.durability,
            statistics=self.statistics,
            store_host=self.host,
            hooks=self.hooks,
            halves=self.transactions.queue,
        )

    def _pulls(self) -> Pulls:
        return Pulls(
            PullParts(
                cell=self.cell,
                store_cell=self.store_cell,
                store=self.store,
                log_end=lambda: self.store.log.written,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                clients=self.clients,
                arrivals=self.arrivals,
                statistics=self.statistics,
                background=self.background,
                expiring=self.expiring,
                filters=self.filters,
                hooks=self.hooks,
                now=self.now,
            )
        )

    def _pop(self) -> Pop:
        return Pop(
            cell=self.cell,
            store_cell=self.store_cell,
            store=self.store,
            log_end=lambda: self.store.log.written,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            statistics=self.statistics,
            intake=self.intake,
            durability=self.durability,
            arrivals=self.arrivals,
            expiring=self.expiring,
            orders=self.orders,
            store_host=pack_host(self.host),
            now=self.now,
        )
