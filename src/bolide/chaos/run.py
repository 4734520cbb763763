"""Rounds of faults under load: inject, hold, heal, check that service is back.

An error of the cluster, such as a member that does not start again, is a finding: it ends the
rounds, and what happened until then is judged.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bolide.chaos.checker import Verdict, check
from bolide.chaos.history import Fault, History, Mastership
from bolide.chaos.nemesis import Strike, chosen_nemeses, plan_strike
from bolide.chaos.target import Target
from bolide.chaos.workload import Workload, WorkloadOptions
from bolide.errors import BolideError

log = logging.getLogger(__name__)

Emit = Callable[[str], None]

_LOOK_FOR_MASTERS_EVERY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """A run: what is repeatable is decided by the seed."""

    seed: int = 1
    rounds: int = 10
    minutes: float = 0.0
    """If over 0: rounds until so many minutes have passed, instead of `rounds`."""
    nemeses: tuple[str, ...] = ()
    """By default all that the cluster can have."""
    is_loss_allowed: bool = False
    steady: tuple[float, float] = (0.5, 2.0)
    """Seconds of service before a fault, from and to."""
    hold: tuple[float, float] = (1.0, 5.0)
    """Seconds of a fault, from and to."""
    back_within: float = 45.0
    """Seconds within which service must be back after a fault."""
    drain_within: float = 150.0
    """Seconds for the rest of the messages after the last round; the lock of an ordered queue is
    free after a minute."""
    linger: float = 5.0
    """Seconds after that in which nothing may come that has no right to."""
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)


@dataclass(slots=True)
class RunResult:
    """What a run gave."""

    verdict: Verdict
    history: History
    seconds: float
    is_drained: bool


async def run_rounds(
    target: Target, options: RunOptions, emit: Emit, history_file: Path | None = None
) -> RunResult:
    """Run all rounds against a running cluster, and judge the history.

    Raises:
        ConfigError: a nemesis does not exist or does not fit the cluster.
        BolideError: the workload could not begin.
    """
    nemeses = chosen_nemeses(options.nemeses, target)
    with History(history_file) as history:
        workload = Workload(target.name_servers, history, options.workload, options.seed)
        await workload.create_topics()
        watching = asyncio.create_task(_watch_masters(target, history))
        try:
            async with workload.consuming():
                async with workload.sending():
                    runner = _Rounds(target, options, workload, nemeses, emit)
                    await runner.run()
                emit("all sends are done; waiting for the rest of the deliveries")
                is_drained = await workload.drain(options.drain_within)
                await asyncio.sleep(options.linger)
            emit("reading all queues from their beginning")
            await workload.read_back()
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        verdict = check(history, is_loss_allowed=options.is_loss_allowed, is_read_back=True)
        return RunResult(verdict, history, history.now(), is_drained)


@dataclass(slots=True)
class _Rounds:
    target: Target
    options: RunOptions
    workload: Workload
    nemeses: list[str]
    emit: Emit

    async def run(self) -> None:
        chance = random.Random(self.options.seed)  # noqa: S311  to be repeatable
        history, number = self.workload.history, 0
        if await self._back_after(history.now()) is None:
            raise BolideError("the cluster serves nothing, before the first fault")
        while self._goes_on(number):
            number += 1
            strike = plan_strike(self._name(number, chance), self.target, chance)
            steady = chance.uniform(*self.options.steady)
            hold = chance.uniform(*self.options.hold)
            await asyncio.sleep(steady)
            fault = await self._round(number, strike, hold, chance)
            history.record(fault)
            if fault.error:
                self.emit(f"{history.now():7.1f} s  the rounds end here")
                return

    def _goes_on(self, done: int) -> bool:
        if self.options.minutes:
            return self.workload.history.now() < self.options.minutes * 60
        return done < self.options.rounds

    def _name(self, number: int, chance: random.Random) -> str:
        """Each nemesis once before one comes again, in an order by chance."""
        turn = (number - 1) % len(self.nemeses)
        if turn == 0:
            chance.shuffle(self.nemeses)
        return self.nemeses[turn]

    async def _round(
        self, number: int, strike: Strike, hold: float, chance: random.Random
    ) -> Fault:
        history = self.workload.history
        began = history.now()
        targets = ", ".join(strike.targets)
        self.emit(f"{began:7.1f} s  round {number}: {strike.name} of {targets} for {hold:.1f} s")
        error = ""
        try:
            async with strike.on(self.target, chance):
                await asyncio.sleep(hold)
        except (BolideError, OSError) as exc:
            error = _text(exc)
        ended = history.now()
        back = None if error else await self._back_after(ended)
        if back is None:
            why = error or "no service"
            self.emit(f"{history.now():7.1f} s  {why}; all brokers are started again")
            failed = await self._restart_brokers()
            error = error or failed
        return Fault(
            nemesis=strike.name, targets=strike.targets, round=number, began=began, ended=ended,
            back_after=back, error=error,
        )  # fmt: skip

    async def _back_after(self, since: float) -> float | None:
        """Seconds until a send of every kind that began since then was acknowledged."""
        last = self.workload.last_acknowledged
        kinds = self.options.workload.kinds
        while not all(last.get(kind, -1.0) >= since for kind in kinds):
            await asyncio.sleep(0.02)
            if self.workload.history.now() - since > self.options.back_within:
                return None
        return self.workload.history.now() - since

    async def _restart_brokers(self) -> str:
        """What an operator would do; the round has failed all the same. Returns what failed."""
        try:
            await self.target.heal()
            for member in self.target.members("broker"):
                await self.target.kill(member)
                await self.target.start(member)
        except (BolideError, OSError) as exc:
            return _text(exc)
        await self._back_after(self.workload.history.now())
        return ""


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _watch_masters(target: Target, history: History) -> None:
    known: dict[str, str] = {}
    while True:
        found = await target.masters()
        for group in known.keys() | found.keys():
            if found.get(group) != known.get(group):
                history.record(Mastership(group=group, at=history.now(), member=found.get(group)))
        known = found
        await asyncio.sleep(_LOOK_FOR_MASTERS_EVERY)
