"""Which groups have consumed a message."""

from dataclasses import dataclass
from enum import StrEnum

from bolide.admin.clients import Clients
from bolide.admin.errors import GroupOffline, GroupUnknown
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, address_of
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.consumers import ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel

ALL_TAGS = "*"


class TrackType(StrEnum):
    """What a group has to do with a message."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Track:
    """One group and one message; `reason` says why nothing is known."""

    group: str
    kind: TrackType
    reason: str | None = None


class Tracks:
    """Follows messages to the groups of their topic."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._topics = Topics(servers)
        self._clients = Clients(servers)
        self._offsets = Offsets(servers)

    async def of(self, message: StoredMessage) -> list[Track]:
        """What each group that consumes the topic has to do with the message."""
        return [
            await self._track(message, each) for each in await self._topics.groups(message.topic)
        ]

    async def _track(self, message: StoredMessage, group: str) -> Track:
        try:
            clients = await self._clients.consumers(group)
            return Track(group, await self._kind(message, group, clients))
        except (GroupOffline, GroupUnknown) as exc:
            return Track(group, TrackType.NOT_ONLINE, str(exc))
        except BolideError as exc:
            return Track(group, TrackType.UNKNOWN, str(exc))

    async def _kind(
        self, message: StoredMessage, group: str, clients: ConsumerConnections
    ) -> TrackType:
        if clients.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return TrackType.PULL
        if clients.message_model is MessageModel.BROADCASTING:
            return TrackType.CONSUME_BROADCASTING
        if not await self._is_past(message, group):
            return TrackType.NOT_CONSUME_YET
        subscription = clients.subscription_table.get(message.topic)
        tags = subscription.tags_set if subscription else []
        if not tags or ALL_TAGS in tags or message.tags in tags:
            return TrackType.CONSUMED
        return TrackType.CONSUMED_BUT_FILTERED

    async def _is_past(self, message: StoredMessage, group: str) -> bool:
        """Whether the group's position in the message's queue is behind it."""
        brokers = (await self._servers.info()).broker_addr_table
        stored_at = str(message.store_host)
        names = {n for n, b in brokers.items() if b.broker_addrs and address_of(b) == stored_at}
        progress = await self._offsets.progress(group, message.topic)
        return any(
            queue.topic == message.topic
            and queue.queue_id == message.queue_id
            and queue.broker_name in names
            and place.consumer_offset > message.queue_offset
            for queue, place in progress.offset_table.items()
        )
