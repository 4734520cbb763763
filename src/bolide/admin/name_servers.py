"""What name servers keep: settings of their own, keys and values, write permissions."""

from collections.abc import Mapping

from bolide import properties
from bolide.admin.servers import Servers
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import (
    AddWritePermReply,
    BrokerNameHeader,
    KvHeader,
    KvListHeader,
    KvReply,
    PutKvHeader,
    WipeWritePermReply,
)
from bolide.protocol.refusals import QueryNotFound

ORDER_CONF = "ORDER_TOPIC_CONFIG"
"""The namespace of order configurations: topic to `broker:queues;broker:queues`."""


class NameServers:
    """Name servers; what is changed is changed on every one of them."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._servers.name_servers

    async def config(self) -> dict[str, dict[str, str]]:
        """The settings of each name server, by its address."""
        replies = await self._servers.ask_every_name_server(RequestCode.GET_NAMESRV_CONFIG)
        return {at: properties.parse(reply.body.decode()) for at, reply in replies.items()}

    async def update_config(self, changes: Mapping[str, str]) -> None:
        body = properties.render(changes).encode()
        await self._servers.ask_every_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        header = PutKvHeader(namespace, key, value)
        await self._servers.ask_every_name_server(RequestCode.PUT_KV_CONFIG, header)

    async def find_value(self, namespace: str, key: str) -> str | None:
        header = KvHeader(namespace, key)
        try:
            reply = await self._servers.ask_name_server(RequestCode.GET_KV_CONFIG, header)
        except QueryNotFound:
            return None
        return KvReply.from_fields(reply.fields).value

    async def delete_value(self, namespace: str, key: str) -> None:
        header = KvHeader(namespace, key)
        await self._servers.ask_every_name_server(RequestCode.DELETE_KV_CONFIG, header)

    async def values(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace; none if there is no such namespace."""
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        try:
            reply = await self._servers.ask_name_server(code, KvListHeader(namespace))
        except QueryNotFound:
            return {}
        return fastjson.decode(reply.body, KvTable).table

    async def find_order_conf(self, topic: str) -> str | None:
        """`broker:queues;broker:queues` if the topic has an order configuration."""
        return await self.find_value(ORDER_CONF, topic)

    async def put_order_conf(self, topic: str, queues: Mapping[str, int]) -> str:
        """Set the number of queues by broker; brokers not named are left out."""
        text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
        await self.put_value(ORDER_CONF, topic, text)
        return text

    async def add_order_conf(self, topic: str, broker: str, queues: int) -> str:
        """Set the number of queues of one broker and keep those of the others."""
        old = await self.find_order_conf(topic) or ""
        parts = dict(part.rsplit(":", 1) for part in old.split(";") if ":" in part)
        known = {name: int(count) for name, count in parts.items() if count.isdecimal()}
        return await self.put_order_conf(topic, known | {broker: queues})

    async def delete_order_conf(self, topic: str) -> None:
        await self.delete_value(ORDER_CONF, topic)

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Take a broker out of all write routes; how many topics each name server changed."""
        code, header = RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name)
        replies = await self._servers.ask_every_name_server(code, header)
        return {
            at: WipeWritePermReply.from_fields(reply.fields).wipe_topic_count
            for at, reply in replies.items()
        }

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """The way back."""
        code, header = RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name)
        replies = await self._servers.ask_every_name_server(code, header)
        return {
            at: AddWritePermReply.from_fields(reply.fields).add_topic_count
            for at, reply in replies.items()
        }
