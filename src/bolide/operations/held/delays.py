"""Messages that wait at the delay levels of a broker: delayed ones, and retries of consumers.

They are no timers: each level has a queue, from which they are delivered in turn. Brokers of every
version tell how far they are in it.
"""

from dataclasses import dataclass

from bolide.admin.unconsumed import delivered_delays, left
from bolide.errors import BolideError
from bolide.model.names import SCHEDULE_TOPIC
from bolide.operations.cluster import Cluster
from bolide.protocol.refusals import TopicNotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayLevel:
    """How many messages wait at a delay level of a broker."""

    level: int
    """From 1."""
    delay: str
    """How long they wait there, such as 10s; empty if unknown."""
    waiting: int


async def waiting_by_level(cluster: Cluster, address: str) -> list[DelayLevel]:
    """The delay levels of a broker at which messages wait; raises BolideError."""
    found = await cluster.shared(
        f"delayed by level {address}", lambda: _waiting(cluster, address), seconds=5
    )
    if not found:
        return []
    delays = await _delays(cluster, address)
    return [
        DelayLevel(
            level=level, delay=delays[level - 1] if level <= len(delays) else "", waiting=waiting
        )
        for level, waiting in sorted(found.items())
    ]


async def _waiting(cluster: Cluster, address: str) -> dict[int, int]:
    delivered = delivered_delays(await cluster.admin.brokers.runtime(address))
    try:
        stats = await cluster.admin.topics.stats_at(address, SCHEDULE_TOPIC)
    except TopicNotFound:
        return {}
    found = {}
    for queue, bounds in stats.offset_table.items():
        waiting = left(delivered, {queue.queue_id: bounds})
        if waiting:
            found[queue.queue_id + 1] = waiting
    return found


async def _delays(cluster: Cluster, address: str) -> list[str]:
    try:
        settings = await cluster.shared(
            f"broker settings {address}", lambda: cluster.admin.brokers.config(address), seconds=60
        )
    except BolideError:
        return []
    return settings.get("messageDelayLevel", "").split()
