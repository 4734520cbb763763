"""Statistics of the logical queues of static topics, computed from those of physical queues."""

import asyncio
from collections.abc import Iterable, Mapping

from bolide.admin.servers import Servers, address_of
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.queues import QueueMappingItem
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.bodies.stats import QueueProgress
from bolide.protocol.bodies.topics import MappedTopicConfig, TopicOffset
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.topics import TopicConfigHeader
from bolide.protocol.static_topics.addressing import logical_broker_name
from bolide.protocol.static_topics.planning import led_by
from bolide.protocol.static_topics.positions import find_item, is_placed, logical_offset

LogicalQueues = dict[MessageQueue, list[QueueMappingItem]]
"""The items of each logical queue."""

_LONG_MAX = 2**63 - 1


async def logical_queues(servers: Servers, topics: Iterable[str]) -> LogicalQueues:
    """The logical queues of all static topics among these."""
    names = list(topics)
    routes = await asyncio.gather(*(_find_route(servers, topic) for topic in names))
    found: LogicalQueues = {}
    for topic, route in zip(names, routes, strict=True):
        if route is not None and route.topic_queue_mapping_by_broker:
            found |= await _queues_of(servers, topic, route)
    return found


async def _find_route(servers: Servers, topic: str) -> TopicRoute | None:
    """The route of a topic; a topic without one is taken for a plain topic."""
    try:
        return await servers.route(topic)
    except BolideError:
        return None


async def _queues_of(servers: Servers, topic: str, route: TopicRoute) -> LogicalQueues:
    header = TopicConfigHeader(topic=topic, logical=True)
    code = RequestCode.GET_TOPIC_CONFIG
    configs = [
        await servers.fetch(address_of(broker), code, MappedTopicConfig, header)
        for broker in route.broker_datas
        if broker.broker_addrs
    ]
    mappings = [config.mapping_detail for config in configs if config.mapping_detail]
    return {
        MessageQueue(topic, logical_broker_name(led.mapping.scope), number): led.items
        for number, led in led_by(mappings, complete=False).items()
    }


def logical_bounds(
    queues: LogicalQueues, physical: Mapping[MessageQueue, TopicOffset]
) -> dict[MessageQueue, TopicOffset]:
    """The bounds of logical queues; those without the bounds of their parts are left out."""
    found = {}
    for queue, items in queues.items():
        first, last = find_item(items, 0), find_item(items, _LONG_MAX)
        if first is None or last is None:
            continue
        low, high = physical.get(_part(queue, first)), physical.get(_part(queue, last))
        if low is not None and high is not None:
            found[queue] = TopicOffset(
                min_offset=logical_offset(first, low.min_offset),
                max_offset=logical_offset(last, high.max_offset),
                last_update_timestamp=high.last_update_timestamp,
            )
    return found


def logical_progress(
    queues: LogicalQueues, physical: Mapping[MessageQueue, QueueProgress]
) -> dict[MessageQueue, QueueProgress]:
    """The progress of a group in logical queues; queues that it has not consumed are left out."""
    found = {}
    for queue, items in queues.items():
        parts = [
            (item, physical[_part(queue, item)])
            for item in reversed(items)
            if is_placed(item) and _part(queue, item) in physical
        ]
        consumed = [(item, at) for item, at in parts if at.consumer_offset >= 0]
        if consumed:
            (last, end), (item, at) = parts[0], consumed[0]
            found[queue] = QueueProgress(
                broker_offset=logical_offset(last, end.broker_offset),
                consumer_offset=logical_offset(item, at.consumer_offset),
                pull_offset=logical_offset(item, at.pull_offset),
                last_timestamp=at.last_timestamp,
            )
    return found


def _part(queue: MessageQueue, item: QueueMappingItem) -> MessageQueue:
    """The physical queue of an item."""
    return MessageQueue(queue.topic, item.bname, item.queue_id)
