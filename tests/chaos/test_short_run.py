"""The short form of the fault bench: about a minute of all nemeses and all kinds of workload.

The long form is `make chaos`.
"""

import shutil
from pathlib import Path

import pytest

from bolide.chaos.history import History, Kind
from bolide.chaos.nemesis import NEMESES, SEVERAL
from bolide.chaos.report import Circumstances, run_report
from bolide.chaos.run import RunOptions, RunResult, run_rounds
from bolide.chaos.target import LocalTarget
from bolide.chaos.workload import WorkloadOptions
from bolide.cluster.network import why_no_namespaces
from bolide.cluster.plan import ClusterOptions
from bolide.errors import BolideError
from tests.support.aio import on_loop
from tests.support.ports import free_port

SEED = 20
SETTINGS = {
    "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    "transactionCheckMax": "1000",
}


async def run_chaos(
    directory: Path, options: RunOptions, *, flush: str, kind: type[LocalTarget] = LocalTarget
) -> RunResult:
    """Masters without replicas: two groups, so that there is a choice."""
    target = kind(
        ClusterOptions(
            brokers=2, namesrvs=2, data=directory,
            base_port=free_port((10, 1033, 1035, 1036, 1133, 1135, 1136)),
            network="proxy" if why_no_namespaces() else "namespaces",
            settings={**SETTINGS, "flushDiskType": flush},
        )
    )  # fmt: skip
    async with target.cluster:
        return await run_rounds(target, options, print, directory / "history.jsonl")


@pytest.mark.timeout(400)
@on_loop
async def test_masters_keep_their_promises_through_all_nemeses(tmp_path: Path) -> None:
    expected = {*NEMESES, SEVERAL} - {"kill-controller"}  # there are none
    options = RunOptions(seed=SEED, rounds=len(expected), steady=(0.2, 0.5), hold=(0.5, 1.5))

    result = await run_chaos(tmp_path, options, flush="SYNC_FLUSH")

    assert result.verdict.violations == []
    assert result.is_drained
    ran = {SEVERAL if "+" in each.nemesis else each.nemesis for each in result.history.faults}
    assert ran == expected
    for kind in Kind:
        assert result.verdict.kinds[kind].acknowledged > 100, kind
    assert len(History.read(tmp_path / "history.jsonl").sent) == len(result.history.sent)


@pytest.mark.long
@pytest.mark.timeout(300)
@on_loop
async def test_killed_masters_lose_nothing_that_was_not_flushed(tmp_path: Path) -> None:
    nemeses = ("kill", "kill-all")
    options = RunOptions(seed=SEED, rounds=4, nemeses=nemeses, hold=(0.5, 1.0))

    result = await run_chaos(tmp_path, options, flush="ASYNC_FLUSH")

    assert result.verdict.violations == []


class Forgetful(LocalTarget):
    """Its brokers start again with an empty store."""

    async def start(self, member: str) -> None:
        shutil.rmtree(self.cluster.plan.require(member).directory / "store")
        await super().start(member)


@pytest.mark.timeout(300)
@on_loop
async def test_a_broker_that_loses_its_store_is_found_out(tmp_path: Path) -> None:
    workload = WorkloadOptions(kinds=(Kind.PLAIN, Kind.TIMER), read_within=1.0)
    options = RunOptions(
        seed=SEED, rounds=1, nemeses=("kill",), steady=(0.5, 1.0), hold=(0.5, 1.0),
        drain_within=5.0, linger=0.5, workload=workload,
    )  # fmt: skip

    result = await run_chaos(tmp_path, options, flush="SYNC_FLUSH", kind=Forgetful)

    assert not result.is_drained
    assert not result.verdict.is_good
    assert len(result.verdict.kinds[Kind.PLAIN].lost) > 0  # though consumers had received them
    assert len(result.verdict.kinds[Kind.TIMER].lost) > 0  # those that were waiting


class Stubborn(LocalTarget):
    """Its brokers do not start again."""

    async def start(self, member: str) -> None:
        raise BolideError(f"{member} did not start")


@pytest.mark.timeout(300)
@on_loop
async def test_a_broker_that_does_not_start_again_is_reported(tmp_path: Path) -> None:
    workload = WorkloadOptions(kinds=(Kind.PLAIN,), read_within=1.0)
    options = RunOptions(
        seed=SEED, rounds=2, nemeses=("kill",), steady=(0.3, 0.8), hold=(0.5, 1.0),
        drain_within=1.0, linger=0.5, workload=workload,
    )  # fmt: skip

    result = await run_chaos(tmp_path, options, flush="SYNC_FLUSH", kind=Stubborn)

    assert len(result.history.faults) == 1
    assert any("did not start" in each for each in result.verdict.violations)
    assert "ended by an error" in run_report(result, Circumstances.here({}), "")
