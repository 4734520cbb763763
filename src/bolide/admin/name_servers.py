"""NameServers: settings, key-value configuration, and write permissions of brokers."""

from collections.abc import Collection, Mapping

from bolide import properties
from bolide.admin.errors import NoNameServer
from bolide.admin.servers import Peer, Servers
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import ClusterInfo, KvTable, TopicList
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
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
    """The NameServers of a cluster; changes are sent to every one of them.

    Methods with `at` send the request to that NameServer only, for callers that report on each:
    NameServers do not synchronize, so that a change may reach some of them and not others.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._servers.name_servers

    def require_addresses(self) -> tuple[str, ...]:
        """The addresses; raises NoNameServer if there are none."""
        if not self.addresses:
            raise NoNameServer
        return self.addresses

    async def config(self, at: str | None = None) -> dict[str, dict[str, str]]:
        """The settings of each NameServer, by address."""
        replies = await self._call(RequestCode.GET_NAMESRV_CONFIG, at=at)
        return {at: properties.parse(reply.body.decode()) for at, reply in replies.items()}

    async def config_at(self, address: str) -> dict[str, str]:
        """The settings of one NameServer."""
        return (await self.config(at=address))[address]

    async def peer(self, address: str) -> Peer:
        """The version of a NameServer, and whether it is one of Bolide."""
        return await self._servers.peer(address, RequestCode.GET_NAMESRV_CONFIG)

    async def cluster_info_at(self, address: str) -> ClusterInfo:
        """The clusters and brokers that one NameServer knows."""
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        return await self._servers.fetch(address, code, ClusterInfo)

    async def topics_at(self, address: str) -> list[str]:
        """The topics that one NameServer knows."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return (await self._servers.fetch(address, code, TopicList)).topic_list

    async def update_config(self, changes: Mapping[str, str], *, at: str | None = None) -> None:
        """Raises NoPermission or InvalidParameter, which name the setting."""
        body = properties.render(changes).encode()
        await self._call(RequestCode.UPDATE_NAMESRV_CONFIG, at=at, body=body)

    async def put_value(
        self, namespace: str, key: str, value: str, *, at: str | None = None
    ) -> None:
        header = PutKvHeader(namespace, key, value)
        await self._call(RequestCode.PUT_KV_CONFIG, header, at=at)

    async def find_value(self, namespace: str, key: str) -> str | None:
        header = KvHeader(namespace, key)
        try:
            reply = await self._servers.call_name_server(RequestCode.GET_KV_CONFIG, header)
        except QueryNotFound:
            return None
        return KvReply.from_fields(reply.fields).value

    async def delete_value(self, namespace: str, key: str, *, at: str | None = None) -> None:
        """Delete a value; a value that does not exist is no error."""
        await self._call(RequestCode.DELETE_KV_CONFIG, KvHeader(namespace, key), at=at)

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
        known = _order_queues(await self.find_order_conf(topic) or "")
        return await self.put_order_conf(topic, known | {broker: queues})

    async def remove_order_conf(self, topic: str, brokers: Collection[str]) -> None:
        """Take brokers out of the order configuration; without any other one it is deleted."""
        known = _order_queues(await self.find_order_conf(topic) or "")
        if known.keys().isdisjoint(brokers):
            return
        if left := {name: count for name, count in known.items() if name not in brokers}:
            await self.put_order_conf(topic, left)
        else:
            await self.delete_order_conf(topic)

    async def delete_order_conf(self, topic: str) -> None:
        await self.delete_value(ORDER_CONF, topic)

    async def wipe_write_perm(self, broker_name: str, *, at: str | None = None) -> dict[str, int]:
        """Remove the write permission of a broker from its routes, so that producers leave it.

        Consumers go on reading. A registration with changed topics gives the permission back, as
        does the start of the NameServer.

        Returns:
            The number of topics of the broker per NameServer.
        """
        code, header = RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name)
        replies = await self._call(code, header, at=at)
        return {
            at: WipeWritePermReply.from_fields(reply.fields).wipe_topic_count
            for at, reply in replies.items()
        }

    async def add_write_perm(self, broker_name: str, *, at: str | None = None) -> dict[str, int]:
        """Undo `wipe_write_perm`; returns the number of topics per NameServer.

        All topics of the broker can be read and written then, until the broker registers changed
        topics, also those that could not before.
        """
        code, header = RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name)
        replies = await self._call(code, header, at=at)
        return {
            at: AddWritePermReply.from_fields(reply.fields).add_topic_count
            for at, reply in replies.items()
        }

    async def _call(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        at: str | None = None,
        body: bytes = b"",
    ) -> dict[str, Frame]:
        if at is None:
            return await self._servers.call_every_name_server(code, header, body=body)
        return {at: await self._servers.call(at, code, header, body=body)}


def _order_queues(text: str) -> dict[str, int]:
    """Numbers of queues by broker; what cannot be read is left out."""
    parts = dict(part.rsplit(":", 1) for part in text.split(";") if ":" in part)
    return {name: int(count) for name, count in parts.items() if count.isdecimal()}
