"""Planning of reads: which queues a query reads, how far a micro-batch goes, and data loss."""

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping

from bolide.arrow.cluster import Cluster
from bolide.arrow.errors import DataLost
from bolide.arrow.offsets import Bounds, Offsets, QueueRange, limit_ends
from bolide.arrow.retry import Backoff, gather_by_key, retry_transient
from bolide.client.errors import RouteNotFound
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.spark.options import SourceOptions

log = logging.getLogger(__name__)


async def require_queues(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    """The queues of the subscribed topics.

    Raises:
        RouteNotFound: no broker has a topic given by name; a pattern may match no topic.
    """
    return await cluster.queues(await _topics(cluster, options))


async def find_queues(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    """The queues of the subscribed topics; topics without a route at the moment have none."""
    topics = await _topics(cluster, options)
    found = await gather_by_key(topics, lambda topic: _find_topic_queues(cluster, topic))
    return sorted(queue for queues in found.values() for queue in queues)


def is_subscribed(topic: str, options: SourceOptions) -> bool:
    if options.topic_pattern is None:
        return topic in options.topic
    return re.fullmatch(options.topic_pattern, topic) is not None


async def _topics(cluster: Cluster, options: SourceOptions) -> list[str]:
    if options.topic_pattern is None:
        return sorted(set(options.topic))
    return await cluster.topics_matching(options.topic_pattern)


async def _find_topic_queues(cluster: Cluster, topic: str) -> list[MessageQueue]:
    routes, wire = cluster.instance.routes, cluster.settings.wrap(topic)

    async def lookup() -> list[MessageQueue]:
        try:
            await routes.refresh(wire)
            found = await routes.subscribe_queues(wire)
        except RouteNotFound:
            return []
        return [MessageQueue(topic, each.broker_name, each.queue_id) for each in found]

    async def no_recovery() -> None: ...

    return await retry_transient(
        Backoff(f"queues of topic {topic}", cluster.patience), lookup, no_recovery
    )


class QueuesGone(BolideError):
    """No broker has served queues of a stream for longer than the configured patience."""

    def __init__(self, queues: Collection[MessageQueue], seconds: float) -> None:
        names = ", ".join(map(str, sorted(queues)))
        super().__init__(
            f"no broker has served these queues for {seconds:.3g} s: {names}. Start their brokers,"
            " or restore the topics' number of queues. To continue without them, allow data"
            " loss (failOnDataLoss=false)"
        )
        self.queues = tuple(sorted(queues))
        self.seconds = seconds


def advance(
    start: Offsets,
    bounds: Mapping[MessageQueue, Bounds],
    *,
    target: Offsets | None = None,
    max_rows: int | None = None,
    fail_on_data_loss: bool = True,
) -> dict[MessageQueue, int]:
    """The end offsets of the next batch.

    New queues begin at 0; queues without a broker keep their position.

    Args:
        start: where the batch begins.
        bounds: the offsets that each reachable queue holds.
        target: where the run ends; queues without a target are not read.
        max_rows: approximate limit on the number of offsets in the batch.
        fail_on_data_loss: raise if messages that were to be read have been deleted.

    Raises:
        DataLost: messages that were to be read have been deleted.
    """
    if target is not None:
        bounds = {queue: held for queue, held in bounds.items() if queue in target}
    begin, end = {}, {}
    for queue, held in bounds.items():
        begin[queue] = first = _first_readable(queue, start.get(queue, 0), held, fail_on_data_loss)
        last = held.end if target is None else min(held.end, target[queue])
        end[queue] = max(first, last)
    if max_rows is not None:
        end = limit_ends(begin, end, max_rows)
    return {**start, **end}


def ranges_between(start: Offsets, end: Offsets) -> list[QueueRange]:
    """The ranges of a batch; queues that are new or were recreated are read from 0."""
    ranges = []
    for queue in sorted(end):
        first = start.get(queue, 0)
        ranges.append(QueueRange(queue, first if first <= end[queue] else 0, end[queue]))
    return [part for part in ranges if part.size]


class AbsenceTracker:
    """Tracks for how long queues have had no broker.

    NameServers drop a restarting broker at once, so it is given time to come back.
    """

    def __init__(
        self, patience: float, *, fail: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience = patience
        self._fail = fail
        self._now = now
        self._since: dict[MessageQueue, float] = {}

    def should_wait(self, absent: Collection[MessageQueue]) -> bool:
        """Whether the caller should wait for some of the absent queues.

        Queues of the previous call that are not in `absent` are back.

        Raises:
            QueuesGone: queues have been absent for too long, and data loss is not allowed.
        """
        now = self._now()
        if new := sorted(queue for queue in absent if queue not in self._since):
            log.warning("no broker serves %s at the moment", ", ".join(map(str, new)))
        self._since = {queue: self._since.get(queue, now) for queue in absent}
        gone = [queue for queue, since in self._since.items() if now - since >= self._patience]
        if gone and self._fail:
            raise QueuesGone(gone, self._patience)
        return len(gone) < len(self._since)


def _first_readable(queue: MessageQueue, wanted: int, held: Bounds, fail_on_data_loss: bool) -> int:
    """The first offset from `wanted` on that the queue still holds."""
    if held.oldest <= wanted <= held.end:
        return wanted
    if fail_on_data_loss:
        raise DataLost(queue, wanted, held.oldest, held.end)
    lost = held.oldest - wanted if wanted < held.oldest else wanted - held.end
    log.warning("queue %s: about %d messages are gone, continuing at %d", queue, lost, held.oldest)
    return held.oldest
