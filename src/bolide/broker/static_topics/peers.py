"""Calls to other brokers of the cluster by their names."""

import asyncio
import time
from collections.abc import Callable, Collection

from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import ClusterInfo, MemberGroupBody, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.namesrv import BrokerMemberGroupHeader, RouteHeader
from bolide.protocol.refusals import Refusal, ServerError
from bolide.protocol.static_topics.addressing import physical_fields
from bolide.remoting.client import RemotingClient
from bolide.remoting.errors import RemotingError

_MASTER = 0
_LOOK_UP_INTERVAL = 1.0
"""Seconds between two queries of the NameServers, however many requests fail."""


class Peers:
    """The masters of other broker groups; their addresses come from the NameServers."""

    def __init__(
        self, cell: ConfigCell[BrokerConfig], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._cell = cell
        self._client: RemotingClient | None = None
        """None until the broker serves."""
        self._now = now
        self._addresses: dict[str, str] = {}
        self._looking_up = asyncio.Lock()
        self._next_look_up = 0.0

    def use(self, client: RemotingClient) -> None:
        """Make the calls through this client from now on."""
        self._client = client

    async def call(
        self,
        broker: str,
        code: RequestCode,
        header: Header,
        *,
        accept: Collection[int] = (),
    ) -> Frame:
        """Send a request about a physical queue to a broker; see `RemotingClient.call`.

        Raises:
            ServerError: the broker is unknown, does not answer, or refuses.
        """
        fields = physical_fields(header, broker)
        address = self._addresses.get(broker) or await self._look_up(broker)
        try:
            return await self._send(address, code, fields, accept)
        except RemotingError as exc:
            found = await self._look_up(broker)
            if found == address:
                raise _failed(broker, code, exc) from exc
        except Refusal as exc:
            raise _failed(broker, code, exc) from exc
        try:
            return await self._send(found, code, fields, accept)
        except BolideError as exc:
            raise _failed(broker, code, exc) from exc

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic. Raises ServerError if no NameServer returns it."""
        reply = await self._ask_name_servers(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic))
        return fastjson.decode(reply.body, TopicRoute)

    async def masters(self, cluster: str) -> dict[str, str]:
        """Addresses of the masters of a cluster by broker name.

        Raises:
            ServerError: no NameServer returns them.
        """
        reply = await self._ask_name_servers(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        info = fastjson.decode(reply.body, ClusterInfo)
        names = set(info.cluster_addr_table.get(cluster, ()))
        return {name: address for name, address in _masters(info).items() if name in names}

    async def members(self) -> dict[int, str]:
        """Addresses of the members of this broker's own group by id.

        Raises:
            ServerError: no NameServer returns them.
        """
        config = self._cell.value
        header = BrokerMemberGroupHeader(config.broker_cluster_name, config.broker_name)
        reply = await self._ask_name_servers(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        return fastjson.decode(reply.body, MemberGroupBody).broker_member_group.broker_addrs

    async def _send(
        self, address: str, code: RequestCode, fields: dict[str, str], accept: Collection[int]
    ) -> Frame:
        if self._client is None:
            raise ServerError("this broker has not started yet")
        timeout = self._cell.value.forward_timeout
        return await self._client.call(address, code, fields, within=timeout, accept=accept)

    async def _look_up(self, broker: str) -> str:
        async with self._looking_up:
            if self._now() >= self._next_look_up:  # one query for all that wait
                try:
                    self._addresses = await self._fetch_addresses()
                finally:  # also if it failed, or all that wait would try one after the other
                    self._next_look_up = self._now() + _LOOK_UP_INTERVAL
        if broker not in self._addresses:
            raise ServerError(
                f"no NameServer knows a master of broker {broker}, which has a part of this queue"
            )
        return self._addresses[broker]

    async def _fetch_addresses(self) -> dict[str, str]:
        reply = await self._ask_name_servers(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        info = fastjson.decode(reply.body, ClusterInfo)
        return _masters(info)

    async def _ask_name_servers(self, code: RequestCode, header: Header | None) -> Frame:
        failure: BolideError | None = None
        for server in self._cell.value.name_servers:
            try:
                if self._client is not None:
                    return await self._client.call(
                        server, code, header, within=self._cell.value.forward_timeout
                    )
            except BolideError as exc:
                failure = exc
        raise ServerError(f"no NameServer answers: {failure or 'none is set'}")


def _masters(info: ClusterInfo) -> dict[str, str]:
    return {
        name: found.broker_addrs[_MASTER]
        for name, found in info.broker_addr_table.items()
        if _MASTER in found.broker_addrs
    }


def _failed(broker: str, code: RequestCode, exc: BolideError) -> ServerError:
    return ServerError(
        f"broker {broker}, which has a part of this queue, does not serve {code.name}: {exc}"
    )
