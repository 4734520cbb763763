"""NameServers: settings, key-value configuration, and write permissions of brokers."""

from collections.abc import Mapping

from bolide import properties
from bolide.admin.servers import Servers
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import ClusterInfo, KvTable, TopicList
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
"""Namespace of order configurations, which map a topic to `broker:queues;broker:queues`."""


class NameServers:
    """The NameServers of a cluster; changes are sent to every one of them."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._servers.name_servers

    async def config(self) -> dict[str, dict[str, str]]:
        """The settings of each NameServer, by address."""
        replies = await self._servers.call_every_name_server(RequestCode.GET_NAMESRV_CONFIG)
        return {at: properties.parse(reply.body.decode()) for at, reply in replies.items()}

    async def config_at(self, address: str) -> dict[str, str]:
        """The settings of one NameServer."""
        reply = await self._servers.call(address, RequestCode.GET_NAMESRV_CONFIG)
        return properties.parse(reply.body.decode())

    async def cluster_info_at(self, address: str) -> ClusterInfo:
        """The clusters and brokers that one NameServer knows."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        return await self._servers.fetch(address, code, ClusterInfo)

    async def topics_at(self, address: str) -> list[str]:
        """The topics that one NameServer knows."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return (await self._servers.fetch(address, code, TopicList)).topic_list

    async def update_config(self, changes: Mapping[str, str]) -> None:
        body = properties.render(changes).encode()
        await self._servers.call_every_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        header = PutKvHeader(namespace, key, value)
        await self._servers.call_every_name_server(RequestCode.PUT_KV_CONFIG, header)

    async def find_value(self, namespace: str, key: str) -> str | None:
        header = KvHeader(namespace, key)
        try:
            reply = await self._servers.call_name_server(RequestCode.GET_KV_CONFIG, header)
        except QueryNotFound:
            return None
        return KvReply.from_fields(reply.fields).value

    async def delete_value(self, namespace: str, key: str) -> None:
        header = KvHeader(namespace, key)
        await self._servers.call_every_name_server(RequestCode.DELETE_KV_CONFIG, header)

    async def values(self, namespace: str) -> dict[str, str]:
        """The entries of a namespace; empty if it does not exist."""
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        try:
            reply = await self._servers.call_name_server(code, KvListHeader(namespace))
        except QueryNotFound:
            return {}
        return fastjson.decode(reply.body, KvTable).table

    async def find_order_conf(self, topic: str) -> str | None:
        """The order configuration of a topic, `broker:queues;broker:queues`, or None."""
        return await self.find_value(ORDER_CONF, topic)

    async def put_order_conf(self, topic: str, queues: Mapping[str, int]) -> str:
        """Set the order configuration to these numbers of queues by broker."""
        text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
        await self.put_value(ORDER_CONF, topic, text)
        return text

    async def add_order_conf(self, topic: str, broker: str, queues: int) -> str:
        """Set the number of queues of one broker in the order configuration."""
        old = await self.find_order_conf(topic) or ""
        parts = dict(part.rsplit(":", 1) for part in old.split(";") if ":" in part)
        known = {name: int(count) for name, count in parts.items() if count.isdecimal()}
        return await self.put_order_conf(topic, known | {broker: queues})

    async def delete_order_conf(self, topic: str) -> None:
        await self.delete_value(ORDER_CONF, topic)

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Remove write permission from a broker; returns the changed topics per NameServer."""
        code, header = RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name)
        replies = await self._servers.call_every_name_server(code, header)
        return {
            at: WipeWritePermReply.from_fields(reply.fields).wipe_topic_count
            for at, reply in replies.items()
        }

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_perm`; returns the changed topics per NameServer."""
        code, header = RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name)
        replies = await self._servers.call_every_name_server(code, header)
        return {
            at: AddWritePermReply.from_fields(reply.fields).add_topic_count
            for at, reply in replies.items()
        }
