"""What happened to a message after it was sent.

`Traces` reads the records that clients publish to the trace topic. `Tracks` compares the committed
offsets of consumer groups with the position of the message (`MessageTrack` in RocketMQ).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from bolide.admin.clients import Clients
from bolide.admin.errors import GroupOffline, GroupUnknown, MessageNotFound
from bolide.admin.messages import DEFAULT_LIMIT, Messages
from bolide.admin.offsets import Offsets
from bolide.admin.servers import OnFailure, Servers, address_of
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
from bolide.remoting.errors import RemotingError

_STEPS = (PUB, END_TRANSACTION, RECALL, SUB_BEFORE, SUB_AFTER)
"""The order of records with the same millisecond."""
ALL_TAGS = "*"


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One record of a message's trace."""

    record: TraceRecord
    client_host: str
    """The IP address of the client that wrote the record."""
    stored_ms: int
    """Store time of the trace message, by the broker's clock."""

    @property
    def time_ms(self) -> int:
        """Time of the event by the client's clock; for records without one (clients before 4.8)
        the store time."""
        return self.stored_ms if self.record.time_ms is None else self.record.time_ms


class Traces:
    """Traces in the formats of Bolide and of all versions of the Java client."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    async def of(  # noqa: PLR0913  all options of the request
        self,
        message_id: str,
        *,
        topic: str = TRACE_TOPIC,
        begin: int = 0,
        end: int | None = None,
        limit: int = DEFAULT_LIMIT,
        cluster: str | None = None,
        on_cut: Callable[[list[str]], None] = lambda _: None,
        on_failure: OnFailure | None = None,
    ) -> list[TraceEntry]:
        """The records of one message, sorted by time.

        Args:
            message_id: the id returned to the sender.
            topic: the trace topic.
            begin: first store time of trace messages, in ms.
            end: last store time of trace messages, in ms.
            limit: maximum number of trace messages read from each broker.
            cluster: query only the brokers of this cluster.
            on_cut: called with the names of brokers that may have more than `limit`, if any.
            on_failure: gets the error of a broker that cannot be reached, when others have traces.

        Raises:
            MessageNotFound: no trace record mentions the message.
            Refusal: the trace topic does not exist.
        """
        found = await self._messages.by_key(
            topic,
            message_id,
            limit=limit,
            begin=begin,
            end=end,
            cluster=cluster,
            on_failure=on_failure,
        )
        counts = Counter(message.broker_name for message in found)
        if full := sorted(name for name, count in counts.items() if count >= limit):
            on_cut(full)
        traced = [
            TraceEntry(record, message.born_host.ip, message.store_timestamp)
            for message in found
            for record in read_records(message.body.decode("utf-8", "replace"))
            if isinstance(record, TraceRecord) and _concerns(record, message_id)
        ]
        if not traced:  # the id is a key of other messages, or no record is readable
            raise MessageNotFound(topic, f"id {message_id}")
        return sorted(traced, key=lambda each: (each.time_ms, _STEPS.index(each.record.kind)))


def _concerns(record: TraceRecord, message_id: str) -> bool:
    """Java clients write one record per batch, with comma-separated ids."""
    return message_id in {record.message_id, *(record.message_id or "").split(",")}


class TrackType(StrEnum):
    """The state of a message with respect to one consumer group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Track:
    """The state of a message in one group; `reason` says why the state is unknown."""

    group: str
    kind: TrackType
    reason: str | None = None


class Tracks:
    """Determines which groups have consumed a message."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._topics = Topics(servers)
        self._clients = Clients(servers)
        self._offsets = Offsets(servers)

    async def of(
        self, message: StoredMessage, *, on_failure: OnFailure | None = None
    ) -> list[Track]:
        """The state of the message in each group that consumes the topic.

        Brokers that cannot be reached are left to `on_failure`, if it is given: their groups are
        not known.
        """
        groups = await self._topics.groups(message.topic, on_failure=on_failure)
        return [await self._track(message, each) for each in groups]

    async def _track(self, message: StoredMessage, group: str) -> Track:
        failures: list[RemotingError] = []
        try:
            try:
                clients = await self._clients.consumers(group, on_failure=failures.append)
            except GroupOffline:
                if failures:  # its members may be connected there
                    raise failures[0] from None
                raise
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
        """Whether the committed offset of the group is past the message."""
        brokers = (await self._servers.info()).broker_addr_table
        stored_at = str(message.store_host)
        names = {n for n, b in brokers.items() if b.broker_addrs and address_of(b) == stored_at}
        failures: list[RemotingError] = []
        progress = await self._offsets.progress(group, message.topic, on_failure=failures.append)
        reached = [
            position.consumer_offset
            for queue, position in progress.offset_table.items()
            if queue.topic == message.topic
            and queue.queue_id == message.queue_id
            and queue.broker_name in names
        ]
        if failures and not reached:
            raise failures[0]
        return any(offset > message.queue_offset for offset in reached)
