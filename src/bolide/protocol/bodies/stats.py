"""Statistics of a broker and lag of its groups."""

from msgspec import field

from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Long


class StatsWindow(Struct, kw_only=True):
    """One counter over one time window; `avgpt` is the average per call."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStats(Struct, kw_only=True):
    """Answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: StatsWindow | None = None
    stats_hour: StatsWindow | None = None
    stats_day: StatsWindow | None = None


class QueueProgress(Struct, kw_only=True):
    """Offsets of a group in one queue (`OffsetWrapper`)."""

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0


class ConsumeStats(Struct, kw_only=True):
    """Answer to GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, QueueProgress] = field(default_factory=dict)
    consume_tps: float = 0.0


class BrokerConsumeStats(Struct, kw_only=True):
    """Answer to GET_BROKER_CONSUME_STATS: one map per group, by its name."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: Long = 0
    total_inflight_diff: Long = 0
