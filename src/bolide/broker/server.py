"""The broker process: starts and stops its parts in order and runs their periodic jobs."""

import asyncio
import logging
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bolide.auth.access import Access
from bolide.auth.choice import choose_access
from bolide.auth.credentials import inner_signers
from bolide.broker.components import Parts, Surroundings
from bolide.broker.gate import BetweenTerms, Gate
from bolide.broker.metrics.collection import BrokerMetrics
from bolide.broker.registration import Registration
from bolide.broker.replicas.controllers import Controllers, GroupState
from bolide.broker.replicas.handlers import RoleChangeHandlers
from bolide.broker.replicas.identity import IdentityFile
from bolide.broker.replicas.known_hosts import KnownHosts
from bolide.broker.replicas.membership import Membership
from bolide.broker.replicas.role import Role, configured_role
from bolide.broker.settings import config as settings
from bolide.broker.settings.config import HA_PORT_DELTA, VIP_PORT_DELTA, BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.broker.tables import Tables
from bolide.broker.term import Term, report_end
from bolide.config import ConfigCell
from bolide.errors import ConfigError
from bolide.metrics.exporter import Exporter
from bolide.model.message import Host
from bolide.remoting.address import format_address
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.server import RemotingServer, close_all, ensure_free
from bolide.remoting.tasks import uninterrupted
from bolide.replication.epochs import Epochs
from bolide.store import config as store_settings
from bolide.store.commit_log import CommitLog
from bolide.store.config import StoreConfig
from bolide.store.descriptors import usual_limit
from bolide.store.disk import Disk
from bolide.store.errors import NoLease, ReplicaRefuses
from bolide.store.message_store import MessageStore
from bolide.store.recovery import Progress

log = logging.getLogger(__name__)

_PORTS = (10_000, 32_000)
"""Where a broker with listenPort=0 looks for a port."""
_REGISTRATION_WAIT = 2.0
"""Seconds for which the start waits until a first NameServer has registered this broker."""
_RESERVED_FILES = 64
"""Descriptors for log files and connections to NameServers, beside the cache of the store."""


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
        has_any_port = config.listen_port == 0
        if has_any_port:
            port = _free_port(config.bind_address)
            config = replace(config, listen_port=port, ha_listen_port=port + HA_PORT_DELTA)
        self.config = ConfigCell(config, check=settings.check)
        self.store_config = ConfigCell(store_config, check=store_settings.check)
        self.store = MessageStore(self.store_config, clock=now, disk=disk, progress=progress)
        self._disk = disk
        self._ignored = ignored or {}
        self.gate = gate or Gate(access=broker_access(config, store_config))
        self._now = now
        self._epochs: Epochs | None = None
        self._controllers: Controllers | None = None
        self.membership: Membership | None = None
        self._registered: Registration | None = None
        self._unopened: Term | None = None
        """The term of a master that may not begin yet; `parts` are those of the term before."""
        self._known_confirmed: int | None = None
        """What was confirmed before that term."""
        self._is_started = False
        self._metrics = BrokerMetrics(
            config,
            lambda: self._term.parts if self._is_started else None,
            lambda: self._registered,
            now,
        )
        self.metrics = Exporter(
            config,
            self._metrics.begin,
            self._metrics.readiness,
            prepare=self._metrics.prepare,
            any_port=has_any_port,
        )
        """Serves /metrics; from before the store is opened."""
        self._has_lease = True
        """As the parts of the present term were told; always without controllers."""

    @property
    def address(self) -> str:
        """`host:port` that is registered with the NameServers."""
        config = self.config.value
        return format_address((config.broker_ip1, config.listen_port))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:  # a failure stops the parts started before it
            await starting.enter_async_context(self.metrics)
            starting.push_async_callback(asyncio.to_thread, self.store.close)
            await uninterrupted(asyncio.to_thread(self.store.__enter__))
            config = self.config.value
            for delta in (0, VIP_PORT_DELTA):  # named before the HA port, which depends on it
                await ensure_free(config.server_config(delta))
            if config.enable_controller_mode:  # it may become master at any time
                await _ensure_ha_port_is_free(config)
            self._host = Host(await _resolve(config.broker_ip1), config.listen_port)
            self._tables = Tables.below(self.store_config.value.root, self._disk)
            await uninterrupted(asyncio.to_thread(self._tables.load))
            self._client = await starting.enter_async_context(
                RemotingClient(
                    config.client_config(),
                    dispatcher=Dispatcher(self._notices()),
                    hooks=inner_signers(config),
                )
            )
            self.membership = await self._membership() if config.enable_controller_mode else None
            self._term = await self._begin_term(configured_role(config))
            starting.push_async_callback(self._end_term)
            await self._listen(starting)
            starting.push_async_callback(self._unregister)
            self._run_jobs()
            if self.membership is not None:
                await starting.enter_async_context(_running(self.membership.run()))
            with suppress(TimeoutError):  # serve without NameServers; registration keeps retrying
                async with asyncio.timeout(_REGISTRATION_WAIT):
                    await self._term.registration.known()
            self._is_started = True
            starting.push_async_callback(self.metrics.quiet)
            self._running = starting.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._running.aclose()

    # ---- terms

    @property
    def parts(self) -> Parts:
        """The parts of the present term."""
        return self._term.parts

    async def _begin_term(self, role: Role) -> Term:
        """Build and start the parts for a role; the jobs and the connections come later."""
        self.store.stop_refusing()
        if not role.is_master:
            self.store.refuse(ReplicaRefuses())
        given = Surroundings(
            cell=self.config,
            store_cell=self.store_config,
            store=self.store,
            host=self._host,
            gate=self.gate,
            now=self._now,
            ignored=self._ignored,
            role=role,
            epochs=self._epochs,
            observe=self._observe,
            controllers=self._known_controllers,
            disk=self._disk,
        )
        term = Term(given, self._tables, self._client)
        try:
            parts = await uninterrupted(term.build())
            if self._known_confirmed is not None and parts.master is not None:
                parts.master.primary.confirmed = _nothing_is_confirmed
            await term.take_home()
            await term.start()
        except BaseException:
            await term.end()
            raise
        return term

    async def _end_term(self) -> None:
        await self._term.end()
        await self._drop_unopened()

    async def take_role(self, role: Role) -> None:
        """End the present term and begin another one, on the same store and connections.

        The term of a master is not open yet: it serves nobody until `open_term`.
        """
        await uninterrupted(self._take_role(role))

    async def _take_role(self, role: Role) -> None:
        self._role_begun, before = time.monotonic(), self._term
        self.store.refuse(ReplicaRefuses())  # from now on, whatever is still under way
        for server in self._servers:
            server.switch(Dispatcher(gate=BetweenTerms()), before.parts.connection_lost, None)
        await before.quiet()
        await before.end()
        await self._drop_unopened()
        if not role.is_master:
            self._serve(await self._begin_term(role))
            return
        self._known_confirmed = self.store.log.readable
        try:
            # The parts are built from the whole log, some of them by reading on while it is not
            # open yet; nobody else reads it, and slaves are told of nothing.
            await asyncio.to_thread(self._prepare_master, role)
            self._unopened = await self._begin_term(role)
        except BaseException:
            await self._drop_unopened()
            raise

    async def _drop_unopened(self) -> None:
        """End the term of a master that was not opened: what it has is not confirmed."""
        if self._unopened is not None:
            await self._unopened.quiet()
            await self._unopened.end()
            self._unopened = None
        if self._known_confirmed is not None:
            self.store.log.confirmed = self._known_confirmed
            self._known_confirmed = None

    def open_term(self, members: Collection[int]) -> None:
        """Serve as the master that this broker has become, with a sync-state set."""
        term, self._unopened, self._known_confirmed = self._unopened, None, None
        assert term is not None
        assert term.parts.master is not None
        term.parts.master.set_members(members)
        term.parts.master.primary.confirmed = lambda: self.store.log.readable
        self._serve(term)

    def _serve(self, term: Term) -> None:
        """Serve in a term that follows another one."""
        before, self._term = self._term, term
        self.parts.clients.adopt(before.parts.clients)
        self._count_connections(self.parts.statistics)
        for server in self._servers:
            server.switch(self.parts.dispatcher, self.parts.connection_lost, self.parts.fast_path)
        may_act = self.membership is None or self.membership.has_lease
        self._run_jobs(may_act=may_act)
        self._has_lease = True
        if not may_act:
            self._lease_changed(False, is_new=True)
        took = time.monotonic() - self._role_begun
        log.warning("this broker is %s now, after %.3f s", self.parts.role, took)

    def _count_connections(self, statistics: Statistics) -> None:
        """Have the statistics told of connections, from now on."""

        def counted() -> list[int]:
            each = [astuple(server.counts) for server in self._servers]
            return [sum(counts) for counts in zip(*each, strict=True)]

        before = counted()
        statistics.before_read.add(
            lambda: statistics.channels([a - b for a, b in zip(counted(), before, strict=True)])
        )

    def _run_jobs(self, *, may_act: bool = True) -> None:
        self._registered = self._registration()
        self._term.run_jobs(self._registered, may_act=may_act)

    def _prepare_master(self, role: Role) -> None:
        """Make the log of a replica that of a master: what it has is confirmed. Blocks."""
        self.store.finish_replication()
        self.store.log.confirmed = self.store.log.end
        assert self._epochs is not None
        _begin_epoch(self._epochs, role.epoch, self.store.log)

    async def _membership(self) -> Membership:
        """What joins this broker to the group of its controller."""
        config, root = self.config.value, self.store_config.value.root
        epoch_file = Path(config.store_path_epoch_file or root / "epochFileCheckpoint")
        identity_file = Path(config.store_path_broker_identity or root / "brokerIdentity")
        self._epochs = Epochs(epoch_file, self._disk)
        await asyncio.to_thread(self._epochs.load)
        await asyncio.to_thread(_drop_lost_epochs, self._epochs, self.store)
        self.store.log.confirmed = self.store.confirmed_before
        self._controllers = Controllers(self._client, lambda: self.config.value.controller_addr)
        membership = Membership(
            self.config,
            self.store,
            self._controllers,
            IdentityFile(identity_file, config.broker_cluster_name, config.broker_name, self._disk),
            epochs=self._epochs,
            address=lambda: self.address,
            take_role=self.take_role,
            open_term=self.open_term,
            replication=lambda: self.parts.master,
        )
        membership.on_lease.add(self._lease_changed)
        self.config.on_change(lambda _: self._refuse_without_lease())  # of masterLeaseRequired
        return membership

    def _notices(self) -> RoleChangeHandlers:
        """Handlers for the broker's own connections, which have no gate: to controllers, but also
        to NameServers and other brokers."""
        known_hosts = KnownHosts(is_open=True)
        return RoleChangeHandlers(self._observe, known_hosts, self._known_controllers)

    def _known_controllers(self) -> Collection[str]:
        return self._controllers.known() if self._controllers else ()

    def _observe(self, state: GroupState) -> None:
        if self.membership is not None:
            self.membership.observe(state)

    def _lease_changed(self, has_lease: bool, *, is_new: bool = False) -> None:
        if not self._is_open_master:
            return
        self._has_lease = has_lease
        self.parts.offsets.is_frozen = not has_lease
        if has_lease:
            self._term.start_services()
        else:
            if not is_new:  # a master that was just elected gets its first lease soon
                log.warning("no controller confirms that this broker is the master")
            self._term.pause_services()
        self._refuse_without_lease()

    def _refuse_without_lease(self) -> None:
        """Refuse messages while there is no lease and masterLeaseRequired says so."""
        if not self._is_open_master:
            return
        if self._has_lease or not self.config.value.master_lease_required:
            self.store.stop_refusing(NoLease)
        else:
            self.store.refuse(NoLease())

    @property
    def _is_open_master(self) -> bool:
        """Whether this broker serves as a master; leases mean nothing to a slave."""
        return self.parts.master is not None and self._known_confirmed is None

    async def _listen(self, starting: AsyncExitStack) -> None:
        """Serve both ports; at the end requests are drained while the parts still run."""
        config, parts = self.config.value, self.parts
        self._servers: list[RemotingServer] = []
        for delta in (0, VIP_PORT_DELTA):
            server = RemotingServer(
                replace(
                    config.server_config(delta), reserved_files=_RESERVED_FILES + usual_limit()
                ),
                parts.dispatcher,
                on_close=parts.connection_lost,
                fast=parts.fast_path,
            )
            self._servers.append(await starting.enter_async_context(server))
        self._count_connections(parts.statistics)
        # Both at once: a client whose pull is answered at shutdown would pull again immediately.
        starting.push_async_callback(close_all, self._servers)

    async def _unregister(self) -> None:
        await self._term.quiet()
        if self._registered is not None:
            await self._registered.unregister()

    def _registration(self) -> Registration:
        parts = self.parts
        return Registration(
            self.config,
            parts.topics,
            self._client,
            mappings=parts.mappings,
            role=parts.role,
            address=lambda: self.address,
            ha_address=lambda: format_address(
                (self.config.value.broker_ip2, self.config.value.ha_listen_port)
            ),
            lacks_master=lambda: parts.replication.lacks_master,
        )


def broker_access(config: BrokerConfig, store_config: StoreConfig) -> Access:
    """The access control of a broker; its files are below the store. Raises ConfigError."""
    directory = store_config.root / "config" / "auth"
    return choose_access(config, directory=directory, cluster=config.broker_cluster_name)


def _drop_lost_epochs(epochs: Epochs, store: MessageStore) -> None:
    """Drop the epochs of a part of the log that is not there any more. Blocks."""
    last, end = epochs.last, store.log.end
    if last is not None and last.start > end:
        # A member that is stopped while it cuts its log is noted, too; it is in no set then.
        store.note_lost_tail(f"it ends at {end}, and epoch {last.epoch} began at {last.start}")
        epochs.drop_behind(end)


def _begin_epoch(epochs: Epochs, epoch: int, commit_log: CommitLog) -> None:
    """Record that a master begins to write a log in its epoch, unless that is recorded. Blocks.

    Of a log without epochs, which was written before controller mode, the first one is the whole:
    a replica that has copied a part of it has that epoch, and can go on.
    """
    last = epochs.last
    if last is None:
        epochs.begin(epoch, commit_log.min_offset)
    elif last.epoch != epoch:
        epochs.begin(epoch, commit_log.end)


@asynccontextmanager
async def _running(job: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a job for the time of the block."""
    task = asyncio.create_task(job, name="broker-membership")
    task.add_done_callback(report_end)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _resolve(name: str) -> str:
    """Resolve a host name to an IP address, as records store it."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ConfigError(f"brokerIP1={name}: no such host ({exc})") from exc
    return str(found[0][4][0])


async def _ensure_ha_port_is_free(config: BrokerConfig) -> None:
    try:
        await ensure_free(replace(config.server_config(), port=config.ha_listen_port))
    except ConfigError as exc:
        raise ConfigError(
            f"haListenPort={config.ha_listen_port}: each member of a group with controllers needs"
            f" it, because it may become master: {exc}"
        ) from exc


def _nothing_is_confirmed() -> int:
    """What a master tells its slaves until its term is open; they keep what they know."""
    return -1


def _free_port(host: str) -> int:
    """Find a free port whose VIP port and HA port are free as well.

    It is used a moment later, when the store is open: so it is none of those that systems give to
    outgoing connections meanwhile.
    """
    with socket.socket() as probe:
        probe.bind((host, 0))  # raises OSError if the address is not one of this machine
    while True:
        port = random.randrange(*_PORTS)  # noqa: S311  not a secret
        with (
            suppress(OSError),
            socket.socket() as first,
            socket.socket() as second,
            socket.socket() as third,
        ):
            first.bind((host, port))
            second.bind((host, port + VIP_PORT_DELTA))
            third.bind((host, port + HA_PORT_DELTA))
            return port
