"""Client requests: heartbeats, group members, queue locks (`ClientManageProcessor`)."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakKeyDictionary

from bolide.auth.access import Identity
from bolide.broker.background import MAX_BODY, Background, read_json
from bolide.broker.filters.filters import Filters
from bolide.broker.metadata.clients import ClientTable, Member
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import retry_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies import consumers as bodies
from bolide.protocol.bodies.heartbeat import (
    ClientCheck,
    ConsumerGroup,
    ConsumeType,
    Heartbeat,
)
from bolide.protocol.bodies.locks import LockReply, LockRequest
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.clients import (
    ConsumerGroupHeader,
    HeartbeatReply,
    ProducerGroupHeader,
    UnregisterClientHeader,
)
from bolide.protocol.refusals import ConsumerNotOnline, GroupNotFound, ServerError
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.errors import RemotingError

Identify = Callable[[Frame, Connection], Identity]
"""Says who sends a request; raises NoPermission."""


class ClientHandlers:
    """Registers clients and lists them.

    Every handler that changes a client's memberships is `async` and begins with `_order_of`: the
    requests of one connection then take effect in the order in which they were received.

    Args:
        identify: None if access control verifies no identities.
        on_registered: called with the consumer groups and producer groups of a heartbeat, and the
            seconds that it took to register them.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        clients: ClientTable,
        groups: GroupTable,
        topics: TopicTable,
        locks: QueueLocks,
        filters: Filters,
        cell: ConfigCell[BrokerConfig],
        identify: Identify | None = None,
        on_registered: Callable[[int, int, float], None] = lambda *_: None,
    ) -> None:
        self._clients = clients
        self._groups = groups
        self._topics = topics
        self._locks = locks
        self._filters = filters
        self._cell = cell
        self._identify = identify
        self._on_registered = on_registered
        self._orders: WeakKeyDictionary[Connection, asyncio.Lock] = WeakKeyDictionary()

    @handles(NoHeader, RequestCode.HEART_BEAT, max_body=MAX_BODY)
    async def heartbeat(self, request: Request[NoHeader]) -> Reply:
        async with self._order_of(request.connection):
            beat = await read_json(request, Heartbeat)
            for data in [each for each in beat.consumer_data_set if self._admits(each)]:
                if not beat.without_sub:
                    await self._filters.register(data.group_name, data.subscription_data_set)
                await self._create_retry_topic(data)
            # Last, and without a wait before the reply: it has the members notified, and a client
            # that rebalances before it has its reply takes its own subscription for outdated.
            changed = self._clients.needs_subscriptions(beat)
            frame, identity = request.frame, None
            if beat.producer_data_set and self._identify is not None:
                identity = self._identify(frame, request.connection)
            started = time.monotonic()
            self._clients.heartbeat(
                beat, request.connection, frame.language, frame.version, identity
            )
            groups = len(beat.consumer_data_set), len(beat.producer_data_set)
            self._on_registered(*groups, time.monotonic() - started)
            return Reply(header=HeartbeatReply(supports_v2=True, subscription_changed=changed))

    def _order_of(self, connection: Connection) -> asyncio.Lock:
        """Serializes the requests of a connection that change its memberships."""
        return self._orders.setdefault(connection, asyncio.Lock())

    def _admits(self, data: ConsumerGroup) -> bool:
        """Whether the broker serves the group; creates a missing group if the settings allow it."""
        pulls = data.consume_type is ConsumeType.CONSUME_ACTIVELY
        if pulls and self._cell.value.reject_pull_consumer_enable:
            return False
        try:
            self._groups.require(data.group_name)
        except GroupNotFound:
            return False  # as in RocketMQ: the pulls of the group are refused, not its heartbeat
        return True

    async def _create_retry_topic(self, data: ConsumerGroup) -> None:
        group = self._groups.find(data.group_name)
        if group is not None:
            subscribed = (self._topics.find(each.topic) for each in data.subscription_data_set)
            await self._topics.create_retry(
                retry_topic(data.group_name),
                max(0, group.retry_queue_nums),
                order=any(topic.order for topic in subscribed if topic),
                unit=data.unit_mode,
            )

    @handles(UnregisterClientHeader, RequestCode.UNREGISTER_CLIENT)
    async def unregister(self, request: Request[UnregisterClientHeader]) -> Reply:
        header = request.header
        async with self._order_of(request.connection):
            self._clients.unregister(
                header.client_id, header.producer_group, header.consumer_group, request.connection
            )
        return Reply()

    @handles(NoHeader, RequestCode.CHECK_CLIENT_CONFIG, max_body=MAX_BODY)
    async def check_subscription(self, request: Request[NoHeader]) -> Reply:
        wanted = (await read_json(request, ClientCheck)).subscription_data
        return Reply(remark=await self._filters.check(wanted))

    @handles(ConsumerGroupHeader, RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def consumer_ids(self, request: Request[ConsumerGroupHeader]) -> Reply:
        group = request.header.consumer_group
        ids = self._clients.consumer_ids(group)
        if not ids:
            raise ServerError(f"no consumer for this group, {group}")
        return Reply(body=fastjson.encode(bodies.ConsumerIds(consumer_id_list=ids)))

    @handles(NoHeader, RequestCode.LOCK_BATCH_MQ, max_body=MAX_BODY)
    async def lock(self, request: Request[NoHeader]) -> Reply:
        body = await read_json(request, LockRequest)
        granted = self._locks.lock(body.consumer_group, body.client_id, body.mq_set)
        return Reply(body=fastjson.encode(LockReply(locked=granted)))

    @handles(NoHeader, RequestCode.UNLOCK_BATCH_MQ, max_body=MAX_BODY)
    async def unlock(self, request: Request[NoHeader]) -> Reply:
        body = await read_json(request, LockRequest)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return Reply()

    # ---- for administrators

    @handles(ConsumerGroupHeader, RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumers(self, request: Request[ConsumerGroupHeader]) -> Reply:
        name = request.header.consumer_group
        group = self._clients.consumer_group(name)
        if group is None:
            raise ConsumerNotOnline(f"the consumer group[{name}] not online")
        found = bodies.ConsumerConnections(
            connection_set=[_connection(member) for member in group.members],
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return Reply(body=fastjson.encode(found))

    @handles(ProducerGroupHeader, RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producers(self, request: Request[ProducerGroupHeader]) -> Reply:
        name = request.header.producer_group
        members = self._clients.producers(name)
        if not members:
            raise ServerError(f"the producer group[{name}] not exist: it has no producers")
        connections = [_connection(member) for member in members]
        return Reply(body=fastjson.encode(bodies.ProducerConnections(connection_set=connections)))

    @handles(NoHeader, RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self, request: Request[NoHeader]) -> Reply:
        table = bodies.ProducerTable(
            data={
                group: [_producer(member) for member in self._clients.producers(group)]
                for group in self._clients.producer_groups()
            }
        )
        return Reply(body=fastjson.encode(table))


def _connection(member: Member) -> bodies.Connection:
    return bodies.Connection(
        client_id=member.client_id,
        client_addr=member.connection.peer,
        language=member.language,
        version=member.version,
    )


def _producer(member: Member) -> bodies.ConnectedProducer:
    return bodies.ConnectedProducer(
        client_id=member.client_id,
        remote_ip=member.connection.peer,
        language=member.language,
        version=member.version,
        last_update_timestamp=int(member.last_seen * 1000),
    )


_TICK = 0.1
"""Seconds between two notices to a member: a group whose members reconnect all at once would send
each of them a notice for each of the others."""
_AT_ONCE = 100
"""Notices sent in one iteration of the event loop."""


class MemberNotices:
    """Notices to consumers that the members of their group changed; belongs to one event loop.

    The first change is reported in the next iteration of the loop, behind the reply to the request
    that caused it; changes of the same tick are reported together at its end.
    """

    def __init__(self, clients: ClientTable, background: Background) -> None:
        self._clients = clients
        self._background = background
        self._changed: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None

    def members_changed(self, group: str) -> None:
        self._changed[group] = None
        if self._sending is None:
            self._sending = self._background.start(self._send(), "broker-notices")

    async def _send(self) -> None:
        try:
            while self._changed:
                changed, self._changed = self._changed, {}
                for group in changed:
                    await self._notify_members(group)
                await asyncio.sleep(_TICK)
        finally:
            self._sending = None

    async def _notify_members(self, name: str) -> None:
        group = self._clients.consumer_group(name)
        fields = ConsumerGroupHeader(name).to_fields()
        for count, connection in enumerate(list(group.by_connection) if group else (), 1):
            if connection.is_blocked:
                continue  # the notice is a hint: consumers rebalance every 20 s without it
            with suppress(RemotingError):  # the consumer may be gone
                await connection.notify(
                    Frame(code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields=fields)
                )
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)
