"""Calls to other brokers of the cluster by their names."""

import asyncio
import logging
from collections.abc import Collection

from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import ClusterInfo, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.headers.static_topics import physical_fields
from bolide.protocol.refusals import Refusal, ServerError
from bolide.remoting.client import RemotingClient
from bolide.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_MASTER = 0


class Peers:
    """The masters of other broker groups; their addresses come from the NameServers."""

    def __init__(self, cell: ConfigCell[BrokerConfig]) -> None:
        self._cell = cell
        self._client: RemotingClient | None = None
        """None until the broker serves."""
        self._addresses: dict[str, str] = {}
        self._looking_up = asyncio.Lock()

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
            self._addresses.pop(broker, None)
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

    async def _send(
        self, address: str, code: RequestCode, fields: dict[str, str], accept: Collection[int]
    ) -> Frame:
        if self._client is None:
            raise ServerError("this broker has not started yet")
        timeout = self._cell.value.forward_timeout
        return await self._client.call(address, code, fields, within=timeout, accept=accept)

    async def _look_up(self, broker: str) -> str:
        async with self._looking_up:  # one query for all that wait
            if broker in self._addresses:
                return self._addresses[broker]
            reply = await self._ask_name_servers(RequestCode.GET_BROKER_CLUSTER_INFO, None)
            info = fastjson.decode(reply.body, ClusterInfo)
            self._addresses = {
                name: found.broker_addrs[_MASTER]
                for name, found in info.broker_addr_table.items()
                if _MASTER in found.broker_addrs
            }
        if broker not in self._addresses:
            raise ServerError(
                f"no NameServer knows a master of broker {broker}, which has a part of this queue"
            )
        return self._addresses[broker]

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


def _failed(broker: str, code: RequestCode, exc: BolideError) -> ServerError:
    return ServerError(
        f"broker {broker}, which has a part of this queue, does not serve {code.name}: {exc}"
    )
