"""What a broker is assembled from (`Surroundings`, `Tables`) and of (`Parts`)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bolide.auth.audit import Auditor
from bolide.broker.background import Background
from bolide.broker.consume.assignments import (
    Assignments,
)
from bolide.broker.consume.expiry import Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.consume.pull import Pulls
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.delay import DelayScheduler
from bolide.broker.filters.filters import Filters
from bolide.broker.gate import Gate
from bolide.broker.maintenance import Maintenance
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.pop import Pop
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.produce.send import SendHandlers
from bolide.broker.replicas.acting_master import ActingMaster
from bolide.broker.replicas.controllers import GroupState
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.replicas.role import Role
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.static_topics.cleaning import MappingCleaner
from bolide.broker.static_topics.peers import Peers
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers
from bolide.broker.transactions.coordinator import Coordinator
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.protocol.message_id import UniqueIdMaker
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.replication.epochs import Epochs
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore

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
    role: Role
    epochs: Epochs | None = None
    """Of the log, in controller mode."""
    observe: Callable[[GroupState], None] = lambda _: None
    """Receives what controllers tell about the group."""
    controllers: Callable[[], Collection[str]] = tuple
    """Addresses of the known controllers."""
    disk: Disk | None = None
    unique_ids: UniqueIdMaker | None = None


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of one broker. Only `assembly` and `server` see them all."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: MessageStore
    gate: Gate
    auditor: Auditor
    role: Role
    replication: MasterReplication | SlaveReplication
    acting: ActingMaster | None
    """What a slave does while its group has no master."""
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

    @property
    def master(self) -> MasterReplication | None:
        """Replication, if this broker is a master."""
        return self.replication if isinstance(self.replication, MasterReplication) else None

    def connection_lost(self, connection: Connection) -> None:
        """Forget a client whose connection is gone."""
        self.clients.connection_lost(connection)
        if self.fast_path is not None:
            self.fast_path.plans.forget(connection)
