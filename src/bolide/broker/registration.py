"""Tells every NameServer that this broker is there and which topics it serves."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from zlib import crc32

import msgspec

from bolide.broker.config import BrokerConfig
from bolide.broker.topics import TopicTable
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.registration import RegisterBrokerBody, compress
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import (
    QueryDataVersionHeader,
    QueryDataVersionReply,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
)
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

_CRC_MASK = 0x7FFF_FFFF
_SHORTEST_PERIOD, _LONGEST_PERIOD = 10.0, 60.0
_UNREGISTER_WITHIN = 3.0
_GATHER = 0.01
"""Seconds that changes of topics are gathered: many at once are one registration."""
_ANNOUNCE_WITHIN = 1.0
"""Seconds that who changed a topic waits for NameServers, of which one may be down."""


class Registration:
    """Keeps a broker registered; `run` is its task.

    Args:
        address: where clients reach the broker, `host:port`.
        ha_address: where its replicas do.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        topics: TopicTable,
        client: RemotingClient,
        *,
        address: Callable[[], str],
        ha_address: Callable[[], str],
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._client = client
        self._address = address
        self._ha_address = ha_address
        self._changed = asyncio.Event()
        self._told = asyncio.Event()
        """Set when the next registration of a change has ended; each has its own."""
        self._silent: set[str] = set()
        topics.on_change(self._changed.set)
        cell.on_change(lambda _: self._changed.set())

    async def run(self) -> None:
        """Register again whenever topics change, and now and then."""
        while True:
            period = self._cell.value.register_name_server_period
            try:
                async with asyncio.timeout(min(max(period, _SHORTEST_PERIOD), _LONGEST_PERIOD)):
                    await self._changed.wait()
            except TimeoutError:
                await self.register(force=self._cell.value.force_register)
            else:
                await asyncio.sleep(_GATHER)
                self._changed.clear()
                told, self._told = self._told, asyncio.Event()
                await self.register()
                told.set()

    async def announce(self) -> None:
        """Wait until the NameServers know what has changed up to now, or give them up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANNOUNCE_WITHIN):
                await self._told.wait()

    async def register(self, *, force: bool = True) -> int:
        """Register with all NameServers at once; returns how many took it."""
        body, header = self._message()
        servers = self._cell.value.name_servers
        done = await asyncio.gather(
            *(
                self._attempt(server, self._register(server, header, body, force))
                for server in servers
            )
        )
        return sum(done)

    async def unregister(self) -> None:
        """Tell all NameServers that the broker leaves."""
        config = self._cell.value
        header = UnregisterBrokerHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        code = RequestCode.UNREGISTER_BROKER
        await asyncio.gather(
            *(
                self._attempt(server, self._say(server, code, header))
                for server in config.name_servers
            )
        )

    async def _attempt(self, server: str, work: Coroutine[Any, Any, None]) -> bool:
        """Do it, and say once what happened: not every thirty seconds again."""
        try:
            await work
        except (BolideError, ValueError) as exc:
            if server not in self._silent:
                log.warning("NameServer %s does not take this broker: %s", server, exc)
                self._silent.add(server)
            return False
        if server in self._silent:
            log.info("NameServer %s takes this broker again", server)
            self._silent.discard(server)
        return True

    async def _register(
        self, server: str, header: RegisterBrokerHeader, body: bytes, force: bool
    ) -> None:
        if not force and not await self._is_outdated(server):
            return
        await self._client.call(
            server,
            RequestCode.REGISTER_BROKER,
            header,
            body=body,
            within=self._cell.value.register_broker_timeout,
        )

    async def _is_outdated(self, server: str) -> bool:
        """Whether a NameServer holds another version of the topics; to ask is a heartbeat too."""
        config = self._cell.value
        header = QueryDataVersionHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        body = fastjson.encode(self._topics.data_version)
        answer = await self._client.call(server, RequestCode.QUERY_DATA_VERSION, header, body=body)
        return QueryDataVersionReply.from_fields(answer.fields).changed

    async def _say(self, server: str, code: RequestCode, header: UnregisterBrokerHeader) -> None:
        await self._client.call(server, code, header, within=_UNREGISTER_WITHIN)

    def _message(self) -> tuple[bytes, RegisterBrokerHeader]:
        config, table = self._cell.value, self._topics.table
        table.topic_config_table = {
            name: msgspec.structs.replace(topic, perm=topic.perm & (config.broker_permission | 1))
            for name, topic in table.topic_config_table.items()
        }
        registration = RegisterBrokerBody(topic_config_serialize_wrapper=table)
        plain = not config.compressed_register
        body = fastjson.encode(registration) if plain else compress(registration)
        header = RegisterBrokerHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._ha_address(),
            broker_id=config.broker_id,
            enable_acting_master=False,
            compressed=not plain,
            body_crc32=crc32(body) & _CRC_MASK,
        )
        return body, header
