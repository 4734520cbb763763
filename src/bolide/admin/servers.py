"""The name servers and brokers of a cluster, and how they are asked."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeVar

from bolide.admin.errors import (
    BadAddress,
    BrokerUnknown,
    ClusterNotFound,
    GroupUnknown,
    NoNameServer,
)
from bolide.errors import BolideError
from bolide.model.names import retry_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.address import split_address
from bolide.remoting.client import Fields, RemotingClient
from bolide.remoting.errors import RemotingError

T = TypeVar("T")
K = TypeVar("K")

MASTER = 0
_AT_ONCE = 16


class Servers:
    """Asks any name server, every name server, or one broker.

    A name server that does not answer is passed over, and the one that did is asked first then.
    """

    def __init__(self, name_servers: Sequence[str], remoting: RemotingClient) -> None:
        if not name_servers:
            raise NoNameServer
        for address in name_servers:
            _check(address)
        self.name_servers = tuple(name_servers)
        self._remoting = remoting
        self._asked_last = 0

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | Fields | None = None,
        *,
        body: bytes = b"",
        within: float | None = None,
        accept: Collection[int] = (),
    ) -> Frame:
        """Ask one server; a refusal gets a note that names it."""
        _check(address)
        try:
            return await self._remoting.call(
                address, code, header, body=body, within=within, accept=accept
            )
        except BolideError as exc:
            if not isinstance(exc, RemotingError):  # those name the peer themselves
                exc.add_note(f"asked of {address}")
            raise

    async def fetch(
        self,
        address: str,
        code: RequestCode,
        shape: type[T],
        header: Header | Fields | None = None,
        *,
        within: float | None = None,
    ) -> T:
        """Ask one server for a body of that shape."""
        reply = await self.ask(address, code, header, within=within)
        return fastjson.decode(reply.body or b"{}", shape)

    async def ask_name_server(
        self, code: RequestCode, header: Header | Fields | None = None, *, body: bytes = b""
    ) -> Frame:
        """Ask the name servers in turn until one answers."""
        count = len(self.name_servers)
        for attempt in range(count):
            at = (self._asked_last + attempt) % count
            try:
                reply = await self.ask(self.name_servers[at], code, header, body=body)
            except RemotingError:
                if attempt == count - 1:
                    raise
            else:
                self._asked_last = at
                return reply
        raise NoNameServer

    async def ask_every_name_server(
        self, code: RequestCode, header: Header | Fields | None = None, *, body: bytes = b""
    ) -> dict[str, Frame]:
        """Ask all of them, as for changes: name servers tell each other nothing."""
        return {
            address: await self.ask(address, code, header, body=body)
            for address in self.name_servers
        }

    async def info(self) -> ClusterInfo:
        """All clusters and the brokers in them."""
        reply = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return fastjson.decode(reply.body, ClusterInfo)

    async def route(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound where no broker serves the topic."""
        header = RouteHeader(topic, accept_standard_json_only=True)
        reply = await self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return fastjson.decode(reply.body, TopicRoute)

    async def addresses_of(self, topic: str, cluster: str | None = None) -> dict[str, str]:
        """The address to ask of each broker that serves the topic, by name: its master if it has
        one.

        Raises:
            TopicNotFound: there is none.
            ClusterNotFound: none is of that cluster.
        """
        route = await self.route(topic)
        if cluster is not None:
            known = {broker.cluster or "" for broker in route.broker_datas}
            if cluster not in known:
                raise ClusterNotFound(cluster, known)
        found = {
            broker.broker_name: address_of(broker)
            for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name)
            if broker.broker_addrs and cluster in {None, broker.cluster}
        }
        if not found:
            raise TopicNotFound(f"no broker that has topic {topic!r} is registered now")
        return found

    async def addresses_of_group(self, group: str, cluster: str | None = None) -> dict[str, str]:
        """The same of each broker that a consumer of the group has used; raises GroupUnknown."""
        try:
            return await self.addresses_of(retry_topic(group), cluster)
        except TopicNotFound as exc:
            raise GroupUnknown(group) from exc

    async def brokers_of(self, cluster: str) -> list[BrokerRoute]:
        """The brokers of a cluster, by name; raises ClusterNotFound."""
        info = await self.info()
        if cluster not in info.cluster_addr_table:
            raise ClusterNotFound(cluster, info.cluster_addr_table)
        names = sorted(info.cluster_addr_table[cluster])
        return [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]

    async def masters_of(self, cluster: str) -> list[str]:
        brokers = await self.brokers_of(cluster)
        return [b.broker_addrs[MASTER] for b in brokers if MASTER in b.broker_addrs]

    async def members_of(self, cluster: str) -> list[str]:
        """Masters and slaves."""
        return [
            address
            for broker in await self.brokers_of(cluster)
            for _, address in sorted(broker.broker_addrs.items())
        ]

    async def broker_at(self, address: str) -> BrokerRoute:
        """The broker that has this address."""
        table = (await self.info()).broker_addr_table
        for broker in table.values():
            if address in broker.broker_addrs.values():
                return broker
        known = (each for broker in table.values() for each in broker.broker_addrs.values())
        raise BrokerUnknown(address, known)

    async def address_of(self, broker_name: str) -> str:
        """Where to ask a broker known by name."""
        table = (await self.info()).broker_addr_table
        if broker_name not in table:
            raise BrokerUnknown(broker_name, table)
        return address_of(table[broker_name])


def address_of(broker: BrokerRoute) -> str:
    """The master's address, else that of the slave with the smallest id."""
    return broker.broker_addrs[min(broker.broker_addrs)]


async def each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Ask for every key, some at once; the first error ends it."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(key: K) -> T:
        async with places:
            return await ask(key)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {key: group.create_task(one(key)) for key in keys}
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return {key: task.result() for key, task in tasks.items()}


def _check(address: str) -> None:
    try:
        split_address(address)
    except ValueError as exc:
        raise BadAddress(exc) from exc
