"""Builds the broker's object graph in one place and connects its events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bolide.broker.admin.consumers import ConsumerHandlers
from bolide.broker.admin.queries import QueryHandlers
from bolide.broker.admin.runtime import ReplicaHandlers, RuntimeHandlers
from bolide.broker.admin.topic_stats import StatsHandlers
from bolide.broker.background import Background
from bolide.broker.consume.assignments import AssignmentHandlers, Assignments
from bolide.broker.consume.expiry import Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.consume.pull import PullHandlers, PullParts, Pulls
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.delay import DelayScheduler
from bolide.broker.filters.filters import Filters
from bolide.broker.filters.functions import FilterHandlers
from bolide.broker.gate import Hooks
from bolide.broker.maintenance import Maintenance
from bolide.broker.metadata.client_handlers import ClientHandlers
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupHandlers, GroupTable
from bolide.broker.metadata.offset_handlers import OffsetHandlers
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.topic_handlers import TopicHandlers
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.ack_handlers import PopAckHandlers
from bolide.broker.pop.notification import NotificationHandlers
from bolide.broker.pop.ordered import OrderTable
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.pop_handlers import PopHandlers, PopParts
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.produce.request_reply import ReplyHandlers, ReplyPusher
from bolide.broker.produce.send import SendHandlers, SendParts
from bolide.broker.produce.send_back import SendBackHandlers, SendBackParts
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers, Timetable
from bolide.broker.timers.handlers import TimerHandlers
from bolide.broker.timers.recurring import Recurring
from bolide.broker.transactions.coordinator import Coordinator, TransactionHandlers
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
    long_polling: LongPolling
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
    maintenance: Maintenance = field(init=False)
    pop: Pop = field(init=False)
    pulls: Pulls = field(init=False)
    transactions: Coordinator = field(init=False)

    def __post_init__(self) -> None:
        windows = DedupWindows(
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
        self.maintenance = Maintenance(
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
                long_polling=self.long_polling,
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
            long_polling=self.long_polling,
            expiring=self.expiring,
            orders=self.orders,
            store_host=pack_host(self.host),
            now=self.now,
        )


__all__ = ["HANDLERS", "all_handlers"]

HANDLERS: tuple[type, ...] = (
    SendHandlers,
    ReplyHandlers,
    SendBackHandlers,
    PullHandlers,
    ClientHandlers,
    OffsetHandlers,
    TopicHandlers,
    GroupHandlers,
    QueryHandlers,
    StatsHandlers,
    ConsumerHandlers,
    RuntimeHandlers,
    ReplicaHandlers,
    TimerHandlers,
    AssignmentHandlers,
    PopHandlers,
    NotificationHandlers,
    PopAckHandlers,
    TransactionHandlers,
    FilterHandlers,
)
"""Each says by its marks which requests it answers."""


def all_handlers(parts: Parts) -> list[object]:
    """The handler groups of a broker, each with the parts it needs."""
    return [
        *_sends(parts),
        SendBackHandlers(
            SendBackParts(
                cell=parts.cell,
                store=parts.store,
                topics=parts.topics,
                groups=parts.groups,
                intake=parts.intake,
                durability=parts.durability,
                statistics=parts.statistics,
                store_host=parts.host,
                max_level=parts.delay.max_level,
                now=parts.now,
            )
        ),
        PullHandlers(parts.pulls),
        ClientHandlers(
            clients=parts.clients,
            groups=parts.groups,
            topics=parts.topics,
            locks=parts.locks,
            filters=parts.filters,
            cell=parts.cell,
        ),
        OffsetHandlers(
            store=parts.store,
            offsets=parts.offsets,
            groups=parts.groups,
            topics=parts.topics,
            clients=parts.clients,
        ),
        AssignmentHandlers(assignments=parts.assignments, topics=parts.topics, groups=parts.groups),
        TransactionHandlers(parts.transactions, parts.store, parts.background),
        PopHandlers(
            PopParts(
                cell=parts.cell,
                pop=parts.pop,
                filters=parts.filters,
                statistics=parts.statistics,
                background=parts.background,
                hooks=parts.hooks,
                now=parts.now,
            )
        ),
        NotificationHandlers(parts.pop, parts.cell, parts.now),
        PopAckHandlers(parts.pop, parts.statistics),
        *_administration(parts),
    ]


def _sends(parts: Parts) -> list[object]:
    """Those of messages that come in, replies among them."""
    sends = SendHandlers(
        SendParts(
            cell=parts.cell,
            topics=parts.topics,
            groups=parts.groups,
            locks=parts.locks,
            intake=parts.intake,
            duplicates=parts.duplicates,
            durability=parts.durability,
            statistics=parts.statistics,
            background=parts.background,
            expiring=parts.expiring,
            unique_ids=parts.unique_ids,
            store_host=parts.host,
            max_level=parts.delay.max_level,
            max_message_size=lambda: parts.store_cell.value.max_message_size,
            hooks=parts.hooks,
            now=parts.now,
        )
    )
    replies = ReplyHandlers(
        sends,
        ReplyPusher(parts.clients, parts.host, parts.now),
        cell=parts.cell,
        background=parts.background,
        now=parts.now,
    )
    return [sends, replies]


def _administration(parts: Parts) -> list[object]:
    """Those that administrators and replicas ask."""
    return [
        TopicHandlers(
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            clients=parts.clients,
            store=parts.store,
            cell=parts.cell,
            forget=parts.statistics.forget_topic,
        ),
        GroupHandlers(
            groups=parts.groups, offsets=parts.offsets, forget=partial(_forget_group, parts)
        ),
        QueryHandlers(store=parts.store, clients=parts.clients, filters=parts.filters.table),
        FilterHandlers(parts.filters.functions),
        StatsHandlers(
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            clients=parts.clients,
            statistics=parts.statistics,
            cell=parts.cell,
            now=parts.now,
        ),
        ConsumerHandlers(
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            clients=parts.clients,
            cell=parts.cell,
        ),
        RuntimeHandlers(
            store=parts.store,
            statistics=parts.statistics,
            cell=parts.cell,
            store_cell=parts.store_cell,
            delay=parts.delay,
            timer_figures=parts.timers.figures,
            boot_time=parts.now(),
            ignored=parts.ignored,
        ),
        ReplicaHandlers(offsets=parts.offsets, delay_offsets=parts.delay.table),
        TimerHandlers(
            parts.timers,
            topics=parts.topics,
            intake=parts.intake,
            durability=parts.durability,
            cell=parts.cell,
            store_host=parts.host,
            now=parts.now,
        ),
    ]


def _forget_group(parts: Parts, group: str) -> None:
    parts.statistics.forget_group(group)
    parts.pop.forget_group(group)
