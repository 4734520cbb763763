"""Drains of brokers that this process began: producers leave, and what is left is looked at.

NameServers give the write permission back with every registration of changed topics, so that it is
taken again in every round, until the broker is stopped or the drain is undone. The rounds go on
whether or not somebody looks; they end with this process, which leaves the permission as it is.
"""

import asyncio
import time
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bolide.admin import AdminClient
from bolide.admin.drain import Plan
from bolide.admin.errors import BrokerUnknown
from bolide.admin.open_work import Open, Round, Watch
from bolide.admin.servers import MASTER
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, change, read
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.operations.views import Failure, failure_of, now_ms, reason_of
from bolide.remoting.errors import RemotingError

SETTLE = 35.0
"""Seconds without a write after which nobody writes: clients ask for routes every 30 s."""
_PAUSE, _MAX_PAUSE = 2.0, 30.0
_SHARE = 5.0
"""A pause lasts so many times as long as the round before it: one over thousands of topics is work
for the broker."""
_ABSENT_ROUNDS = 2
"""In which it neither answers nor is registered: amid an election it may be missing for a moment.
"""
_KEPT = 3600.0
"""Seconds for which drains that have ended are shown."""
_MAX_SETTLE = 3600.0


class DrainState(StrEnum):
    """How far a drain is."""

    NONE = "none"
    """This process has begun none, or has undone it."""
    DRAINING = "draining"
    """Something is open."""
    UNKNOWN = "unknown"
    """Nothing is open, and the broker does not tell everything."""
    SAFE = "safe"
    """It can be stopped."""
    STOPPED = "stopped"
    """The broker was stopped; the drain is over, and the broker takes messages when it starts."""
    ENDED = "ended"
    """The rounds have ended, because of an error; the write permission may come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """What a drain does."""

    broker_name: str
    address: str
    cluster: str
    topics: int
    """Topics that producers leave."""
    sole_topics: list[str]
    """Those that no other broker takes messages of: their producers fail."""
    slaves: list[str]
    producers: list[str]
    """The producer groups that are connected now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenItem:
    """Something that keeps a broker from being stopped."""

    kind: str
    """broker, producers, nameServers, groups, delayed, timers, transactions, pop or replicas."""
    what: str
    count: int
    """Messages, or bytes for replicas."""
    advice: str = ""
    """What helps, if it does not go away by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """What a broker has still to do."""

    broker_name: str
    state: DrainState
    address: str
    is_safe: bool | None = None
    """Nothing is open, and everything is known; None before the first look."""
    open: list[OpenItem] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """What the broker does not tell of itself; there may be something open in it."""
    remarks: list[str] = field(default_factory=list)
    began_ms: int | None = None
    """Milliseconds since 1970."""
    looked_ms: int | None = None
    """Of the last round, in milliseconds since 1970; None before the first."""
    ignored_groups: list[str] = field(default_factory=list)
    reason: str = ""
    """Why the rounds have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainUndone:
    broker_name: str
    still_closed: list[str]
    """Topics that the broker takes no messages of anyway."""
    failures: list[Failure] = field(default_factory=list)
    """NameServers that did not answer; they keep producers away."""


async def plan_drain(cluster: Cluster, *, broker_name: str) -> DrainPlan:
    """What a drain of a broker does; nothing is changed."""
    plan = await cluster.admin.drain.plan(await _master(cluster, broker_name))
    return DrainPlan(
        broker_name=broker_name,
        address=plan.address,
        cluster=plan.cluster,
        topics=plan.topics,
        sole_topics=list(plan.sole_topics),
        slaves=list(plan.slaves),
        producers=list(plan.producers),
    )


async def _state(cluster: Cluster, *, broker_name: str) -> dict[str, object]:
    """Whether producers are sent to the broker, for the audit log."""
    found = _drains.get((cluster.name_servers, broker_name))
    route = await cluster.admin.topics.route(broker_name)
    permissions = [q.perm for q in route.queue_datas if q.broker_name == broker_name]
    return {"permission": permissions, "drain": found.state.value if found else "none"}


@read("/cluster/groups/{broker_name}/drain")
async def show_drain(cluster: Cluster, *, broker_name: str) -> DrainProgress:
    """Show how far the drain of a broker is that this process began; asks no server.

    `look_at_open_work` tells what a broker has to do that is not drained.
    """
    found = _drains.get((cluster.name_servers, broker_name))
    if found is None or (found.is_over and not found.is_recent):
        return DrainProgress(broker_name=broker_name, state=DrainState.NONE, address="")
    return found.progress


@read("/cluster/groups/{broker_name}/open-work")
async def look_at_open_work(
    cluster: Cluster, *, broker_name: str, ignored_groups: list[str] | None = None
) -> DrainProgress:
    """Look once at what a drain of a broker would have to wait for; changes nothing.

    It asks the broker for each of its topics. Whether producers write is not known of one look.
    `ignored_groups` need not consume the rest.
    """
    ignored = _groups(ignored_groups)
    key = f"cluster/open-work/{broker_name}/{','.join(sorted(ignored))}"
    return await cluster.shared(key, lambda: _look(cluster, broker_name, ignored), seconds=_PAUSE)


@change(
    "POST",
    "/cluster/groups/{broker_name}/drain",
    target="broker {broker_name}",
    role=Role.ADMIN,
    preview=plan_drain,
    state=_state,
)
async def start_drain(
    cluster: Cluster,
    *,
    broker_name: str,
    settle: float = SETTLE,
    ignored_groups: list[str] | None = None,
) -> DrainProgress:
    """Have producers leave a broker, and watch until it can be stopped.

    Consumers go on reading. Returns after the write permission is gone; `show_drain` tells how far
    it is, and this process repeats it until the broker is stopped or `undo_drain` is called.
    `settle` is the number of seconds without a write after which nobody writes: clients ask for
    routes every 30 s. `ignored_groups` need not consume the rest.
    """
    if not 0 <= settle <= _MAX_SETTLE:
        raise BadInput("settle", f"must be 0 to {_MAX_SETTLE:.0f} seconds")
    ignored = _groups(ignored_groups)
    key = (cluster.name_servers, broker_name)
    running = _drains.get(key)
    if running is not None and not running.is_over:
        raise Conflict(f"{broker_name} is drained already; undo that first to begin again")
    plan = await cluster.admin.drain.plan(await _master(cluster, broker_name))
    drain = _Drain(connect(cluster), plan, settle, ignored)
    _drains[key] = drain
    await drain.begin()
    _forget_old()
    return drain.progress


@change(
    "DELETE",
    "/cluster/groups/{broker_name}/drain",
    target="broker {broker_name}",
    role=Role.ADMIN,
    state=_state,
)
async def undo_drain(cluster: Cluster, *, broker_name: str) -> DrainUndone:
    """Have producers return to a broker, whoever made them leave it.

    Raises RemotingError if no NameServer answers or the broker does not.
    """
    found = _drains.pop((cluster.name_servers, broker_name), None)
    if found is not None:
        await found.end()
    plan = await cluster.admin.drain.plan(await _master(cluster, broker_name))
    undone = await cluster.admin.drain.undo(plan)
    return DrainUndone(
        broker_name=broker_name,
        still_closed=list(undone.closed),
        failures=[failure_of("NameServer", each) for each in undone.failures],
    )


async def _master(cluster: Cluster, broker_name: str) -> str:
    table = (await cluster.admin.clusters.info()).broker_addr_table
    if broker_name not in table:
        raise NotFound(
            f"there is no broker {broker_name}; known are {', '.join(sorted(table)) or 'none'}"
        )
    address = table[broker_name].broker_addrs.get(MASTER)
    if address is None:
        raise Conflict(f"{broker_name} has no master now: producers cannot send to it anyway")
    return address


def _groups(given: Collection[str] | None) -> frozenset[str]:
    return frozenset(name.strip() for name in given or () if name.strip())


async def _look(cluster: Cluster, broker_name: str, ignored: frozenset[str]) -> DrainProgress:
    plan = await cluster.admin.drain.plan(await _master(cluster, broker_name))
    watch = cluster.admin.drain.watch(plan, settle=0, ignored_groups=ignored)
    found = await watch.round()
    return replace(
        _progress(found, DrainState.NONE), looked_ms=now_ms(), ignored_groups=sorted(ignored)
    )


def connect(cluster: Cluster) -> AdminClient:
    """Connections of a drain's own: it outlives the session of whoever began it."""
    return AdminClient(
        cluster.name_servers,
        access_key=cluster.identity.access_key,
        secret_key=cluster.identity.secret_key,
        tls=cluster.tls,
    )


# ---- a drain in progress


class _Drain:
    """Takes the write permission and looks, in rounds, as a task of this process."""

    def __init__(
        self, admin: AdminClient, plan: Plan, settle: float, ignored: frozenset[str]
    ) -> None:
        self._admin = admin
        self._plan = plan
        self._watch: Watch = admin.drain.watch(plan, settle=settle, ignored_groups=ignored)
        self._boot: str | None = None
        self._absent = 0
        self._task: asyncio.Task[None] | None = None
        self._ended = 0.0
        self.progress = DrainProgress(
            broker_name=plan.broker_name,
            state=DrainState.DRAINING,
            address=plan.address,
            began_ms=now_ms(),
            ignored_groups=sorted(ignored),
        )

    @property
    def state(self) -> DrainState:
        return self.progress.state

    @property
    def is_over(self) -> bool:
        return self._task is None or self._task.done()

    @property
    def is_recent(self) -> bool:
        return time.time() - self._ended < _KEPT

    async def begin(self) -> None:
        """Take the permission once, so that whoever began it sees that it works."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._admin)
            self._boot = await self._boot_time()
            failed = await self._admin.drain.wipe(self._plan.broker_name)
            self.progress = replace(self.progress, open=[_item(each) for each in failed])
            run = self._run(stack.pop_all())
            self._task = asyncio.create_task(run, name=f"drain {self._plan.broker_name}")

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, connections: AsyncExitStack) -> None:
        try:
            while self.state is not DrainState.STOPPED:
                begun = time.monotonic()
                await self._round()
                took = time.monotonic() - begun
                await asyncio.sleep(min(max(_PAUSE, took * _SHARE), _MAX_PAUSE))
        except BolideError as error:
            self._give_up(reason_of(error))
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {reason_of(error)}")
            raise
        finally:
            self._ended = time.time()
            await connections.aclose()

    def _give_up(self, reason: str) -> None:
        self.progress = replace(self.progress, state=DrainState.ENDED, is_safe=False, reason=reason)

    async def _boot_time(self) -> str | None:
        """When the broker was started, as it tells it."""
        return (await self._admin.brokers.runtime(self._plan.address)).get("bootTimestamp")

    async def _round(self) -> None:
        try:
            if await self._boot_time() != self._boot:
                self._stopped("it was started again")
                return
            failed = await self._admin.drain.wipe(self._plan.broker_name)
            found = await self._watch.round()
        except (RemotingError, BrokerUnknown) as error:
            await self._missing(reason_of(error))
            return
        self._absent = 0
        items = (*failed, *found.open)
        found = Round(found.address, found.broker_name, items, found.unknown, found.remarks)
        state = DrainState.DRAINING if items else DrainState.UNKNOWN
        self._show(found, DrainState.SAFE if found.is_safe else state)

    async def _missing(self, reason: str) -> None:
        """It does not answer: it was stopped if it is no longer registered either."""
        self._absent = self._absent + 1 if await self._is_unregistered() else 0
        if self._absent >= _ABSENT_ROUNDS:
            self._stopped("")
            return
        away = Open(kind="broker", what=f"the broker does not answer: {reason}")
        others = [each for each in self.progress.open if each.kind != away.kind]
        self.progress = replace(self.progress, open=[_item(away), *others], looked_ms=now_ms())

    async def _is_unregistered(self) -> bool:
        try:
            info = await self._admin.clusters.info()
        except BolideError:
            return False
        known = (each.broker_addrs.values() for each in info.broker_addr_table.values())
        return not any(self._plan.address in addresses for addresses in known)

    def _stopped(self, reason: str) -> None:
        was_ready = self.state in {DrainState.SAFE, DrainState.UNKNOWN}
        early = "" if was_ready else "it was stopped before it was safe"
        self.progress = replace(
            self.progress,
            state=DrainState.STOPPED,
            looked_ms=now_ms(),
            reason="; ".join(part for part in (early, reason) if part),
        )

    def _show(self, found: Round, state: DrainState) -> None:
        before = self.progress
        self.progress = replace(
            _progress(found, state),
            began_ms=before.began_ms,
            looked_ms=now_ms(),
            ignored_groups=before.ignored_groups,
        )


_drains: dict[tuple[str, str], _Drain] = {}
"""By NameServers and broker name."""


def _forget_old() -> None:
    for key in [key for key, each in _drains.items() if each.is_over and not each.is_recent]:
        del _drains[key]


async def end_drains() -> None:
    """End the rounds of all drains, for the end of this process; permissions stay as they are."""
    for each in _drains.values():
        await each.end()
    _drains.clear()


def _progress(found: Round, state: DrainState) -> DrainProgress:
    return DrainProgress(
        broker_name=found.broker_name,
        state=state,
        address=found.address,
        is_safe=found.is_safe,
        open=[_item(each) for each in found.open],
        unknown=list(found.unknown),
        remarks=list(found.remarks),
    )


def _item(found: Open) -> OpenItem:
    return OpenItem(kind=found.kind, what=found.what, count=found.count, advice=found.advice)
