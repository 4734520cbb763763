"""A look at a broker past all clients, by single requests."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bolide.protocol.codes import RequestCode
from bolide.protocol.header import Header
from bolide.protocol.headers.namesrv import PutKvHeader, RouteHeader
from bolide.protocol.headers.offsets import OffsetReply, QueryOffsetHeader
from bolide.protocol.headers.topics import CreateTopicHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.client import ClientConfig, RemotingClient
from tests.interop.bench import BROKER_DEFAULTS

READ_AND_WRITE = 6
BROKER_NAME = str(BROKER_DEFAULTS["brokerName"])


@dataclass(frozen=True)
class Witness:
    """Asks one broker."""

    address: str
    namesrv_address: str

    def create_topics(self, queues_of_topics: Mapping[str, int]) -> None:
        """Make the topics and wait until the name server knows them."""
        asyncio.run(self._create_topics(queues_of_topics))

    def lay_down_order(self, topic: str, queues: int) -> None:
        """Have the name server say how many queues of the broker take part in the order."""
        header = PutKvHeader("ORDER_TOPIC_CONFIG", topic, f"{BROKER_NAME}:{queues}")
        asyncio.run(self._ask_namesrv(RequestCode.PUT_KV_CONFIG, header))

    def committed(self, group: str, topic: str, queues: Iterable[int]) -> dict[int, int]:
        """The offsets of the group by queue."""
        return asyncio.run(self._committed(group, topic, queues))

    async def _create_topics(self, queues_of_topics: Mapping[str, int]) -> None:
        async with RemotingClient(ClientConfig(call_timeout=30)) as client:
            for topic, queues in queues_of_topics.items():
                header = CreateTopicHeader(
                    topic=topic,
                    default_topic="TBW102",
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=READ_AND_WRITE,
                    topic_filter_type="SINGLE_TAG",
                    topic_sys_flag=0,
                    order=False,
                )
                await client.call(self.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            for topic in queues_of_topics:
                while not await self._is_known(topic, client):  # noqa: ASYNC110 - of a server
                    await asyncio.sleep(0.02)

    async def _ask_namesrv(self, code: RequestCode, header: Header) -> None:
        async with RemotingClient(ClientConfig(call_timeout=30)) as client:
            await client.call(self.namesrv_address, code, header)

    async def _is_known(self, topic: str, client: RemotingClient) -> bool:
        try:
            await client.call(
                self.namesrv_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic)
            )
        except TopicNotFound:
            return False
        return True

    async def _committed(self, group: str, topic: str, queues: Iterable[int]) -> dict[int, int]:
        found = {}
        async with RemotingClient(ClientConfig(call_timeout=30)) as client:
            for queue in queues:
                header = QueryOffsetHeader(consumer_group=group, topic=topic, queue_id=queue)
                reply = await client.call(self.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
                found[queue] = OffsetReply.from_fields(reply.fields).offset
        return found
