"""What one broker tells of a consumer group."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bolide.model.names import RETRY_PREFIX
from bolide.protocol.bodies.stats import ConsumeStats


@dataclass(frozen=True, slots=True)
class GroupPart:
    """The figures of a group at one broker; by default of a broker that does not know it."""

    lag: int = 0
    rate_out: float = 0.0
    topics: tuple[str, ...] = ()
    lagging: tuple[str, ...] = ()
    """Topics with lag, the largest first."""
    members: frozenset[str] = frozenset()
    delay: float | None = 0.0

    @classmethod
    def of(cls, stats: ConsumeStats, members: frozenset[str]) -> "GroupPart":
        """Without the delay of what is lagging."""
        lags: Counter[str] = Counter()
        for queue, progress in stats.offset_table.items():
            if progress.consumer_offset >= 0:  # otherwise a static topic's queue is elsewhere
                lags[queue.topic] += max(progress.broker_offset - progress.consumer_offset, 0)
        return cls(
            lag=sum(lags.values()),
            rate_out=stats.consume_tps,
            topics=tuple(sorted(each for each in lags if not each.startswith(RETRY_PREFIX))),
            lagging=tuple(topic for topic, lag in lags.most_common() if lag),
            members=members,
        )

    def with_delays(self, delays: Sequence[float | None]) -> "GroupPart":
        """With the delays of lagging topics; unknown if one of them is."""
        known = [each for each in delays if each is not None]
        return replace(self, delay=max(known, default=0.0) if len(known) == len(delays) else None)
