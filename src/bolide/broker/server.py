"""The broker process: starts and stops its parts in order and runs their periodic jobs."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from bolide.auth.access import Access
from bolide.auth.choice import choose_access
from bolide.auth.credentials import inner_signers
from bolide.broker.assembly import assemble
from bolide.broker.components import Parts, Surroundings, Tables
from bolide.broker.gate import Gate
from bolide.broker.registration import Registration
from bolide.broker.settings import config as settings
from bolide.broker.settings.config import VIP_PORT_DELTA, BrokerConfig
from bolide.broker.wiring import connect_registration
from bolide.config import ConfigCell
from bolide.errors import ConfigError
from bolide.model.message import Host
from bolide.remoting.address import format_address
from bolide.remoting.client import RemotingClient
from bolide.remoting.server import RemotingServer, close_all
from bolide.remoting.tasks import uninterrupted
from bolide.store import config as store_settings
from bolide.store.config import StoreConfig
from bolide.store.descriptors import usual_limit
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.recovery import Progress
from bolide.store.unsupported import refuse_unsupported_topics

log = logging.getLogger(__name__)

_REGISTRATION_WAIT = 2.0
_RESERVED_FILES = 64
"""Descriptors for log files and connections to NameServers, beside the cache of the store."""
"""Seconds for which the start waits until a first NameServer has registered this broker."""


class Broker:
    """A broker that serves requests while its `async with` block runs.

    Args:
        config: settings of the broker.
        store_config: settings of its store.
        ignored: RocketMQ settings given by the operator that have no effect here; reported by
            GET_BROKER_CONFIG.
        gate: admits or refuses every request; by default as the settings say.
        progress: called with the progress of the store's recovery.
        disk: file operations of the store and the tables; tests inject failures with it.
    """

    def __init__(  # noqa: PLR0913  two configs and the injected parts
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        ignored: Mapping[str, str] | None = None,
        gate: Gate | None = None,
        now: Callable[[], float] = time.time,
        progress: Progress | None = None,
        disk: Disk | None = None,
    ) -> None:
        if config.listen_port == 0:
            port = _free_port(config.bind_address)
            config = replace(config, listen_port=port, ha_listen_port=port + 1)
        self.config = ConfigCell(config, check=settings.check)
        self.store_config = ConfigCell(store_config, check=store_settings.check)
        self.store = MessageStore(self.store_config, clock=now, disk=disk, progress=progress)
        self._disk = disk
        self._ignored = ignored or {}
        self.gate = gate or Gate(access=broker_access(config, store_config))
        self._now = now

    @property
    def address(self) -> str:
        """`host:port` that is registered with the NameServers."""
        config = self.config.value
        return format_address((config.broker_ip1, config.listen_port))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:  # a failure stops the parts started before it
            starting.push_async_callback(asyncio.to_thread, self.store.close)
            await uninterrupted(asyncio.to_thread(self.store.__enter__))
            self.parts = await uninterrupted(self._build())
            starting.push_async_callback(asyncio.to_thread, self.parts.maintenance.save)
            await self._start(self.parts, starting)
            self._running = starting.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._running.aclose()

    async def _start(self, parts: Parts, starting: AsyncExitStack) -> None:
        """Start the parts; `starting` stops them in reverse order."""
        config = self.config.value
        starting.push_async_callback(asyncio.to_thread, parts.transactions.save)
        client = await starting.enter_async_context(
            RemotingClient(config.client_config(), hooks=inner_signers(config))
        )
        starting.push_async_callback(parts.background.stop)
        starting.push_async_callback(parts.filters.stop)
        for part in (parts.durability, parts.intake, parts.duplicates.windows):
            part.start()
            starting.callback(part.stop)
        starting.callback(parts.auditor.denials.end_window)
        await asyncio.to_thread(parts.pop.load)
        parts.pop.start()
        starting.callback(parts.pop.journal.end_burst)
        await parts.timers.start()
        starting.push_async_callback(parts.timers.stop)
        parts.long_polling.start()
        servers: list[RemotingServer] = []
        for delta in (0, VIP_PORT_DELTA):
            server = RemotingServer(
                replace(
                    config.server_config(delta), reserved_files=_RESERVED_FILES + usual_limit()
                ),
                parts.dispatcher,
                on_close=parts.connection_lost,
                fast=parts.fast_path,
            )
            servers.append(await starting.enter_async_context(server))
        # Both at once: a client whose pull is answered at shutdown would pull again immediately.
        starting.push_async_callback(close_all, servers)
        starting.callback(parts.long_polling.stop)
        starting.callback(parts.pop.close)
        registration = self._registration(parts, client)
        connect_registration(parts, registration)
        parts.assignments.queues.use(client)
        parts.peers.use(client)
        starting.push_async_callback(registration.unregister)
        jobs = {
            "broker-registration": registration.run(),
            "broker-delay": parts.delay.run(),
            "broker-timers": parts.timers.run(),
            "broker-transactions": parts.transactions.run(),
            "broker-pop": parts.pop.run(),
            "broker-maintenance": parts.maintenance.run(),
            "broker-mappings": parts.mapping_cleaner.run(),
            "broker-access": self.gate.access.run(),
        }
        tasks = [asyncio.create_task(job, name=name) for name, job in jobs.items()]
        for task in tasks:
            task.add_done_callback(_report)
        starting.push_async_callback(_end, tasks)
        with suppress(TimeoutError):  # serve without NameServers; registration keeps retrying
            async with asyncio.timeout(_REGISTRATION_WAIT):
                await registration.known()

    def _registration(self, parts: Parts, client: RemotingClient) -> Registration:
        return Registration(
            self.config,
            parts.topics,
            client,
            mappings=parts.mappings,
            address=lambda: self.address,
            ha_address=lambda: format_address(
                (self.config.value.broker_ip2, self.config.value.ha_listen_port)
            ),
        )

    async def _build(self) -> Parts:
        config = self.config.value
        tables = Tables.below(self.store_config.value.root, self._disk)
        await asyncio.to_thread(tables.load)
        given = Surroundings(
            cell=self.config,
            store_cell=self.store_config,
            store=self.store,
            host=Host(await _resolve(config.broker_ip1), config.listen_port),
            gate=self.gate,
            now=self._now,
            ignored=self._ignored,
            disk=self._disk,
        )
        parts = assemble(given, tables)
        refuse_unsupported_topics(parts.topics, tables.topics.path)
        await asyncio.to_thread(self.store.compaction.open_all)
        await asyncio.to_thread(parts.topics.create_system_topics, parts.delay.max_level)
        await asyncio.to_thread(parts.groups.create_system_groups)
        return parts


def broker_access(config: BrokerConfig, store_config: StoreConfig) -> Access:
    """The access control of a broker; its files are below the store. Raises ConfigError."""
    directory = store_config.root / "config" / "auth"
    return choose_access(config, directory=directory, cluster=config.broker_cluster_name)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    """Log the end of a periodic job; none is expected to end before shutdown."""
    if not task.cancelled():
        log.error(
            "%s ended unexpectedly, restart the broker", task.get_name(), exc_info=task.exception()
        )


async def _resolve(name: str) -> str:
    """Resolve a host name to an IP address, as records store it."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ConfigError(f"brokerIP1={name}: no such host ({exc})") from exc
    return str(found[0][4][0])


def _free_port(host: str) -> int:
    """Find a free port whose VIP port is free as well."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind((host, 0))
            port: int = first.getsockname()[1]
            with suppress(OSError):
                second.bind((host, port + VIP_PORT_DELTA))
                return port
