"""Removes parts of logical queues that are no longer needed (`TopicQueueMappingCleanService`).

Two kinds: the oldest item of a queue that this broker leads, when its messages have expired; and
queues that this broker handed on to another one, which has handed them on since.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.static_topics.peers import Peers
from bolide.broker.static_topics.physical_queues import QueueAccess
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.bodies.topics import MappedTopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.topics import TopicConfigHeader
from bolide.protocol.static_topics.addressing import is_logical, queue_leaders
from bolide.protocol.static_topics.positions import leads
from bolide.store.config import StoreConfig

log = logging.getLogger(__name__)

_INTERVAL = 300.0

Changes = dict[int, list[QueueMappingItem] | None]


class MappingCleaner:
    """Cleans all mappings in the hours of `deleteWhen`, in which messages expire too."""

    def __init__(
        self,
        mappings: QueueMappings,
        access: QueueAccess,
        store_cell: ConfigCell[StoreConfig],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._mappings = mappings
        self._access = access
        self._store_cell = store_cell
        self._now = now

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            if time.localtime(self._now()).tm_hour in self._store_cell.value.delete_hours:
                await self.clean()

    async def clean(self) -> None:
        """Clean the mappings of all topics once. A topic with a problem does not stop others."""
        for mapping in self._mappings:
            try:
                changes = await self._expired(mapping) | await self._handed_on(mapping)
                if changes:
                    log.info("topic %s: parts of queues %s removed", mapping.topic, list(changes))
                    await self._mappings.set_queues(mapping, changes)
            except BolideError as exc:
                log.warning("the mapping of topic %s is not cleaned: %s", mapping.topic, exc)

    async def _expired(self, mapping: QueueMappingDetail) -> Changes:
        """Queues whose oldest item has no messages any more, without that item."""
        changes: Changes = {}
        for number, items in mapping.hosted_queues.items():
            if len(items) > 1 and leads(mapping, items):
                oldest = self._access.of(mapping, items[0])
                if await oldest.min_offset() == await oldest.max_offset():
                    changes[number] = items[1:]
        return changes

    async def _handed_on(self, mapping: QueueMappingDetail) -> Changes:
        """Queues whose leader is neither this broker nor the one it handed the queue to."""
        lost = {
            number: items[-1].bname
            for number, items in mapping.hosted_queues.items()
            if items and not leads(mapping, items)
        }
        if not lost:
            return {}
        route = await self._access.peers.route(mapping.topic)
        leaders = {
            queue.queue_id: broker
            for queue, broker in queue_leaders(
                mapping.topic, route.topic_queue_mapping_by_broker
            ).items()
        }
        moved = {
            number: leader
            for number, heir in lost.items()
            if (leader := leaders.get(number)) and leader != heir and not is_logical(leader)
        }
        known = {
            leader: await _mapping_at(self._access.peers, leader, mapping.topic)
            for leader in set(moved.values())
        }
        return {
            number: None
            for number, leader in moved.items()
            if _confirms(known[leader], mapping, number)
        }


def _confirms(remote: QueueMappingDetail | None, mapping: QueueMappingDetail, number: int) -> bool:
    """Whether a broker confirms, in the same epoch, that it leads a queue."""
    return (
        remote is not None
        and (remote.total_queues, remote.epoch) == (mapping.total_queues, mapping.epoch)
        and leads(remote, remote.hosted_queues.get(number))
    )


async def _mapping_at(peers: Peers, broker: str, topic: str) -> QueueMappingDetail | None:
    reply = await peers.call(
        broker, RequestCode.GET_TOPIC_CONFIG, TopicConfigHeader(topic=topic, logical=True)
    )
    mapping = fastjson.decode(reply.body, MappedTopicConfig).mapping_detail
    return mapping if mapping is not None and mapping.bname == broker else None
