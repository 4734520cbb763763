"""The small tables below `config` of a store, in the JSON that Java brokers write and read."""

from bolide.store.tables.filters import BloomPositions, ConsumerFilter, ConsumerFilters
from bolide.store.tables.kinds import (
    CONSUMER_FILTERS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    GROUPS,
    REQUEST_MODES,
    TIMER_METRICS,
    TOPICS,
    DelayOffsets,
)
from bolide.store.tables.table import Table, TableKind

__all__ = [
    "CONSUMER_FILTERS",
    "CONSUMER_OFFSETS",
    "DELAY_OFFSETS",
    "GROUPS",
    "REQUEST_MODES",
    "TIMER_METRICS",
    "TOPICS",
    "BloomPositions",
    "ConsumerFilter",
    "ConsumerFilters",
    "DelayOffsets",
    "Table",
    "TableKind",
]
