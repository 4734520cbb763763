"""How the rounds of a drain go on, and when they end."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bolide.admin.drain import Plan
from bolide.admin.open_work import Open, Round
from bolide.operations.cluster import Cluster
from bolide.operations.servers import drains
from bolide.operations.servers.drains import DrainState
from bolide.remoting.errors import ConnectFailed
from tests.support.aio import on_loop, until

PLAN = Plan(
    address="127.0.0.1:1",
    broker_name="broker-a",
    cluster="c",
    topics=1,
    sole_topics=(),
    slaves=(),
    producers=(),
)
BUSY = Round(PLAN.address, "broker-a", (Open(kind="groups", what="behind", count=3),))
EMPTY = Round(PLAN.address, "broker-a", ())
VAGUE = Round(PLAN.address, "broker-a", (), unknown=("timers",))
AWAY = ConnectFailed(PLAN.address, "refused")


class Broker:
    """Tells what a test says, and the last of it again and again; counts what is done to it.

    It is the client of a drain, too, and all of its parts.
    """

    def __init__(self, *told: Round | Exception, registered: bool = True) -> None:
        self._told = list(told)
        self._registered = registered
        self.looks = self.wipes = self.boot = 0
        self.drain = self.clusters = self.brokers = self

    async def __aenter__(self) -> "Broker":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closed = True

    async def info(self) -> Any:
        there = self._registered or self.looks == 0
        addresses = {0: PLAN.address} if there else {}
        return SimpleNamespace(
            broker_addr_table={"broker-a": SimpleNamespace(broker_addrs=addresses)}
        )

    async def runtime(self, _: str) -> dict[str, str]:
        return {"bootTimestamp": str(self.boot)}

    async def plan(self, _: str) -> Plan:
        return PLAN

    async def wipe(self, _: str) -> list[Open]:
        self.wipes += 1
        return []

    async def round(self) -> Round:
        self.looks += 1
        found = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        if isinstance(found, Exception):
            raise found
        return found

    def watch(self, _: Plan, **options: Any) -> "Broker":
        return self

    @property
    def cluster(self) -> Cluster:
        return Cluster(admin=cast(Any, self), name_servers="n")


async def shown(broker: Broker) -> drains.DrainProgress:
    return await drains.show_drain.function(broker.cluster, broker_name="broker-a")


async def drained(broker: Broker, state: DrainState) -> drains.DrainProgress:
    """Begin a drain, and wait for a state."""
    await drains.start_drain.function(broker.cluster, broker_name="broker-a")
    found = drains._drains["n", "broker-a"]
    await until(lambda: found.progress.state is state and found.progress.looked_ms)
    return found.progress


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "_PAUSE", 0.001)
    monkeypatch.setattr(drains, "connect", lambda cluster: cluster.admin)


@on_loop
async def test_a_drain_goes_on_until_the_broker_is_stopped() -> None:
    broker = Broker(BUSY, BUSY, EMPTY, EMPTY, AWAY, registered=False)
    found = await drained(broker, DrainState.STOPPED)
    assert (found.reason, found.is_safe) == ("", True)
    looks = broker.looks
    await asyncio.sleep(0.02)
    assert broker.looks == looks == 6
    assert broker.wipes == looks + 1
    assert broker.is_closed
    assert (await shown(broker)).state is DrainState.STOPPED
    # it may be begun again
    again = Broker(BUSY)
    assert (await drained(again, DrainState.DRAINING)).open[0].count == 3
    await drains.end_drains()
    assert again.is_closed
    assert (await shown(again)).state is DrainState.NONE


@on_loop
async def test_what_a_broker_does_not_tell_is_not_taken_for_safe() -> None:
    found = await drained(Broker(VAGUE), DrainState.UNKNOWN)
    assert (found.is_safe, found.open, found.unknown) == (False, [], ["timers"])
    await drains.end_drains()


@on_loop
async def test_a_broker_that_was_stopped_amid_its_work_is_said_to_be() -> None:
    found = await drained(Broker(BUSY, AWAY, registered=False), DrainState.STOPPED)
    assert found.reason == "it was stopped before it was safe"
    assert not found.is_safe
    await drains.end_drains()


@on_loop
async def test_a_registered_broker_that_does_not_answer_is_still_drained() -> None:
    broker = Broker(BUSY, *[AWAY] * 5, EMPTY)
    assert (await drained(broker, DrainState.SAFE)).is_safe
    assert broker.looks >= 7
    await drains.end_drains()


@on_loop
async def test_a_broker_that_was_started_again_is_left_to_producers() -> None:
    broker = Broker(EMPTY)
    await drained(broker, DrainState.SAFE)
    broker.boot = 1
    found = drains._drains["n", "broker-a"]
    await until(lambda: found.is_over)
    wipes = broker.wipes
    assert (found.progress.state, found.progress.reason) == (
        DrainState.STOPPED, "it was started again",
    )  # fmt: skip
    await asyncio.sleep(0.01)
    assert broker.wipes == wipes
    await drains.end_drains()
