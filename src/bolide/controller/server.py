"""`Controller` connects the Raft node, the leader's parts and the server; starts and stops them.

It runs alone, or inside the process of a NameServer.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from bolide.auth.access import Access, AccessGate
from bolide.auth.audit import Auditor, LogTrail
from bolide.auth.choice import choose_access
from bolide.auth.credentials import inner_signers
from bolide.config import ConfigCell
from bolide.controller.audit import Subjects
from bolide.controller.config import ControllerConfig, Peer
from bolide.controller.config_handlers import ConfigHandlers
from bolide.controller.elections import Elections
from bolide.controller.handlers import AdminHandlers, BrokerHandlers, Leadership
from bolide.controller.liveness import Leases, LiveTable, boot_clock
from bolide.controller.metrics import ControllerMetrics
from bolide.controller.notices import RoleNotices
from bolide.controller.own_brokers import OwnBrokers
from bolide.controller.proposals import Proposals, View
from bolide.controller.state import Outcome, Snapshot
from bolide.logs import ThrottledLog
from bolide.metrics.exporter import Exporter
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.server import RemotingServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from bolide.controller.raft import RaftNode

log = logging.getLogger(__name__)

CLUSTER = "Controller"
"""Policies about a controller itself, not about a cluster of brokers: `Cluster:Controller`."""

HANDLERS: tuple[type, ...] = (BrokerHandlers, AdminHandlers, ConfigHandlers)
"""Classes whose `handles` decorators declare the served requests."""

_SCAN_PERIOD = 0.05
_LEADERLESS = 5.0
"""Seconds without a leader after which that is reported; elections take one or two."""


class Controller:
    """Serves while its `async with` block runs.

    Args:
        config: its settings.
        access: the access control of the server in whose process it runs; None: its own.
        ignored: keys of the configuration file that have no effect, with their values.
    """

    def __init__(
        self,
        config: ControllerConfig,
        access: Access | None = None,
        ignored: Mapping[str, str] | None = None,
    ) -> None:
        config.check()
        self.config = ConfigCell(config, check=ControllerConfig.check)
        self._has_own_access = access is None
        self.access = access or choose_access(
            config, directory=config.controller_store_path / "auth", cluster=CLUSTER
        )
        self.view = View()
        self.live = LiveTable(config.times, boot_clock)
        self._client = RemotingClient(
            ClientConfig(tls=config.client_tls()), hooks=inner_signers(config)
        )
        self._log = _LateLog()
        self.proposals = Proposals(
            config.controller_d_leger_self_id, self._log, self.view, boot_clock, self._call_later
        )
        self.elections = Elections(
            self.view,
            self.proposals,
            self.live,
            Leases(config.times, boot_clock),
            self._call_later,
            lambda: self.config.value.enable_elect_unclean_master,
        )
        self._notices = RoleNotices(
            self.live, self._client, lambda: self.proposals.is_acting, lambda: self.view.quorum
        )
        self.dispatcher = self._dispatcher(ignored or {})
        self._server = RemotingServer(
            config.server_config(), self.dispatcher, on_close=self.live.drop_connection
        )
        self.collector = ControllerMetrics(
            config,
            self.dispatcher.latencies,
            leads=lambda: self.is_acting,
            knows_leader=lambda: self._log.node is not None and self._log.node.knows_leader,
            alive=self._alive,
        )
        self.metrics = Exporter(config, self.collector.begin, self.collector.readiness)
        """Serves /metrics, unless the server in whose process this runs does."""
        self._tasks: list[asyncio.Task[None]] = []

    def _alive(self) -> dict[tuple[str, str], int]:
        """Numbers of live brokers by cluster and group."""
        found = {}
        for name in self.live.groups:
            group = self.view.groups.get(name)
            found[group.cluster if group else "", name] = len(self.live.alive(name))
        return found

    @property
    def address(self) -> str:
        """The listen address, `host:port`."""
        return self._server.address

    @property
    def is_acting(self) -> bool:
        """Whether this controller is the leader, as far as it knows."""
        return self.proposals.is_acting

    async def failure(self) -> None:
        """Wait until the controller cannot go on. Raises the reason."""
        await self._failure

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        async with AsyncExitStack() as starting:  # a failure closes what has been opened
            starting.callback(self._auditor.denials.end_window)
            starting.callback(self._notices.close)
            if self._has_own_access:
                await starting.enter_async_context(self.metrics)
            await starting.enter_async_context(self._client)
            await starting.enter_async_context(self._server)
            starting.callback(self._cancel_tasks)
            self._log.node = self._start_raft()
            self._quorum_watch = QuorumWatch(self._log.node, self.config.value.peers, boot_clock)
            starting.callback(self._log.node.close)
            self._resources = starting.pop_all()
        self._tasks = [asyncio.create_task(self._scan(), name="controller-scan")]
        if self._has_own_access:
            self._tasks.append(asyncio.create_task(self.access.run(), name="controller-access"))
        if len(self.config.value.peers) == 2:
            log.warning(
                "two controllers are less available than one: either of them stops all elections"
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cancel_tasks()
        self.proposals.library_leads(False)
        self._failure.cancel()
        await self._resources.aclose()

    def _start_raft(self) -> "RaftNode":
        # The library is imported only by a process that runs a controller.
        from bolide.controller.raft import RaftAddresses, RaftListener, RaftNode  # noqa: PLC0415

        config = self.config.value
        others = tuple(each.raft_address for each in config.peers if each != config.own)
        return RaftNode(
            RaftAddresses(own=config.own.raft_address, others=others, bind=config.raft_bind),
            config.journal_path,
            RaftListener(
                applied=self._applied,
                restored=self._restored,
                leads=self.proposals.library_leads,
                failed=self._failed,
            ),
            password=config.controller_raft_password,
            loop=self._loop,
        )

    def _dispatcher(self, ignored: Mapping[str, str]) -> Dispatcher:
        own = OwnBrokers(self.access, self.config, self.view, self.live)
        leadership = Leadership(self.view, self.proposals, self.elections)
        gate = AccessGate(self.access)
        dispatcher = Dispatcher(
            BrokerHandlers(leadership, self.live, self.config, own),
            AdminHandlers(leadership, self.live, self.config, own, boot_clock),
            ConfigHandlers(self.config, ignored),
            gate=gate,
        )
        name = f"controller {self.config.value.own.address}"
        self._auditor = Auditor(LogTrail(), gate.identify, lambda: name)
        gate.on_denied.add(self._auditor.denials.add)
        describers = Subjects(self.view, self.config).describers()
        self._auditor.take_over(dispatcher.routes, describers, {})
        return dispatcher

    def _call_later(self, delay: float, callback: "Callable[[], None]") -> object:
        return self._loop.call_later(delay, callback)

    # Events of the Raft node, on the event loop

    def _applied(self, outcome: Outcome) -> None:
        before = {name: self.view.groups.get(name) for name in outcome.changed}
        self.view.applied(outcome)
        if self.config.value.notify_broker_role_changed:
            for name, group in outcome.changed.items():
                self._notices.changed(before[name], group)

    def _restored(self, found: Snapshot) -> None:
        before = self.view.groups
        self.view.restored(found)
        if self.config.value.notify_broker_role_changed:
            for name, group in found.groups.items():
                self._notices.changed(before.get(name), group)

    def _failed(self, exc: BaseException) -> None:
        log.critical("the controller cannot go on: %s", exc)
        self.proposals.library_leads(False)
        if not self._failure.done():
            self._failure.set_exception(exc)

    async def _scan(self) -> None:
        failures = ThrottledLog(log)
        while True:
            for step in (
                self.proposals.try_to_lead,
                self.elections.scan,
                self.live.drop_expired,
                self._quorum_watch.look,
            ):
                try:
                    step()
                except Exception as exc:  # noqa: BLE001  without scans nobody replaces a dead master
                    failures.warning(step.__name__, "a scan failed: %s", exc, exc_info=exc)
            await asyncio.sleep(_SCAN_PERIOD)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()


class Node(Protocol):
    """What a watch sees of a Raft node."""

    @property
    def knows_leader(self) -> bool: ...

    def unconnected(self) -> list[str]: ...


class QuorumWatch:
    """Reports that controllers have had no leader for long, and which peers are not connected."""

    def __init__(self, node: Node, peers: Iterable[Peer], clock: "Callable[[], float]") -> None:
        self._node = node
        self._peers = tuple(peers)
        self._clock = clock
        self._led_at = clock()
        self._is_reported = False
        self._reports = ThrottledLog(log, every=300.0, now=clock)

    def look(self) -> None:
        """Called again and again."""
        now = self._clock()
        if self._node.knows_leader:
            if self._is_reported:
                log.warning("the controllers have a leader again, after %.0f s", now - self._led_at)
                self._reports.forget("leader")
            self._led_at, self._is_reported = now, False
        elif now - self._led_at >= _LEADERLESS:
            self._is_reported = True
            self._reports.warning(
                "leader", "no controller has led for %.0f s, so no master is elected: that needs %s"
                " of %s controllers; %s", now - self._led_at, len(self._peers) // 2 + 1,
                len(self._peers), self._connections(),
            )  # fmt: skip

    def _connections(self) -> str:
        missing = self._node.unconnected()
        names = [
            f"{each.id} at {each.raft_address}"
            for each in self._peers
            if each.raft_address in missing
        ]
        if not names:
            return "all others are connected"
        return (
            f"not connected: {', '.join(names)}. Do they run, can their Raft ports be reached from"
            " here and this one's from there, and do all of them have the same"
            " controllerDLegerPeers and controllerRaftPassword?"
        )


class _LateLog:
    """The log of a controller, whose Raft node starts after everything else is built."""

    def __init__(self) -> None:
        self.node: RaftNode | None = None

    @property
    def leads(self) -> bool:
        return self.node is not None and self.node.leads

    def propose(self, entry: bytes, done: "Callable[[Outcome | None], None]") -> None:
        if self.node is not None:
            self.node.propose(entry, done)
