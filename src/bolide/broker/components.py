"""What a broker is assembled from (`Surroundings`, `Tables`) and of (`Parts`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.auth.audit import Auditor
from bolide.broker.background import Background
from bolide.broker.consume.assignments import (
    Assignments,
)
from bolide.broker.consume.expiry import EXPIRING_TOPICS, Expiring, ExpiringTopics
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.consume.pull import Pulls
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.delay import DelayScheduler
from bolide.broker.filters.filters import Filters
from bolide.broker.filters.functions import (
    FILTER_FUNCTIONS,
    FunctionTable,
)
from bolide.broker.gate import Gate
from bolide.broker.maintenance import Maintenance
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.ordered import ORDERS, OrderTable
from bolide.broker.pop.pop import Pop
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.produce.send import SendHandlers
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.static_topics.cleaning import MappingCleaner
from bolide.broker.static_topics.peers import Peers
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers
from bolide.broker.transactions.coordinator import Coordinator
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.pop import RequestModeTable
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.protocol.bodies.topics import QueueMappingTable, TopicConfigTable
from bolide.protocol.message_id import UniqueIdMaker
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.store import tables as kinds
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.tables import ConsumerFilters, DelayOffsets, Table

if TYPE_CHECKING:
    from bolide.broker.fast_path.path import FastPath


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What a broker is assembled from."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: MessageStore
    host: Host
    """The address that clients are told."""
    gate: Gate
    now: Callable[[], float]
    ignored: Mapping[str, str]
    """Settings of RocketMQ that were given and have no effect."""
    disk: Disk | None = None
    unique_ids: UniqueIdMaker | None = None


@dataclass(slots=True, kw_only=True)
class Tables:
    """The tables below `config`, as their files have them."""

    topics: Table[TopicConfigTable]
    queue_mappings: Table[QueueMappingTable]
    groups: Table[GroupConfigTable]
    offsets: Table[ConsumerOffsets]
    delay_offsets: Table[DelayOffsets]
    timer_metrics: Table[TimerMetrics]
    request_modes: Table[RequestModeTable]
    consumer_filters: Table[ConsumerFilters]
    filter_functions: Table[FunctionTable]
    expiring_topics: Table[ExpiringTopics]
    orders: Table[OrderTable]

    def load(self) -> None:
        """Read all files. Blocks."""
        for each in fields(self):
            getattr(self, each.name).load()

    @classmethod
    def below(cls, root: Path, disk: Disk | None) -> "Tables":
        config = root / "config"
        return cls(
            topics=Table(config, kinds.TOPICS, disk=disk),
            queue_mappings=Table(config, kinds.QUEUE_MAPPINGS, disk=disk),
            groups=Table(config, kinds.GROUPS, disk=disk),
            offsets=Table(config, kinds.CONSUMER_OFFSETS, disk=disk),
            delay_offsets=Table(config, kinds.DELAY_OFFSETS, disk=disk),
            timer_metrics=Table(config, kinds.TIMER_METRICS, disk=disk),
            request_modes=Table(config, kinds.REQUEST_MODES, disk=disk),
            consumer_filters=Table(config, kinds.CONSUMER_FILTERS, disk=disk),
            filter_functions=Table(config, FILTER_FUNCTIONS, disk=disk),
            expiring_topics=Table(config, EXPIRING_TOPICS, disk=disk),
            orders=Table(config, ORDERS, disk=disk),
        )


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of one broker. Only `assembly` and `server` see them all."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: MessageStore
    gate: Gate
    auditor: Auditor
    # metadata
    topics: TopicTable
    mappings: QueueMappings
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    locks: QueueLocks
    filters: Filters
    expiring: Expiring
    assignments: Assignments
    # the way into the store, and what waits for it
    statistics: Statistics
    background: Background
    durability: Durability
    long_polling: LongPolling
    intake: Intake
    # features
    duplicates: Duplicates
    delay: DelayScheduler
    timers: Timers
    transactions: Coordinator
    sends: SendHandlers
    pulls: Pulls
    pop: Pop
    peers: Peers
    mapping_cleaner: MappingCleaner
    maintenance: Maintenance
    # requests
    dispatcher: Dispatcher
    fast_path: "FastPath | None"

    def connection_lost(self, connection: Connection) -> None:
        """Forget a client whose connection is gone."""
        self.clients.connection_lost(connection)
        if self.fast_path is not None:
            self.fast_path.plans.forget(connection)
