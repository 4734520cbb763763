"""What happened to a message after it was sent.

`Traces` reads the records that clients publish to the trace topic. `Tracks` compares the committed
offsets of consumer groups with the position of the message (`MessageTrack` in RocketMQ).
"""

from dataclasses import dataclass
from enum import StrEnum

from bolide.admin.clients import Clients
from bolide.admin.errors import GroupOffline, GroupUnknown, MessageNotFound
from bolide.admin.messages import DEFAULT_LIMIT, Messages
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, address_of
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.names import TRACE_TOPIC
from bolide.protocol.bodies.consumers import ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.trace import (
    END_TRANSACTION,
    PUB,
    RECALL,
    SUB_AFTER,
    SUB_BEFORE,
    TraceRecord,
    read_records,
)

_STEPS = (PUB, END_TRANSACTION, RECALL, SUB_BEFORE, SUB_AFTER)
"""In the order in which they happen: all may be within the same millisecond."""
ALL_TAGS = "*"


@dataclass(frozen=True, slots=True)
class Traced:
    """One record of a message's trace."""

    record: TraceRecord
    client_host: str
    """The address that the record came from."""
    stored_ms: int
    """When the broker stored it, by its own clock."""

    @property
    def time_ms(self) -> int:
        """When it happened, by the client's clock; clients before 4.8 do not tell it of all."""
        return self.stored_ms if self.record.time_ms is None else self.record.time_ms


class Traces:
    """Traces as our clients write them, and Java's of all ages."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    async def of(
        self,
        message_id: str,
        *,
        topic: str = TRACE_TOPIC,
        begin: int = 0,
        end: int | None = None,
        limit: int = DEFAULT_LIMIT,
        cluster: str | None = None,
    ) -> list[Traced]:
        """The records of one message in the order of time.

        Args:
            message_id: the id that its sender was told.
            topic: the trace topic.
            begin: trace messages stored from then on, in ms.
            end: and until then.
            limit: trace messages to look at, of each broker.
            cluster: only the brokers of this one.

        Raises:
            MessageNotFound: nobody told of it.
            Refusal: there is no such topic.
        """
        found = await self._messages.by_key(
            topic, message_id, limit=limit, begin=begin, end=end, cluster=cluster
        )
        traced = [
            Traced(record, message.born_host.ip, message.store_timestamp)
            for message in found
            for record in read_records(message.body.decode("utf-8", "replace"))
            if isinstance(record, TraceRecord) and _tells_of(record, message_id)
        ]
        if not traced:  # it is the key of another message, or nobody can read what was told
            raise MessageNotFound(topic, f"id {message_id}")
        return sorted(traced, key=lambda each: (each.time_ms, _STEPS.index(each.record.kind)))


def _tells_of(record: TraceRecord, message_id: str) -> bool:
    """Java's clients tell of a batch as one, with commas between the ids."""
    return message_id in {record.message_id, *(record.message_id or "").split(",")}


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
