"""The queue mappings of static topics on this broker (`TopicQueueMappingManager`)."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator

import msgspec

from bolide.broker.background import save_or_restore
from bolide.events import Listeners
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.queues import QueueMapping, QueueMappingDetail, QueueMappingItem
from bolide.protocol.bodies.topics import QueueMappingTable
from bolide.protocol.static_topics.positions import (
    BadMapping,
    check_items,
    check_numbers,
    check_successors,
    published,
)
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table

log = logging.getLogger(__name__)

Mappings = dict[str, QueueMappingDetail]


class QueueMappings:
    """Mappings by topic, backed by a loaded table; belongs to one event loop.

    A change becomes visible after its file is written. Mappings are not modified: a change
    replaces them.
    """

    def __init__(
        self, table: Table[QueueMappingTable], now: Callable[[], float] = time.time
    ) -> None:
        self._table = table
        self._now = now
        self._mappings: Mappings = table.value.topic_queue_mapping_info_map
        self._writing = asyncio.Lock()
        self.on_change: Listeners[Collection[str]] = Listeners()
        """The mappings of these topics were created, changed or deleted."""

    def find(self, topic: str) -> QueueMappingDetail | None:
        return self._mappings.get(topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._mappings

    def __iter__(self) -> Iterator[QueueMappingDetail]:
        return iter(list(self._mappings.values()))

    def __len__(self) -> int:
        return len(self._mappings)

    @property
    def data_version(self) -> DataVersion:
        return self._table.value.data_version

    @property
    def details(self) -> Mappings:
        """All mappings by topic; a copy of the map."""
        return dict(self._mappings)

    def published(self) -> dict[str, QueueMapping]:
        """What NameServers are told."""
        return {topic: published(mapping) for topic, mapping in self._mappings.items()}

    # ---- changing

    def check(self, mapping: QueueMappingDetail, *, force: bool = False) -> QueueMappingDetail:
        """Return a new mapping, completed with what the old one has besides.

        Raises:
            BadMapping: it contradicts itself or the old one; `force` allows the latter.
        """
        check_numbers(mapping)
        for items in mapping.hosted_queues.values():
            check_items(items)
        old = self._mappings.get(mapping.topic)
        if old is None:
            return mapping
        if not force:
            _check_update(old, mapping)
        hosted = old.hosted_queues | mapping.hosted_queues
        return msgspec.structs.replace(mapping, hosted_queues=hosted)

    async def update(self, mapping: QueueMappingDetail, *, force: bool = False) -> None:
        """Create or replace a mapping.

        Raises:
            BadMapping: as in `check`.
            ServerError: the file cannot be written; nothing is changed.
        """

        def merge(mappings: Mappings) -> None:
            mappings[mapping.topic] = self.check(mapping, force=force)

        await self._change(merge)

    async def set_queues(
        self, mapping: QueueMappingDetail, changes: dict[int, list[QueueMappingItem] | None]
    ) -> None:
        """Replace the items of some queues, or remove queues, if the mapping is still the same.

        The epoch alone does not tell: the last step of a remapping keeps it.
        """

        def replace(mappings: Mappings) -> None:
            if mappings.get(mapping.topic) is not mapping:
                return
            merged = mapping.hosted_queues | changes
            hosted = {number: items for number, items in merged.items() if items is not None}
            mappings[mapping.topic] = msgspec.structs.replace(mapping, hosted_queues=hosted)

        await self._change(replace)

    async def delete(self, topic: str) -> None:
        await self._change(lambda mappings: mappings.pop(topic, None))

    async def _change(self, edit: Callable[[Mappings], object]) -> None:
        async def change() -> None:
            async with self._writing:
                mappings = dict(self._mappings)
                edit(mappings)
                if mappings != self._mappings:
                    await self._replace(mappings)

        await uninterrupted(change())

    async def _replace(self, mappings: Mappings) -> None:
        before, known = self._table.value, self._mappings
        version = self.data_version.bumped(int(self._now() * 1000))
        self._table.value = QueueMappingTable(
            topic_queue_mapping_info_map=mappings, data_version=version
        )
        self._table.changed()
        await save_or_restore(self._table, before)
        self._mappings = mappings
        topics = {
            topic
            for topic in known.keys() | mappings.keys()
            if known.get(topic) != mappings.get(topic)
        }
        log.info("queue mappings of %s changed", ", ".join(sorted(topics)))
        self.on_change(topics)


def _check_update(old: QueueMappingDetail, new: QueueMappingDetail) -> None:
    """Raise BadMapping unless `new` continues `old`."""
    if new.epoch < old.epoch:
        raise BadMapping(
            f"epoch {new.epoch} of topic {new.topic} is older than {old.epoch}, which this broker"
            " has: read the mappings again"
        )
    if new.scope != old.scope:
        raise BadMapping(f"topic {new.topic} has scope {old.scope}, not {new.scope}")
    same_epoch = new.epoch == old.epoch
    for number, items in old.hosted_queues.items():
        if number in new.hosted_queues:
            check_successors(items, new.hosted_queues[number], same_epoch=same_epoch)
        elif same_epoch:
            raise BadMapping(f"queue {number} of topic {new.topic} is missing, in the same epoch")
