"""The short form of the fault bench with replicas: failovers under load, and a real partition."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from bolide.chaos.failover import FailoverOptions, measure_failover
from bolide.chaos.history import Kind
from bolide.chaos.loss import LossOptions, measure_loss
from bolide.chaos.run import RunOptions, run_rounds
from bolide.chaos.target import LocalTarget
from bolide.cluster.network import why_no_namespaces
from bolide.cluster.plan import ClusterOptions
from tests.chaos.test_short_run import SETTINGS
from tests.support.aio import on_loop
from tests.support.ports import free_port

SEED = 20
PORTS = (10, 20, 200, 210, 220, 300, 310, 320, *range(1033, 1037), *range(1133, 1137),
         *range(1233, 1237))  # fmt: skip


@asynccontextmanager
async def cluster(
    directory: Path,
    *,
    replicas: int,
    controllers: int,
    asynchronous: bool = False,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[LocalTarget]:
    target = LocalTarget(
        ClusterOptions(
            brokers=1,
            replicas=replicas,
            namesrvs=max(controllers, 1),
            controllers=controllers,
            asynchronous=asynchronous,
            data=directory,
            base_port=free_port(PORTS),
            network="proxy" if why_no_namespaces() else "namespaces",
            settings={**SETTINGS, **settings},
        )
    )
    async with target.cluster:
        yield target


@pytest.mark.timeout(300)
@on_loop
async def test_failovers_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    nemeses = ("kill", "pause", "cut", "cut-in", "restart", "fsync-fails", "kill-all")
    options = RunOptions(seed=SEED, rounds=7, nemeses=nemeses, steady=(0.3, 0.8), hold=(1.0, 3.0))
    async with cluster(tmp_path, replicas=3, controllers=3) as target:
        result = await run_rounds(target, options, print, tmp_path / "history.jsonl")

    assert result.verdict.violations == []
    assert result.is_drained
    for kind in Kind:
        assert result.verdict.kinds[kind].acknowledged > 100, kind


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault",
    ["cut", *(pytest.param(x, marks=pytest.mark.long) for x in ("kill", "kill-leaders", "pause"))],
)
@on_loop
async def test_a_master_that_fails_is_replaced_and_acknowledges_nothing_more(
    tmp_path: Path, fault: str
) -> None:
    options = FailoverOptions(fault=fault, rounds=1)
    async with cluster(tmp_path, replicas=2, controllers=3) as target:
        result = await measure_failover(target, options, print)

    assert result.is_good
    assert result.late_acknowledgements == 0


AHEAD = 1.0
"""Seconds of load for which only the master has what is sent."""


@pytest.mark.timeout(300)
@on_loop
async def test_an_asynchronous_master_is_ahead_of_its_slave(tmp_path: Path) -> None:
    async with cluster(tmp_path, replicas=2, controllers=0, asynchronous=True) as target:
        options = LossOptions(rounds=1, load=1.0, is_loss_allowed=True)
        (by_chance,) = (await measure_loss(target, options, print)).rounds
        options = LossOptions(rounds=1, load=0.5, ahead=AHEAD)
        cut_off = await measure_loss(target, options, print)

    assert by_chance.acknowledged > 100
    assert by_chance.lost < by_chance.acknowledged / 2
    assert not cut_off.is_good
    assert cut_off.lost > 0
    assert cut_off.rounds[0].window > AHEAD / 2


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_weak", [True, False], ids=["weak", "strict"])
@on_loop
async def test_a_successor_lacks_acknowledged_messages_only_if_masters_wait_for_nobody(
    tmp_path: Path, is_weak: bool
) -> None:
    settings = {"allAckInSyncStateSet": "false"} if is_weak else {}
    options = LossOptions(rounds=1, load=1.0, ahead=AHEAD)
    async with cluster(tmp_path, replicas=2, controllers=3, settings=settings) as target:
        result = await measure_loss(target, options, print)

    assert result.rounds[0].acknowledged > 100
    assert result.is_good is not is_weak


@pytest.mark.timeout(300)
@on_loop
async def test_a_sync_master_keeps_its_promises_through_faults(tmp_path: Path) -> None:
    nemeses = ("kill", "restart", "cut", "pause")
    options = RunOptions(seed=SEED, rounds=4, nemeses=nemeses, steady=(0.3, 0.8), hold=(1.0, 2.0))
    async with cluster(tmp_path, replicas=2, controllers=0) as target:
        result = await run_rounds(target, options, print, tmp_path / "history.jsonl")
        # Its roles are fixed: only the loss of its machine shows what the slave has.
        losses = [
            await measure_loss(target, LossOptions(rounds=1, load=0.5), print),
            await measure_loss(target, LossOptions(rounds=1, load=0.5, ahead=AHEAD), print),
        ]

    assert result.verdict.violations == []
    assert result.is_drained
    for loss in losses:
        assert loss.is_good
        assert loss.lost == 0
        assert loss.rounds[0].acknowledged > 100
