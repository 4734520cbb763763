"""Parked keys: message keys that the ordered consumers of a group have set aside.

Parked keys can be listed, resumed, or turned into dead letters.
"""

from collections import defaultdict
from dataclasses import dataclass

from bolide.admin.errors import AdminError
from bolide.admin.messages import Messages
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers
from bolide.client.consumer.parking.parked_keys import NONE, ParkedKey, ParkedKeys
from bolide.client.consumer.parking.records import (
    PARK_QUEUES,
    Kind,
    ParkRecord,
    park_queue,
    read_record,
    send_header,
)
from bolide.model.message_queue import MessageQueue
from bolide.model.names import park_topic
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import TopicNotFound


class NotParked(AdminError):
    """No such key is parked."""

    def __init__(self, group: str, key: str | None) -> None:
        what = "no key" if key is None else f"no key {key!r}"
        super().__init__(
            f"{what} of group {group!r} is parked; see `mqadmin listParked -g {group}`"
        )


@dataclass(frozen=True, slots=True)
class ParkedKeySummary:
    """A parked key; offsets are those of the source queue."""

    queue: MessageQueue
    key: str
    """Empty for messages without a key."""
    count: int
    since_ms: int
    """When the first message of the key was parked."""
    error: str
    is_resuming: bool
    """Whether the key was resumed, and its messages are handled as soon as a member runs."""
    first_offset: int
    last_offset: int


class Parked:
    """The parked keys of the groups of a cluster."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._messages = Messages(servers)
        self._offsets = Offsets(servers)

    async def keys(
        self, group: str, *, topic: str | None = None, key: str | None = None
    ) -> list[ParkedKeySummary]:
        """The parked keys of a group, optionally of one topic or with one name."""
        try:
            addresses = await self._servers.addresses_of(park_topic(group))
        except TopicNotFound:
            return []  # the first member with parking enabled creates the topic
        found = [
            _summary(source, parked)
            for broker in addresses
            for number in range(PARK_QUEUES)
            for source, keys in (await self._read(group, broker, number)).items()
            for parked in keys
        ]
        wanted = [each for each in found if topic in {None, each.queue.topic}]
        return sorted(
            (each for each in wanted if key in {None, each.key}),
            key=lambda each: (each.queue, each.key),
        )

    async def resume(
        self, group: str, *, topic: str | None = None, key: str | None = None
    ) -> list[ParkedKeySummary]:
        """Resume keys: their parked messages are handled in order, then later ones.

        Returns:
            The keys as they were before.

        Raises:
            NotParked: no key matches.
        """
        return await self._decide(group, topic, key, dead=False)

    async def dead_letter(
        self, group: str, *, topic: str | None = None, key: str | None = None
    ) -> list[ParkedKeySummary]:
        """Send the parked messages to the dead-letter topic and resume later ones; as `resume`."""
        return await self._decide(group, topic, key, dead=True)

    async def _decide(
        self, group: str, topic: str | None, key: str | None, *, dead: bool
    ) -> list[ParkedKeySummary]:
        found = await self.keys(group, topic=topic, key=key)
        if not found:
            raise NotParked(group, key)
        for each in found:
            await self._write(group, each, each.last_offset if dead else NONE)
        return found

    async def _write(self, group: str, key: ParkedKeySummary, dead_through: int) -> None:
        record = ParkRecord(
            kind=Kind.RESUME,
            topic=key.queue.topic,
            queue_id=key.queue.queue_id,
            key=key.key,
            offset=dead_through,
        )
        properties, body = record.carried()
        header = send_header(properties, park_queue(group, key.queue))
        address = await self._servers.address_of(key.queue.broker_name)
        code = RequestCode.SEND_MESSAGE_V2
        await self._servers.call(address, code, header.to_short(), body=body)

    async def _read(self, group: str, broker: str, number: int) -> dict[MessageQueue, ParkedKeys]:
        """The parked keys recorded in one park queue, by source queue."""
        queue = MessageQueue(park_topic(group), broker, number)
        found: defaultdict[MessageQueue, ParkedKeys] = defaultdict(ParkedKeys)
        at, end = await self._offsets.min(queue), await self._offsets.max(queue)
        while at < end:
            pulled = await self._messages.pull(queue, at)
            for message in pulled.messages:
                if record := read_record(message):
                    source = MessageQueue(record.topic, broker, record.queue_id)
                    found[source].apply(record, message.queue_offset, message.store_timestamp)
            if pulled.next_offset <= at:
                break
            at = pulled.next_offset
        return found


def _summary(source: MessageQueue, parked: ParkedKey) -> ParkedKeySummary:
    return ParkedKeySummary(
        queue=source,
        key=parked.key,
        count=len(parked.entries),
        since_ms=parked.since_ms,
        error=parked.error,
        is_resuming=parked.is_resuming,
        first_offset=parked.first.queue_offset,
        last_offset=parked.last_offset,
    )
