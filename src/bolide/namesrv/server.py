"""`NameServer` builds the tables, handlers and server, and starts and stops them."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from bolide.auth.access import AccessGate
from bolide.auth.audit import Auditor, LogTrail
from bolide.auth.choice import choose_access
from bolide.auth.credentials import inner_signers
from bolide.auth.permission_queries import PermissionQueryHandlers
from bolide.config import ConfigCell
from bolide.controller.config import ControllerConfig
from bolide.controller.errors import ControllerStoreUnusable
from bolide.controller.server import Controller
from bolide.errors import BolideError
from bolide.metrics.exporter import Collection, Exporter
from bolide.metrics.settings import check_metrics
from bolide.namesrv.audit import Subjects
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.handlers import (
    BrokerHandlers,
    ConfigHandlers,
    KvHandlers,
    OwnBrokers,
    RouteHandlers,
    TopicHandlers,
)
from bolide.namesrv.kv import KvConfig
from bolide.namesrv.metrics import NameServerMetrics
from bolide.namesrv.routes import MinIdNotice, RouteTable
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.server import RemotingServer
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

_KV_LOG_INTERVAL = 600.0

CLUSTER = "NameServer"
"""Policies about a NameServer itself, not about a cluster of brokers: `Cluster:NameServer`."""


class NameServer:
    """Serves while its `async with` block runs.

    Args:
        config: its settings.
        ignored: keys of the configuration file that have no effect, with their values.
        controller: settings of the controller that runs in the same process.
    """

    def __init__(
        self,
        config: NameServerConfig,
        ignored: Mapping[str, str] | None = None,
        controller: ControllerConfig | None = None,
    ) -> None:
        self.config = ConfigCell(config, check=_check)
        self._ignored = ignored or {}
        self.kv = KvConfig(config.kv_config_path)
        self.routes = RouteTable(lambda: self.config.value, time.monotonic)
        self.access = choose_access(
            config, directory=config.kv_config_path.parent / "auth", cluster=CLUSTER
        )
        self.controller = None if controller is None else Controller(controller, self.access)
        """The controller in this process; None also after its files have failed."""
        self._controller_stack = AsyncExitStack()
        self._client = RemotingClient(
            ClientConfig(tls=config.client_tls()), hooks=inner_signers(config)
        )
        self._name = "namesrv"
        self.dispatcher = self._dispatcher()
        self._server = RemotingServer(
            config.server_config(), self.dispatcher, on_close=self._connection_lost
        )
        self._is_serving = self._is_stopping = False
        found = NameServerMetrics(
            config,
            self.routes,
            self.dispatcher.latencies,
            lambda: len(self._server.connections),
            is_serving=lambda: self._is_serving,
            others=self._begin_of_controller,
        )
        self.metrics = Exporter(
            config, found.begin, found.readiness, any_port=config.listen_port == 0
        )
        """Serves /metrics, also those of a controller in this process."""
        self._notices: set[asyncio.Task[None]] = set()
        self.config.on_change(self._settings_changed)

    @property
    def address(self) -> str:
        """The listen address, `host:port`."""
        return self._server.address

    @property
    def port(self) -> int:
        return self._server.port

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:  # a failure closes what has been opened
            starting.callback(self._auditor.denials.end_window)
            await starting.enter_async_context(self.metrics)
            await starting.enter_async_context(self._client)
            await starting.enter_async_context(self._server)
            starting.push_async_callback(self._controller_stack.aclose)
            if self.controller is not None:
                await self._start_controller(self.controller)
            self._resources = starting.pop_all()
        self._is_serving = True
        self._name = f"namesrv {self.address}"
        self._periodic_tasks = [
            asyncio.create_task(self._scan(), name="namesrv-scan"),
            asyncio.create_task(self._log_kv(), name="namesrv-log-kv"),
            asyncio.create_task(self.access.run(), name="namesrv-access"),
        ]
        if self.controller is not None:
            watch = self._watch_controller(self.controller)
            self._periodic_tasks.append(asyncio.create_task(watch, name="namesrv-controller"))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_stopping = True
        for task in (*self._periodic_tasks, *self._notices):
            task.cancel()
        await asyncio.gather(*self._periodic_tasks, return_exceptions=True)
        await self._resources.aclose()

    def _begin_of_controller(self) -> Collection:
        if self.controller is None:
            return lambda _: iter(())
        return self.controller.collector.begin(is_alone=False)

    # ---- the controller: routes need none of its files, so it fails alone

    async def _start_controller(self, controller: Controller) -> None:
        try:
            await self._controller_stack.enter_async_context(controller)
        except ControllerStoreUnusable as exc:
            self._give_up_controller(exc)

    async def _watch_controller(self, controller: Controller) -> None:
        """Close the controller when it cannot go on."""
        try:
            await controller.failure()
        except Exception as exc:  # noqa: BLE001  logged, also if it is a fault of ours
            self._give_up_controller(exc)
            await uninterrupted(self._controller_stack.aclose())

    def _give_up_controller(self, exc: Exception) -> None:
        assert self.controller is not None
        directory = self.controller.config.value.journal_path.parent
        reason = str(exc)
        if isinstance(exc, OSError):
            reason += f". Make room, or mend the disk of {directory}; then restart this NameServer"
        log.critical(
            "this NameServer goes on serving routes, but without its controller, so elections need"
            " a majority of the others: %s", reason,
        )  # fmt: skip
        self.controller = None

    def _dispatcher(self) -> Dispatcher:
        own = OwnBrokers(self.access, self.config)
        gate = AccessGate(self.access)
        dispatcher = Dispatcher(
            RouteHandlers(self.routes, self.kv, self.config, time.monotonic),
            BrokerHandlers(self.routes, self.kv, self.config, self._notify, own),
            TopicHandlers(self.routes, self.config, own),
            KvHandlers(self.kv),
            ConfigHandlers(self.config, self._ignored),
            PermissionQueryHandlers(self.access),
            gate=gate,
        )
        self._auditor = Auditor(LogTrail(), gate.identify, lambda: self._name)
        gate.on_denied.add(self._auditor.denials.add)
        describers = Subjects(self.routes, self.kv, self.config).describers()
        self._auditor.take_over(dispatcher.routes, describers, {})
        return dispatcher

    def _settings_changed(self, config: NameServerConfig) -> None:
        self.routes.clear_encoded()

    def _connection_lost(self, connection: Connection) -> None:
        self._notify(self.routes.drop_link(connection))

    async def _scan(self) -> None:
        """Periodically remove brokers whose heartbeats have stopped."""
        while True:
            await asyncio.sleep(self.config.value.scan_not_active_broker_interval)
            links, notices = self.routes.drop_expired()
            self._notify(notices)
            for link in links:
                if isinstance(link, Connection):
                    link.close()

    async def _log_kv(self) -> None:
        while True:
            self.kv.log_all()
            await asyncio.sleep(_KV_LOG_INTERVAL)

    def _notify(self, notices: Iterable[MinIdNotice]) -> None:
        if self._is_stopping:  # connections close because of us, not the brokers
            return
        for notice in notices:
            log.info("lowest broker id changed: %s, notifying %s", notice.header, notice.addresses)
            for address in notice.addresses:
                task = asyncio.create_task(self._send_notice(address, notice))
                self._notices.add(task)
                task.add_done_callback(self._notices.discard)

    async def _send_notice(self, address: str, notice: MinIdNotice) -> None:
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        try:
            await self._client.notify(address, code, notice.header)
        except (BolideError, ValueError) as exc:
            log.warning("could not notify broker %s: %s", address, exc)


def _check(config: NameServerConfig) -> None:
    """Raises ConfigError if settings contradict each other."""
    check_metrics(config)
    config.server_config()
    config.client_tls()
