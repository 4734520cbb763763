"""Nemeses: what is done to a cluster in a round, and undone at its end.

A nemesis chooses its targets with the random numbers of the run, so that the same seed gives the
same faults. Its `async with` block is the fault.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bolide.chaos.faults import CLOCK_SHIFT, Faults
from bolide.chaos.target import Target
from bolide.errors import ConfigError

SLOW_DELAY = 0.2
SLOW_RATE = 64 * 1024.0
SLOW_SYNC = 0.3

Inflict = Callable[[Target, str, random.Random], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Nemesis:
    """One kind of fault."""

    name: str
    text: str
    inflict: Inflict
    role: str = "broker"
    """Which members it strikes."""
    needs_cuts: bool = False
    needs_injection: bool = False
    most_targets: int = 1

    def fits(self, target: Target) -> bool:
        return not self.why_not(target)

    def why_not(self, target: Target) -> str:
        """Why a cluster cannot have it; empty if it can."""
        if not target.members(self.role):
            return f"the cluster has no process of its own for a {self.role}"
        if self.needs_cuts and not target.can_cut:
            return "the links of this cluster cannot be cut; take --network proxy or namespaces"
        if self.needs_injection and not target.can_inject:
            return "nothing can be injected into these brokers"
        return ""

    def choose(self, target: Target, chance: random.Random) -> tuple[str, ...]:
        members = sorted(target.members(self.role))
        return tuple(sorted(chance.sample(members, min(self.most_targets, len(members)))))


@dataclass(frozen=True, slots=True)
class Strike:
    """A nemesis with its targets, or several that strike together."""

    name: str
    parts: tuple[tuple[Nemesis, tuple[str, ...]], ...]

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(sorted({member for _, members in self.parts for member in members}))

    @asynccontextmanager
    async def on(self, target: Target, chance: random.Random) -> AsyncIterator[None]:
        """Inflict all parts on all their targets; at the end undo them all."""
        pairs = [(nemesis, member) for nemesis, members in self.parts for member in members]
        blocks = [nemesis.inflict(target, member, chance) for nemesis, member in pairs]
        async with AsyncExitStack() as stack:
            # At once: a crash of all brokers is not one after the other.
            begun = await asyncio.gather(
                *(block.__aenter__() for block in blocks), return_exceptions=True
            )
            for block, outcome in zip(blocks, begun, strict=True):
                if not isinstance(outcome, BaseException):
                    stack.push_async_exit(block)
            for outcome in begun:
                if isinstance(outcome, BaseException):
                    raise outcome
            yield


@asynccontextmanager
async def _kill(target: Target, member: str, chance: random.Random) -> AsyncIterator[None]:
    del chance
    await target.kill(member)
    try:
        yield
    finally:
        await target.start(member)


@asynccontextmanager
async def _restart(target: Target, member: str, chance: random.Random) -> AsyncIterator[None]:
    del chance
    await target.stop(member)
    try:
        yield
    finally:
        await target.start(member)


@asynccontextmanager
async def _pause(target: Target, member: str, chance: random.Random) -> AsyncIterator[None]:
    del chance
    target.pause(member)
    try:
        yield
    finally:
        target.resume(member)


def _cut(direction: str, *, with_clients: bool) -> Inflict:
    @asynccontextmanager
    async def inflict(target: Target, member: str, chance: random.Random) -> AsyncIterator[None]:
        del chance
        roles = ("namesrv", "controller", "broker")
        others = [each for role in roles for each in target.members(role) if each != member]
        await target.cut(member, () if with_clients else others, direction)
        try:
            yield
        finally:
            await target.heal(member)

    return inflict


@asynccontextmanager
async def _slow_link(target: Target, member: str, chance: random.Random) -> AsyncIterator[None]:
    del chance
    await target.slow(member, SLOW_DELAY, SLOW_RATE)
    try:
        yield
    finally:
        await target.heal(member)


def _inject(make: Callable[[random.Random], Faults]) -> Inflict:
    @asynccontextmanager
    async def inflict(target: Target, member: str, chance: random.Random) -> AsyncIterator[None]:
        await target.inject(member, make(chance))
        try:
            yield
        finally:
            await target.inject(member, Faults())

    return inflict


def _shift(chance: random.Random) -> Faults:
    return Faults(clock_shift=chance.choice((-1, 1)) * chance.uniform(1.0, CLOCK_SHIFT))


_ALL = 100
NEMESES = {
    each.name: each
    for each in (
        Nemesis("kill", "SIGKILL of a broker, then a start", _kill),
        Nemesis("kill-all", "SIGKILL of all brokers at once", _kill, most_targets=_ALL),
        Nemesis("kill-namesrv", "SIGKILL of a NameServer", _kill, role="namesrv"),
        Nemesis("kill-controller", "SIGKILL of a controller", _kill, role="controller"),
        Nemesis("restart", "SIGTERM of a broker, then a start", _restart),
        Nemesis("pause", "SIGSTOP of a broker, then SIGCONT", _pause),
        Nemesis(
            "cut", "a broker is cut off from all other members and the clients",
            _cut("both", with_clients=True), needs_cuts=True,
        ),
        Nemesis(
            "cut-members", "a broker is cut off from all other members; clients reach it",
            _cut("both", with_clients=False), needs_cuts=True,
        ),
        Nemesis(
            "cut-in", "nothing reaches a broker; what it sends arrives",
            _cut("in", with_clients=True), needs_cuts=True,
        ),
        Nemesis(
            "cut-out", "nothing that a broker sends arrives",
            _cut("out", with_clients=True), needs_cuts=True,
        ),
        Nemesis("slow-link", "all links of a broker are slow", _slow_link, needs_cuts=True),
        Nemesis(
            "full-disk", "the files of a broker cannot grow",
            _inject(lambda _: Faults(is_disk_full=True)), needs_injection=True,
        ),
        Nemesis(
            "fsync-fails", "fsync of a broker fails with EIO",
            _inject(lambda _: Faults(is_sync_failing=True)), needs_injection=True,
        ),
        Nemesis(
            "fsync-slow", f"fsync of a broker takes {SLOW_SYNC:g} s longer",
            _inject(lambda _: Faults(sync_delay=SLOW_SYNC)), needs_injection=True,
        ),
        Nemesis(
            "clock-shift", f"the clock of a broker is wrong by up to {CLOCK_SHIFT:g} s",
            _inject(_shift), needs_injection=True,
        ),
    )
}  # fmt: skip
SEVERAL = "several"
"""Two or three nemeses at once, on different members."""


def chosen_nemeses(names: Sequence[str], target: Target) -> list[str]:
    """The nemeses of a run: those that are named, or all that fit the cluster.

    Raises:
        ConfigError: there is no such nemesis, or the cluster cannot have it.
    """
    for name in names:
        if name == SEVERAL:
            continue
        if name not in NEMESES:
            known = ", ".join((*NEMESES, SEVERAL))
            raise ConfigError(f"--nemesis {name}: must be one of {known}")
        if not NEMESES[name].fits(target):
            raise ConfigError(f"--nemesis {name}: {NEMESES[name].why_not(target)}")
    return list(names) or [*(n for n, each in NEMESES.items() if each.fits(target)), SEVERAL]


def plan_strike(name: str, target: Target, chance: random.Random) -> Strike:
    """Choose the targets of a nemesis."""
    if name != SEVERAL:
        return Strike(name, ((NEMESES[name], NEMESES[name].choose(target, chance)),))
    fitting = [each for each in NEMESES.values() if each.fits(target) and each.most_targets == 1]
    parts: list[tuple[Nemesis, tuple[str, ...]]] = []
    taken: set[str] = set()
    for nemesis in chance.sample(fitting, min(chance.randint(2, 3), len(fitting))):
        free = [each for each in sorted(target.members(nemesis.role)) if each not in taken]
        if free:
            member = chance.choice(free)
            taken.add(member)
            parts.append((nemesis, (member,)))
    return Strike("+".join(nemesis.name for nemesis, _ in parts), tuple(parts))
