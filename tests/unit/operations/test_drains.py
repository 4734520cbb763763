"""How the rounds of a drain go on, and when they end."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bolide.admin.drain import Plan
from bolide.admin.open_work import Open, Round
from bolide.operations import drains
from bolide.operations.cluster import Cluster
from bolide.operations.drains import DrainState
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
    """Tells what a test says, and the last of it again and again; counts what is done to it."""

    def __init__(self, *told: Round | Exception) -> None:
        self._told = list(told)
        self.looks = self.wipes = 0

    async def broker_addresses(self) -> Any:
        return SimpleNamespace(
            broker_addr_table={"broker-a": SimpleNamespace(broker_addrs={0: PLAN.address})}
        )

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
        clusters = SimpleNamespace(info=self.broker_addresses)
        admin = SimpleNamespace(drain=self, clusters=clusters)
        return Cluster(admin=cast(Any, admin), name_servers="n")


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


@on_loop
async def test_a_drain_goes_on_until_the_broker_is_stopped() -> None:
    broker = Broker(BUSY, BUSY, EMPTY, EMPTY, EMPTY, AWAY)
    found = await drained(broker, DrainState.STOPPED)
    assert (found.reason, found.is_safe) == ("", True)
    looks = broker.looks
    await asyncio.sleep(0.02)
    assert broker.looks == looks == 6
    assert broker.wipes == looks + 1
    assert (await shown(broker)).state is DrainState.STOPPED
    # it may be begun again
    again = Broker(BUSY)
    assert (await drained(again, DrainState.DRAINING)).open[0].count == 3
    await drains.end_drains()
    assert (await shown(again)).state is DrainState.NONE


@on_loop
async def test_what_a_broker_does_not_tell_is_not_taken_for_safe() -> None:
    found = await drained(Broker(VAGUE), DrainState.UNKNOWN)
    assert (found.is_safe, found.open, found.unknown) == (False, [], ["timers"])
    await drains.end_drains()


@on_loop
async def test_a_broker_that_falls_silent_amid_its_work_is_not_kept_from_producers() -> None:
    broker = Broker(BUSY, AWAY)
    found = await drained(broker, DrainState.STOPPED)
    assert found.reason == "it was stopped before it was safe"
    assert not found.is_safe
    assert (broker.looks, broker.wipes) == (4, 3)
    await drains.end_drains()


@on_loop
async def test_one_silent_round_is_no_stop() -> None:
    broker = Broker(BUSY, AWAY, EMPTY)
    assert (await drained(broker, DrainState.SAFE)).is_safe
    await drains.end_drains()
