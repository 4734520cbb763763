"""Committed offsets of a consumer group, read and written by a client outside the group."""

from collections.abc import Iterable
from contextlib import suppress

from bolide.arrow.offsets import Offsets
from bolide.client.consumer.group.offsets import RemoteOffsets
from bolide.client.errors import RouteNotFound
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.leader_calls import call_leader
from bolide.model.message_queue import MessageQueue
from bolide.model.names import retry_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ConsumerGroup, ConsumeType, Heartbeat
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import UnregisterClientHeader
from bolide.protocol.headers.offsets import OffsetReply, QueryOffsetHeader
from bolide.protocol.refusals import QueryNotFound


class GroupOffsets:
    """The committed offsets of one group; all names are wire names."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._offsets = RemoteOffsets(instance, group)
        self._known_brokers: set[str] = set()  # brokers on which the group exists

    async def find(self, queue: MessageQueue) -> int | None:
        """The committed offset; None if the group has not consumed the queue."""
        header = QueryOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        try:
            code = RequestCode.QUERY_CONSUMER_OFFSET
            reply = await call_leader(self._instance, queue, code, header)
        except QueryNotFound:
            return None
        return OffsetReply.from_fields(reply.fields).offset

    async def write(self, offsets: Offsets) -> None:
        """Commit offsets and wait for the replies; raises BolideError if one fails."""
        await self._ensure_group(offsets)
        try:
            await self._offsets.write(offsets, wait=True)
        except BaseException:
            self._known_brokers.clear()  # the group may have been deleted
            raise

    async def _ensure_group(self, queues: Iterable[MessageQueue]) -> None:
        """Create the group on brokers that do not have it yet.

        Brokers reject offsets of unknown groups, and admin tools find a group by its retry topic.
        A broker creates both at the first heartbeat of a consumer.
        """
        routes = self._instance.routes
        topics = {routes.broker_of(queue): queue.topic for queue in queues}
        if topics.keys() <= self._known_brokers:
            return
        self._known_brokers |= await self._brokers_with_retry_topic()
        for broker_name in sorted(topics.keys() - self._known_brokers):
            address = await routes.require_master(broker_name, topics[broker_name])
            await self._register_briefly(address)
            self._known_brokers.add(broker_name)

    async def _brokers_with_retry_topic(self) -> set[str]:
        topic = retry_topic(self._group)
        with suppress(RouteNotFound):
            await self._instance.routes.refresh(topic)
            route = await self._instance.routes.require(topic)
            return {broker.broker_name for broker in route.broker_datas}
        return set()

    async def _register_briefly(self, address: str) -> None:
        """Register as a consumer of the group without subscriptions, and unregister again."""
        client_id = self._instance.client_id
        member = ConsumerGroup(group_name=self._group, consume_type=ConsumeType.CONSUME_ACTIVELY)
        body = fastjson.encode(Heartbeat(client_id=client_id, consumer_data_set=[member]))
        await self._instance.call(address, RequestCode.HEART_BEAT, body=body)
        header = UnregisterClientHeader(client_id=client_id, consumer_group=self._group)
        await self._instance.call(address, RequestCode.UNREGISTER_CLIENT, header)
