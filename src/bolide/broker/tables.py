"""The tables of a broker below `config`, each with its file."""

from dataclasses import dataclass, fields
from pathlib import Path

from bolide.broker.consume.expiry import EXPIRING_TOPICS, ExpiringTopics
from bolide.broker.filters.functions import FILTER_FUNCTIONS, FunctionTable
from bolide.broker.pop.ordered import ORDERS, OrderTable
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.pop import RequestModeTable
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.protocol.bodies.topics import QueueMappingTable, TopicConfigTable
from bolide.store import tables as kinds
from bolide.store.disk import Disk
from bolide.store.tables import ConsumerFilters, DelayOffsets, Table


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
