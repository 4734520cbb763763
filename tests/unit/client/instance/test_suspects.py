"""Brokers that did not answer."""

import asyncio
import selectors
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest

from bolide.client.instance import suspects
from bolide.client.instance.suspects import Probed, SuspectBrokers
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until

ADDRESS, QUEUE = "10.0.0.1:10911", MessageQueue("T", "broker-a", 0)


class Cluster:
    """A broker that answers probes when told to, and the routes that were renewed."""

    def __init__(self) -> None:
        self.state = Probed.SILENT
        self.probed_at: list[float] = []
        self.renewed: list[str] = []
        self.renewed_at: list[float] = []
        self.suspects = SuspectBrokers(self._probe, self._renew, self._master_of, 30.0)

    @property
    def probes(self) -> int:
        return len(self.probed_at)

    async def _probe(self, address: str, broker_name: str) -> Probed:
        assert (address, broker_name) == (ADDRESS, "broker-a")
        self.probed_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        return self.state

    def suspect(self, topic: str = "T") -> None:
        self.suspects.add(ADDRESS, "broker-a", topic)

    async def _renew(self, topic: str) -> None:
        self.renewed.append(topic)
        self.renewed_at.append(asyncio.get_running_loop().time())

    def _master_of(self, queue: MessageQueue) -> str | None:
        return ADDRESS if queue.broker_name == "broker-a" else None


@on_loop
async def test_a_broker_is_suspected_until_it_answers() -> None:
    it = Cluster()
    assert not it.suspects
    it.suspect()
    assert it.suspects
    assert ADDRESS in it.suspects
    assert it.suspects.leads(QUEUE)
    assert not it.suspects.leads(MessageQueue("T", "broker-b", 0))
    await until(lambda: it.probes >= 2)
    assert ADDRESS in it.suspects
    it.state = Probed.ANSWERS
    await until(lambda: not it.suspects)
    await it.suspects.close()


@on_loop
async def test_routes_are_renewed_meanwhile() -> None:
    it = Cluster()
    it.suspect()
    await until(lambda: len(it.renewed) >= 3)
    assert set(it.renewed) == {"T"}
    it.suspect("Other")
    await until(lambda: "Other" in it.renewed)
    await it.suspects.close()
    assert not it.suspects


@on_loop
async def test_a_broker_that_answers_is_trusted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "FIRST_PAUSE", 3600.0)  # a second probe would never come
    it = Cluster()
    it.state = Probed.ANSWERS
    it.suspect()
    it.suspect("Other")
    await until(lambda: not it.suspects)
    assert it.probes == 1
    await it.suspects.close()


@on_loop
async def test_nothing_is_suspected_after_the_end() -> None:
    it = Cluster()
    await it.suspects.close()
    it.suspect()
    assert not it.suspects


@on_loop
async def test_a_broker_that_was_replaced_is_forgotten() -> None:
    it = Cluster()
    it.suspect()
    it.state = Probed.REPLACED
    await until(lambda: not it.suspects)
    await it.suspects.close()


@on_loop
async def test_a_broker_that_left_the_routes_is_looked_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suspects, "MAX_ABSENCE", 0.2)
    it = Cluster()
    it.state = Probed.ABSENT
    it.suspect()
    await until(lambda: it.probes >= 2)
    assert it.suspects
    await until(lambda: not it.suspects)
    assert len(it.renewed) >= 2
    await it.suspects.close()


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, which jumps to the next timer instead of waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_SkippingSelector(self))

    def time(self) -> float:
        return self.now


class _SkippingSelector(selectors.SelectSelector):
    def __init__(self, loop: SkippingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += max(timeout or 0.0, 0.0)
        return super().select(0)


def run_without_waiting(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(scenario)


async def silent_for(seconds: float) -> Cluster:
    it = Cluster()
    it.suspect()
    await asyncio.sleep(seconds)
    return it


def test_a_failover_is_looked_for_often_during_the_first_minute() -> None:
    async def scenario() -> None:
        it = await silent_for(60.0)
        for times in (it.probed_at, it.renewed_at):
            assert len([each for each in times if each < 2.0]) >= 6
            pauses = [after - before for before, after in pairwise(times)]
            assert max(pauses) <= 2.001
        await it.suspects.close()

    run_without_waiting(scenario())


def test_a_broker_that_stays_silent_costs_little_more_than_the_poll_of_routes() -> None:
    async def scenario() -> None:
        it = await silent_for(3600.0)
        for times in (it.probed_at, it.renewed_at):
            pauses = [after - before for before, after in pairwise(times) if after > 600.0]
            assert 14.999 <= min(pauses) <= max(pauses) <= 30.001
            assert len(pauses) <= 200  # about 2000 if they stay as short as in the first minute
        await it.suspects.close()

    run_without_waiting(scenario())


def test_a_broker_that_was_silent_for_long_is_noticed_with_the_next_poll_of_routes() -> None:
    async def scenario() -> None:
        it = await silent_for(3600.0)
        probes, renewals = it.probes, len(it.renewed)
        it.suspects.probe_soon()
        await asyncio.sleep(0.01)
        assert it.probes == probes + 1
        assert len(it.renewed) == renewals  # the poll has just refreshed the route
        it.state = Probed.ANSWERS
        it.suspects.probe_soon()
        await asyncio.sleep(0.01)
        assert not it.suspects
        await it.suspects.close()

    run_without_waiting(scenario())


def test_a_broker_that_answered_meanwhile_is_looked_for_often_again() -> None:
    async def scenario() -> None:
        it = await silent_for(3600.0)
        it.state = Probed.ANSWERS
        await asyncio.sleep(30.1)  # noticed without a poll, too
        assert not it.suspects
        it.state, probes, began = Probed.SILENT, it.probes, asyncio.get_running_loop().time()
        it.suspect()
        await asyncio.sleep(2.0)
        assert it.probes - probes >= 6
        assert len([each for each in it.renewed_at if each >= began]) >= 6
        await it.suspects.close()

    run_without_waiting(scenario())
