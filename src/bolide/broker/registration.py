"""Registers the broker with every NameServer.

`Registration` decides when to register; one `NameServerRegistrar` per NameServer makes the calls,
so a NameServer that is down does not delay the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import msgspec

from bolide.broker.background import COMPUTE, on_thread
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.replicas.role import Role
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.events import Listeners
from bolide.model.names import INHERIT
from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.registration import RegisterBrokerBody, compress
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.bodies.topics import MappedTopicConfigTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import (
    QueryDataVersionHeader,
    QueryDataVersionReply,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    UnregisterBrokerHeader,
)
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

_CRC_MASK = 0x7FFF_FFFF
_SHORTEST_PERIOD, _LONGEST_PERIOD = 10.0, 60.0
_FIRST_PAUSE = 0.5
"""Seconds after which a slave without a master asks the NameServers again, at first."""
_UNREGISTER_TIMEOUT = 3.0
_LEAVE_TIMEOUT = 1.0
"""Seconds to unregister from a removed NameServer, which may be removed because it is down."""
_BATCH_DELAY = 0.01
"""Seconds between a change and its registration, so that a burst of changes is sent as one."""
_ANNOUNCE_TIMEOUT = 1.0
"""Seconds that a change of a topic waits for NameServers, all of which may be down."""


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """A registration to send; `change` is the number of the last change that it includes."""

    change: int
    header: RegisterBrokerHeader
    body: bytes
    force: bool
    """Register even if the NameServer has the current version of the topics."""


class Registration:
    """Keeps a broker registered; `run` is its task.

    Args:
        address: address of the broker for clients, `host:port`.
        ha_address: address of the broker for replicas.
        lacks_master: whether this broker is a slave that a NameServer must tell its master.
    """

    def __init__(  # noqa: PLR0913  what a registration tells
        self,
        cell: ConfigCell[BrokerConfig],
        topics: TopicTable,
        client: RemotingClient,
        *,
        mappings: QueueMappings,
        role: Role,
        address: Callable[[], str],
        ha_address: Callable[[], str],
        lacks_master: Callable[[], bool] = lambda: False,
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._mappings = mappings
        self._client = client
        self._role = role
        self.on_master_known: Listeners[str | None, str | None] = Listeners()
        """Emitted for a slave with the address and the HA address of its master."""
        self._address = address
        self._ha_address = ha_address
        self._lacks_master = lacks_master
        self._pause = _FIRST_PAUSE
        self._changes = 0
        self._changed = asyncio.Event()
        self._attempted = asyncio.Event()
        """Set and replaced after each attempt at any NameServer."""
        self._registrars: dict[str, NameServerRegistrar] = {}
        self._failing: set[str] = set()

    async def run(self) -> None:
        """Register at start, after each change of topics or settings, and periodically."""
        force = True
        try:
            while True:
                await self._submit_all(force=force)
                force = await self._wait_for_next()
        finally:
            await asyncio.gather(*(each.stop() for each in self._registrars.values()))

    async def announce(self) -> None:
        """Wait until all responsive NameServers have accepted the changes made so far."""
        changes = self._changes
        try:
            async with asyncio.timeout(_ANNOUNCE_TIMEOUT):
                await self.known()
        except TimeoutError:
            for registrar in self._current_registrars():
                registrar.is_responsive &= registrar.last_attempted >= changes

    async def known(self) -> None:
        """Wait until the changes made so far are registered.

        That is when one NameServer has accepted them and every other responsive one has been tried,
        or when all NameServers have failed.
        """
        changes = self._changes
        while not self._is_known(changes):
            await self._attempted.wait()

    def _is_known(self, changes: int) -> bool:
        registrars = self._current_registrars()
        if any(each.last_accepted >= changes for each in registrars):
            registrars = [each for each in registrars if each.is_responsive]
        return all(each.last_attempted >= changes for each in registrars)

    @property
    def accepted_by(self) -> list[str]:
        """NameServers that have accepted the last registration sent to them."""
        registrars = dict(self._registrars)
        return [server for server, each in registrars.items() if each.is_responsive]

    def record_change(self, _: object = None) -> None:
        """Register anew soon: topics or settings have changed."""
        self._changes += 1
        self._changed.set()

    async def _wait_for_next(self) -> bool:
        """Wait for a change or the end of the period; returns whether to force registration."""
        try:
            async with asyncio.timeout(self._period()):
                await self._changed.wait()
        except TimeoutError:
            return self._cell.value.force_register or self._lacks_master()
        await asyncio.sleep(_BATCH_DELAY)
        self._changed.clear()
        return True

    def _period(self) -> float:
        """Seconds until the next registration; fewer at first while the master is unknown."""
        usual = self._cell.value.register_name_server_period
        usual = min(max(usual, _SHORTEST_PERIOD), _LONGEST_PERIOD)
        if not self._lacks_master():
            self._pause = _FIRST_PAUSE
            return usual
        pause, self._pause = self._pause, min(self._pause * 2, usual)
        return pause

    async def _submit_all(self, *, force: bool) -> None:
        if self._role.broker_id < 0:  # the controller has not given an id yet
            return
        request = await self._request(force=force)
        for registrar in self._current_registrars():
            registrar.submit(request)
        removed = self._registrars.keys() - set(self._cell.value.name_servers)
        await asyncio.gather(*map(self._leave, removed))

    async def _leave(self, server: str) -> None:
        """Unregister from a NameServer that the settings do not name any more.

        Changes wait for it: if the setting names the NameServer again, the broker must not
        unregister after it has registered anew.
        """
        await self._registrars.pop(server).stop()
        with suppress(TimeoutError):  # the NameServer notices that the broker is silent
            async with asyncio.timeout(_LEAVE_TIMEOUT):
                await self._attempt(server, self._unregister(server, self._unregistration()))
        self._failing.discard(server)

    def _current_registrars(self) -> "list[NameServerRegistrar]":
        """One for each NameServer of the settings, created on first use."""
        for server in self._cell.value.name_servers:
            if server not in self._registrars:
                register = partial(self._try_to_register, server)
                self._registrars[server] = NameServerRegistrar(register, self._wake)
        return [self._registrars[server] for server in self._cell.value.name_servers]

    def _wake(self) -> None:
        """Wake the waiters of `known`, which check again."""
        attempted, self._attempted = self._attempted, asyncio.Event()
        attempted.set()

    async def _try_to_register(self, server: str, request: RegistrationRequest) -> bool:
        return await self._attempt(server, self._register(server, request))

    async def unregister(self) -> None:
        """Unregister from all NameServers."""
        header = self._unregistration()
        await asyncio.gather(
            *(
                self._attempt(server, self._unregister(server, header))
                for server in self._cell.value.name_servers
            )
        )

    def _unregistration(self) -> UnregisterBrokerHeader:
        config = self._cell.value
        return UnregisterBrokerHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            broker_id=self._role.broker_id,
        )

    async def _attempt(self, server: str, work: Coroutine[Any, Any, None]) -> bool:
        """Await a call; returns whether it succeeded. Logs the first failure of a series only."""
        try:
            await work
        except Exception as exc:  # task boundary: the next period tries again
            if server not in self._failing:
                is_expected = isinstance(exc, BolideError | ValueError)
                log.warning(
                    "NameServer %s does not accept this broker: %s",
                    server, exc, exc_info=None if is_expected else exc,
                )  # fmt: skip
                self._failing.add(server)
            return False
        if server in self._failing:
            log.info("NameServer %s accepts this broker again", server)
            self._failing.discard(server)
        return True

    async def _register(self, server: str, request: RegistrationRequest) -> None:
        if not request.force and not await self._is_outdated(server):
            return
        answer = await self._client.call(
            server,
            RequestCode.REGISTER_BROKER,
            request.header,
            body=request.body,
            within=self._cell.value.register_broker_timeout,
        )
        known = RegisterBrokerReply.from_fields(answer.fields)
        if known.master_addr or known.ha_server_addr:
            self.on_master_known(known.master_addr, known.ha_server_addr)
        if answer.body:  # the order configuration: its keys are the ordered topics
            await self._topics.set_order(fastjson.decode(answer.body, KvTable).table)

    async def _is_outdated(self, server: str) -> bool:
        """Whether a NameServer has another version of the topics, or does not answer.

        The query also counts as a heartbeat.
        """
        config = self._cell.value
        header = QueryDataVersionHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            broker_id=self._role.broker_id,
        )
        body = fastjson.encode(self._version(self._topics.data_version))
        code = RequestCode.QUERY_DATA_VERSION
        try:
            answer = await self._client.call(server, code, header, body=body)
            return QueryDataVersionReply.from_fields(answer.fields).changed
        except BolideError as exc:
            log.debug("NameServer %s does not return its data version: %s", server, exc)
            return True

    def _version(self, version: DataVersion) -> DataVersion:
        """The version of the topics; of two masters NameServers keep the one of the later epoch."""
        if not self._role.is_elected:
            return version
        return msgspec.structs.replace(version, state_version=max(self._role.epoch, 0))

    async def _unregister(self, server: str, header: UnregisterBrokerHeader) -> None:
        code = RequestCode.UNREGISTER_BROKER
        await self._client.call(server, code, header, within=_UNREGISTER_TIMEOUT)

    async def _request(self, *, force: bool) -> RegistrationRequest:
        config, changes = self._cell.value, self._changes
        allowed, compressed = config.broker_permission | INHERIT, config.compressed_register
        topics = self._topics.table
        topics.data_version = self._version(topics.data_version)
        topics.topic_queue_mapping_info_map = self._mappings.published()
        body = await on_thread(COMPUTE, _encode, topics, allowed, compressed=compressed)
        header = RegisterBrokerHeader(
            broker_name=config.broker_name,
            broker_addr=self._address(),
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._ha_address(),
            broker_id=self._role.broker_id,
            enable_acting_master=config.enable_slave_acting_master,
            compressed=compressed,
            body_crc32=crc32(body) & _CRC_MASK,
        )
        return RegistrationRequest(changes, header, body, force)


class NameServerRegistrar:
    """Registers with one NameServer: one call at a time, then the newest request.

    Args:
        register: makes the call; returns whether the NameServer accepted it.
        attempted: called after each call.
    """

    def __init__(
        self,
        register: Callable[[RegistrationRequest], Awaitable[bool]],
        attempted: Callable[[], None],
    ) -> None:
        self.last_attempted = -1
        """The last change that was sent, accepted or not."""
        self.last_accepted = -1
        """The last change that the NameServer accepted."""
        self.is_responsive = False
        """Whether the NameServer accepted the last registration, and in time."""
        self._register = register
        self._attempted = attempted
        self._next: RegistrationRequest | None = None
        self._must_force = False
        self._task: asyncio.Task[None] | None = None

    def submit(self, request: RegistrationRequest) -> None:
        """Send the request, or queue it behind a running call; it replaces a queued one."""
        queued = self._next
        self._next = replace(request, force=True) if queued and queued.force else request
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_queued(), name="broker-registration-call")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send_queued(self) -> None:
        while (request := self._next) is not None:
            self._next = None
            # A forced request that failed may contain a change of settings, which the version of
            # the topics does not show. So the next one is forced too.
            if self._must_force:
                request = replace(request, force=True)
            self.is_responsive = await self._register(request)
            self._must_force = request.force and not self.is_responsive
            self.last_attempted = request.change
            if self.is_responsive:
                self.last_accepted = request.change
            self._attempted()


def _encode(topics: MappedTopicConfigTable, allowed: int, *, compressed: bool) -> bytes:
    """Encode the body of a registration; slow with many topics, so it runs on a thread."""
    topics.topic_config_table = {
        name: topic
        if topic.perm & allowed == topic.perm
        else msgspec.structs.replace(topic, perm=topic.perm & allowed)
        for name, topic in sorted(topics.topic_config_table.items())  # msgspec's sort is slow
    }
    body = RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    if compressed:
        return compress(body)
    # Standard JSON, which Java reads as well, is many times faster than fastjson. Without
    # mappings all keys are strings and both are the same.
    return msgspec.json.encode(
        body, order=None if topics.topic_queue_mapping_info_map else "sorted"
    )
