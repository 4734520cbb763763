"""Which queues a query reads: those of its topics, or of all that match its pattern."""

import re

from bolide.arrow.cluster import Cluster
from bolide.arrow.retry import Patience, for_each, ride_out
from bolide.client.errors import RouteNotFound
from bolide.model.message_queue import MessageQueue
from bolide.spark.options import SourceOptions


async def require_queues(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    """The queues there are now.

    Raises:
        RouteNotFound: nobody has a topic that is named; a pattern may match none.
    """
    return await cluster.queues(await _topics(cluster, options))


async def find_queues(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    """The queues there are now: no topic is waited for that nobody has at the moment."""
    topics = await _topics(cluster, options)
    found = await for_each(topics, lambda topic: _find(cluster, topic))
    return sorted(queue for queues in found.values() for queue in queues)


def is_wanted(topic: str, options: SourceOptions) -> bool:
    if options.topic_pattern is None:
        return topic in options.topic
    return re.fullmatch(options.topic_pattern, topic) is not None


async def _topics(cluster: Cluster, options: SourceOptions) -> list[str]:
    if options.topic_pattern is None:
        return sorted(set(options.topic))
    return await cluster.topics_matching(options.topic_pattern)


async def _find(cluster: Cluster, topic: str) -> list[MessageQueue]:
    routes, wire = cluster.instance.routes, cluster.settings.wrap(topic)

    async def ask() -> list[MessageQueue]:
        try:
            await routes.refresh(wire)
            found = await routes.subscribe_queues(wire)
        except RouteNotFound:
            return []
        return [MessageQueue(topic, each.broker_name, each.queue_id) for each in found]

    async def nothing() -> None: ...

    return await ride_out(Patience(f"queues of topic {topic}", cluster.patience), ask, nothing)
