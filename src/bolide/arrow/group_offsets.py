"""Where a consumer group is, read and set by somebody who is no member of it."""

from collections.abc import Iterable
from contextlib import suppress

from bolide.arrow.offsets import Offsets
from bolide.client.consumer.group.offsets import RemoteOffsets
from bolide.client.errors import RouteNotFound
from bolide.client.instance.instance import ClientInstance
from bolide.model.message_queue import MessageQueue
from bolide.model.names import retry_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ConsumerGroup, ConsumeType, Heartbeat
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import UnregisterClientHeader
from bolide.protocol.headers.offsets import OffsetReply, QueryOffsetHeader
from bolide.protocol.refusals import QueryNotFound


class GroupOffsets:
    """Of one group; names are those on the wire."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._offsets = RemoteOffsets(instance, group)
        self._known: set[str] = set()  # brokers that have the group

    async def read(self, queue: MessageQueue) -> int | None:
        """None if the group has not consumed the queue."""
        address = await self._instance.routes.require_master(queue.broker_name, queue.topic)
        header = QueryOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        try:
            reply = await self._instance.call(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except QueryNotFound:
            return None
        return OffsetReply.from_fields(reply.fields).offset

    async def write(self, offsets: Offsets) -> None:
        """Raises BolideError if not all were kept."""
        await self._make_known(offsets)
        try:
            await self._offsets.write(offsets, wait=True)
        except BaseException:
            self._known.clear()  # the group may have been deleted
            raise

    async def _make_known(self, queues: Iterable[MessageQueue]) -> None:
        """Have brokers make the group that do not have it.

        They take no offsets of groups they have not heard of, and administrators find a group by
        the topic of its retries: both come with the first heartbeat of a consumer.
        """
        places = {queue.broker_name: queue.topic for queue in queues}
        if places.keys() <= self._known:
            return
        self._known |= await self._brokers_of_retries()
        for broker_name in sorted(places.keys() - self._known):
            address = await self._instance.routes.require_master(broker_name, places[broker_name])
            await self._introduce(address)
            self._known.add(broker_name)

    async def _brokers_of_retries(self) -> set[str]:
        topic = retry_topic(self._group)
        with suppress(RouteNotFound):
            await self._instance.routes.refresh(topic)
            route = await self._instance.routes.require(topic)
            return {broker.broker_name for broker in route.broker_datas}
        return set()

    async def _introduce(self, address: str) -> None:
        """Be a consumer of the group for a moment; it wants no topic."""
        client_id = self._instance.client_id
        member = ConsumerGroup(group_name=self._group, consume_type=ConsumeType.CONSUME_ACTIVELY)
        body = fastjson.encode(Heartbeat(client_id=client_id, consumer_data_set=[member]))
        await self._instance.call(address, RequestCode.HEART_BEAT, body=body)
        header = UnregisterClientHeader(client_id=client_id, consumer_group=self._group)
        await self._instance.call(address, RequestCode.UNREGISTER_CLIENT, header)
