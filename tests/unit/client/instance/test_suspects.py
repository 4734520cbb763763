"""Brokers that did not answer."""

import asyncio

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
        self.probes = 0
        self.renewed: list[str] = []
        self.suspects = SuspectBrokers(self._probe, self._renew, self._master_of)

    async def _probe(self, address: str, broker_name: str) -> Probed:
        assert (address, broker_name) == (ADDRESS, "broker-a")
        self.probes += 1
        await asyncio.sleep(0)
        return self.state

    def suspect(self, topic: str = "T") -> None:
        self.suspects.add(ADDRESS, "broker-a", topic)

    async def _renew(self, topic: str) -> None:
        self.renewed.append(topic)

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
async def test_a_broker_that_answers_is_trusted_at_once() -> None:
    it = Cluster()
    it.state = Probed.ANSWERS
    it.suspect()
    it.suspect("Other")
    await until(lambda: not it.suspects, within=0.05)
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
