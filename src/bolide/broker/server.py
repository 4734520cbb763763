"""The broker process: start, stop, and the periodic scans of a running broker."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from bolide.broker.assembly import Parts, all_handlers
from bolide.broker.background import Background
from bolide.broker.consume.assignments import Assignments, ClusterQueues, RequestModes
from bolide.broker.consume.expiry import EXPIRING_TOPICS, Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.delay import DelayScheduler
from bolide.broker.filters.filters import Filters
from bolide.broker.filters.functions import FILTER_FUNCTIONS, FilterFunctions
from bolide.broker.filters.subscriptions import FilterTable
from bolide.broker.gate import Hooks
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.ordered import ORDERS
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.registration import Registration
from bolide.broker.settings import config as settings
from bolide.broker.settings.config import VIP_PORT_DELTA, BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers
from bolide.config import ConfigCell
from bolide.errors import ConfigError
from bolide.model.message import Host
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.clients import ConsumerGroupHeader
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import UniqueIdMaker
from bolide.protocol.refusals import ServerError
from bolide.remoting.address import format_address
from bolide.remoting.client import RemotingClient
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.errors import RemotingError
from bolide.remoting.server import RemotingServer, close_all
from bolide.remoting.tasks import uninterrupted
from bolide.store import config as store_settings
from bolide.store.config import StoreConfig, delay_levels
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.recovery import Progress
from bolide.store.tables import (
    CONSUMER_FILTERS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    GROUPS,
    REQUEST_MODES,
    TIMER_METRICS,
    TOPICS,
    Table,
    TableKind,
)
from bolide.store.unsupported import refuse_unsupported_topics

log = logging.getLogger(__name__)

T = TypeVar("T")

_KNOWN_WITHIN = 2.0
"""Seconds that the start waits for the first NameServer to know this broker."""


class Broker:
    """Serves while its `async with` block runs.

    Args:
        config: its settings; those of the store are beside them.
        ignored: keys of RocketMQ that have no effect, as they were given; shown on request.
        hooks: what operators want to see or to refuse.
        progress: told how far the recovery of the store is.
        disk: what the store and the tables write through; tests have it fail.
    """

    def __init__(  # noqa: PLR0913  two configs, and what a test or an operator puts in its place
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        ignored: Mapping[str, str] | None = None,
        hooks: Hooks | None = None,
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
        self._hooks = hooks or Hooks()
        self._now = now

    @property
    def address(self) -> str:
        """`host:port` that clients are told."""
        config = self.config.value
        return format_address((config.broker_ip1, config.listen_port))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:  # if one fails, those before it end again
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
        """Start what runs; at the end it stops in the opposite order."""
        config = self.config.value
        starting.push_async_callback(asyncio.to_thread, parts.transactions.save)
        client = await starting.enter_async_context(RemotingClient(config.client_config()))
        starting.push_async_callback(parts.background.stop)
        starting.push_async_callback(parts.filters.stop)
        for part in (parts.durability, parts.intake, parts.duplicates.windows):
            part.start()
            starting.callback(part.stop)
        await asyncio.to_thread(parts.pop.load)
        parts.pop.start()
        starting.callback(parts.pop.journal.end_burst)
        await parts.timers.start()
        starting.push_async_callback(parts.timers.stop)
        parts.long_polling.start()
        dispatcher = Dispatcher(*all_handlers(parts))
        servers: list[RemotingServer] = []
        for delta in (0, VIP_PORT_DELTA):
            server = RemotingServer(
                config.server_config(delta),
                dispatcher,
                on_close=parts.clients.lost,
                fast=parts.fast_path,
            )
            servers.append(await starting.enter_async_context(server))
        # Together and at once: a pull that need not wait any more would come again and again.
        starting.push_async_callback(close_all, servers)
        starting.callback(parts.long_polling.stop)
        starting.callback(parts.pop.close)
        registration = self._registration(parts, client)
        parts.topics.announce = registration.announce
        parts.assignments.queues.client = client
        starting.push_async_callback(registration.unregister)
        chores = {
            "broker-registration": registration.run(),
            "broker-delay": parts.delay.run(),
            "broker-timers": parts.timers.run(),
            "broker-transactions": parts.transactions.run(),
            "broker-pop": parts.pop.run(),
            "broker-keeping": parts.maintenance.run(),
        }
        tasks = [asyncio.create_task(chore, name=name) for name, chore in chores.items()]
        for task in tasks:
            task.add_done_callback(_report)
        starting.push_async_callback(_end, tasks)
        with suppress(TimeoutError):  # it serves without NameServers too, and goes on trying
            async with asyncio.timeout(_KNOWN_WITHIN):
                await registration.known()

    def _registration(self, parts: Parts, client: RemotingClient) -> Registration:
        return Registration(
            self.config,
            parts.topics,
            client,
            address=lambda: self.address,
            ha_address=lambda: format_address(
                (self.config.value.broker_ip2, self.config.value.ha_listen_port)
            ),
        )

    async def _build(self) -> Parts:
        config, now = self.config.value, self._now
        host = Host(await _resolve(config.broker_ip1), config.listen_port)
        levels = delay_levels(self.store_config.value.message_delay_level)
        topic_table = await self._load(TOPICS)
        topics = TopicTable(topic_table, self.config, now)
        refuse_unsupported_topics(topics, topic_table.path)
        groups = GroupTable(await self._load(GROUPS), self.config, now)
        offsets_table = await self._load(CONSUMER_OFFSETS)
        self._save_offsets_by(offsets_table, config)
        self.config.on_change(lambda changed: self._save_offsets_by(offsets_table, changed))
        await asyncio.to_thread(topics.create_system_topics, len(levels) - 1)
        await asyncio.to_thread(groups.create_system_groups)
        durability = Durability(self.store, self.store_config)
        long_polling = LongPolling()
        intake = Intake(self.store, durability, long_polling)
        background = Background()

        def follow(_: BrokerConfig) -> None:
            background.start(_follow(topics), "broker-model-topic")

        self.config.on_change(follow)
        offsets = OffsetTable(offsets_table, now)
        offsets.on_reset = long_polling.arrived_in
        statistics = Statistics(
            config.broker_cluster_name, now, idle_minutes=config.max_stats_idle_time
        )
        clients = ClientTable(self.config, groups, now, _Notices(background).tell)
        locks = QueueLocks()
        delay = DelayScheduler(
            self.store,
            intake,
            durability,
            await self._load(DELAY_OFFSETS),
            delays=levels,
            store_host=pack_host(host),
            now=now,
        )
        return Parts(
            cell=self.config,
            store_cell=self.store_config,
            store=self.store,
            ignored=self._ignored,
            topics=topics,
            groups=groups,
            offsets=offsets,
            clients=clients,
            locks=locks,
            statistics=statistics,
            durability=durability,
            long_polling=long_polling,
            intake=intake,
            background=background,
            delay=delay,
            timers=Timers(
                self.store,
                intake,
                durability,
                await self._load(TIMER_METRICS),
                cell=self.config,
                store_host=pack_host(host),
                now=now,
                disk=self._disk,
            ),
            assignments=Assignments(
                self.config,
                clients,
                ClusterQueues(self.config, topics),
                RequestModes(await self._load(REQUEST_MODES)),
            ),
            filters=Filters(
                self.config,
                FilterTable(await self._load(CONSUMER_FILTERS), now),
                FilterFunctions(await self._load(FILTER_FUNCTIONS), self.config, now),
                clients,
            ),
            expiring=Expiring(
                await self._load(EXPIRING_TOPICS), now=now, exists=topics.__contains__
            ),
            orders=await self._load(ORDERS),
            hooks=self._hooks,
            unique_ids=UniqueIdMaker(
                pack_host(host)[:-4], os.getpid(), int.from_bytes(os.urandom(4))
            ),
            host=host,
            now=now,
        )

    async def _load(self, kind: TableKind[T]) -> Table[T]:
        table = Table(self.store_config.value.root / "config", kind, disk=self._disk)
        await asyncio.to_thread(table.load)
        return table

    @staticmethod
    def _save_offsets_by(table: Table[ConsumerOffsets], config: BrokerConfig) -> None:
        table.interval = config.consumer_offsets_interval


class _Notices:
    """Tells consumers that the members of their group changed."""

    def __init__(self, background: Background) -> None:
        self._background = background

    def tell(self, connection: Connection, group: str) -> None:
        self._background.start(self._tell(connection, group), "broker-notice")

    async def _tell(self, connection: Connection, group: str) -> None:
        if connection.is_blocked:
            return  # it is a hint: consumers look by themselves every 20 s
        fields = ConsumerGroupHeader(group).to_fields()
        with suppress(RemotingError):  # whoever is gone need not be told
            await connection.notify(
                Frame(code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields=fields)
            )


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    """None of them ends by itself."""
    if not task.cancelled():
        log.error("%s has ended, restart the broker", task.get_name(), exc_info=task.exception())


async def _follow(topics: TopicTable) -> None:
    try:
        await topics.follow_settings()
    except ServerError as exc:
        log.warning("TBW102 is not what the settings say: %s", exc.remark)


async def _resolve(name: str) -> str:
    """The address of a host: records hold numbers."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ConfigError(f"brokerIP1={name}: no such host ({exc})") from exc
    return str(found[0][4][0])


def _free_port(host: str) -> int:
    """A port that is free, and so is the one two below."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind((host, 0))
            port: int = first.getsockname()[1]
            with suppress(OSError):
                second.bind((host, port + VIP_PORT_DELTA))
                return port
