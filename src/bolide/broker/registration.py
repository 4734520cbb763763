"""Registers the broker with every NameServer; each NameServer has its own task."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import msgspec

from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.names import INHERIT
from bolide.protocol import fastjson
from bolide.protocol.bodies.registration import RegisterBrokerBody, compress
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.bodies.topics import MappedTopicConfigTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import (
    QueryDataVersionHeader,
    QueryDataVersionReply,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
)
from bolide.remoting.client import RemotingClient


@dataclass(frozen=True, slots=True)
class Message:
    """A registration; `number` is that of the last change it knows of."""

    number: int
    header: RegisterBrokerHeader
    body: bytes
    force: bool


class NameServerRegistrar:
    """Tells one NameServer: one registration at a time, and then the newest that has come up."""

    def __init__(
        self, tell: Callable[[Message], Awaitable[bool]], ended: Callable[[], None]
    ) -> None:
        self.tried = -1
        """The last change that it was told of, whether it took that or not."""
        self.knows = -1
        """The last change that it has taken."""
        self.answers = False
        """Whether it took the last registration, and in good time."""
        self._tell = tell
        self._ended = ended
        self._next: Message | None = None
        self._must_force = False
        self._task: asyncio.Task[None] | None = None

    def tell(self, message: Message) -> None:
        waiting = self._next
        self._next = replace(message, force=True) if waiting and waiting.force else message
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell_waiting(), name="broker-registration-call")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tell_waiting(self) -> None:
        while (message := self._next) is not None:
            self._next = None
            # What must be taken and was not: the version of the topics may not tell of it.
            if self._must_force:
                message = replace(message, force=True)
            self.answers = await self._tell(message)
            self._must_force = message.force and not self.answers
            self.tried = message.number
            if self.answers:
                self.knows = message.number
            self._ended()


log = logging.getLogger(__name__)

_CRC_MASK = 0x7FFF_FFFF
_SHORTEST_PERIOD, _LONGEST_PERIOD = 10.0, 60.0
_UNREGISTER_WITHIN = 3.0
_GATHER = 0.01
"""Seconds that changes of topics are gathered: many at once are one registration."""
_ANNOUNCE_WITHIN = 1.0
"""Seconds that who changed a topic waits for NameServers, all of which may be down."""


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
        self._changes = 0
        self._changed = asyncio.Event()
        self._heard = asyncio.Event()
        """Set when the next NameServer has answered or failed to; each time it is another."""
        self._tellers: dict[str, NameServerRegistrar] = {}
        self._silent: set[str] = set()
        topics.on_change(self._note_change)
        cell.on_change(lambda _: self._note_change())

    async def run(self) -> None:
        """Register at once, whenever topics or settings change, and now and then."""
        force = True
        try:
            while True:
                await self._tell_all(force=force)
                force = await self._next_time()
        finally:
            await asyncio.gather(*(teller.stop() for teller in self._tellers.values()))

    async def announce(self) -> None:
        """Wait until those NameServers know what has changed up to now that answer at all."""
        changes = self._changes
        try:
            async with asyncio.timeout(_ANNOUNCE_WITHIN):
                await self.known()
        except TimeoutError:
            for teller in self._current():
                teller.answers &= teller.tried >= changes

    async def known(self) -> None:
        """Wait until a NameServer knows what has changed up to now, and so do all others that
        took the last registration; or until all have failed."""
        changes = self._changes
        while not self._is_known(changes):
            await self._heard.wait()

    def _is_known(self, changes: int) -> bool:
        tellers = self._current()
        if any(teller.knows >= changes for teller in tellers):
            tellers = [teller for teller in tellers if teller.answers]
        return all(teller.tried >= changes for teller in tellers)

    def _note_change(self) -> None:
        self._changes += 1
        self._changed.set()

    async def _next_time(self) -> bool:
        """Wait for the next registration; says whether it must be one."""
        period = self._cell.value.register_name_server_period
        try:
            async with asyncio.timeout(min(max(period, _SHORTEST_PERIOD), _LONGEST_PERIOD)):
                await self._changed.wait()
        except TimeoutError:
            return self._cell.value.force_register
        await asyncio.sleep(_GATHER)
        self._changed.clear()
        return True

    async def _tell_all(self, *, force: bool) -> None:
        message = await self._message(force=force)
        for teller in self._current():
            teller.tell(message)
        servers = self._cell.value.name_servers
        for server in self._tellers.keys() - set(servers):
            await self._tellers.pop(server).stop()

    def _current(self) -> list[NameServerRegistrar]:
        """One for each NameServer of the settings."""
        for server in self._cell.value.name_servers:
            if server not in self._tellers:
                self._tellers[server] = NameServerRegistrar(partial(self._tell, server), self._hear)
        return [self._tellers[server] for server in self._cell.value.name_servers]

    def _hear(self) -> None:
        heard, self._heard = self._heard, asyncio.Event()
        heard.set()

    async def _tell(self, server: str, message: Message) -> bool:
        return await self._attempt(server, self._register(server, message))

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
        except Exception as exc:
            if server not in self._silent:
                known = isinstance(exc, BolideError | ValueError)
                log.warning(
                    "NameServer %s does not take this broker: %s",
                    server, exc, exc_info=None if known else exc,
                )  # fmt: skip
                self._silent.add(server)
            return False
        if server in self._silent:
            log.info("NameServer %s takes this broker again", server)
            self._silent.discard(server)
        return True

    async def _register(self, server: str, message: Message) -> None:
        if not message.force and not await self._is_outdated(server):
            return
        answer = await self._client.call(
            server,
            RequestCode.REGISTER_BROKER,
            message.header,
            body=message.body,
            within=self._cell.value.register_broker_timeout,
        )
        if answer.body:  # the topics that have an order configuration
            await self._topics.set_order(fastjson.decode(answer.body, KvTable).table)

    async def _is_outdated(self, server: str) -> bool:
        """Whether a NameServer holds another version of the topics, or does not say; to ask is a
        heartbeat too."""
        config = self._cell.value
        header = QueryDataVersionHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        body = fastjson.encode(self._topics.data_version)
        code = RequestCode.QUERY_DATA_VERSION
        try:
            answer = await self._client.call(server, code, header, body=body)
            return QueryDataVersionReply.from_fields(answer.fields).changed
        except BolideError as exc:
            log.debug("NameServer %s does not say what it knows: %s", server, exc)
            return True

    async def _say(self, server: str, code: RequestCode, header: UnregisterBrokerHeader) -> None:
        await self._client.call(server, code, header, within=_UNREGISTER_WITHIN)

    async def _message(self, *, force: bool) -> Message:
        config, changes = self._cell.value, self._changes
        allowed, compressed = config.broker_permission | INHERIT, config.compressed_register
        body = await asyncio.to_thread(_encode, self._topics.table, allowed, compressed=compressed)
        header = RegisterBrokerHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._ha_address(),
            broker_id=config.broker_id,
            enable_acting_master=False,
            compressed=compressed,
            body_crc32=crc32(body) & _CRC_MASK,
        )
        return Message(changes, header, body, force)


def _encode(topics: MappedTopicConfigTable, allowed: int, *, compressed: bool) -> bytes:
    """A registration's body; takes long where there are many topics."""
    topics.topic_config_table = {
        name: topic
        if topic.perm & allowed == topic.perm
        else msgspec.structs.replace(topic, perm=topic.perm & allowed)
        for name, topic in topics.topic_config_table.items()
    }
    body = RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    # There are only texts as keys: fastjson would write the same, many times slower here.
    return compress(body) if compressed else msgspec.json.encode(body, order="sorted")
