"""Rounds go on until their end, or until the cluster itself fails."""

import math

import pytest

from bolide.chaos.history import History, Kind
from bolide.chaos.run import RunOptions, _Rounds
from bolide.chaos.workload import Workload, WorkloadOptions
from bolide.errors import BolideError
from tests.support.aio import on_loop
from tests.unit.chaos.fake_target import FakeTarget

OPTIONS = RunOptions(
    rounds=3, nemeses=("kill",), steady=(0.0, 0.0), hold=(0.0, 0.0),
    workload=WorkloadOptions(kinds=(Kind.PLAIN,)),
)  # fmt: skip


class Stubborn(FakeTarget):
    """Its brokers start only so many times."""

    def __init__(self, starts: int) -> None:
        super().__init__()
        self._starts = starts

    async def start(self, member: str) -> None:
        if self._starts == 0:
            raise BolideError(f"{member} ended before it served")
        self._starts -= 1
        await super().start(member)


async def history_of(target: FakeTarget) -> History:
    history = History()
    workload = Workload(target.name_servers, history, OPTIONS.workload, seed=1)
    workload.last_acknowledged[Kind.PLAIN] = math.inf  # it is always served
    await _Rounds(target, OPTIONS, workload, ["kill"], print).run()
    return history


@on_loop
async def test_every_round_of_a_sound_cluster_is_recorded() -> None:
    history = await history_of(FakeTarget())

    assert [each.round for each in history.faults] == [1, 2, 3]
    assert all(each.back_after is not None and not each.error for each in history.faults)


@on_loop
async def test_a_member_that_does_not_start_ends_the_rounds() -> None:
    history = await history_of(Stubborn(1))

    assert [each.round for each in history.faults] == [1, 2]
    assert "ended before it served" in history.faults[1].error
    assert history.faults[1].back_after is None


@on_loop
async def test_errors_within_the_sends_are_raised_by_themselves() -> None:
    workload = Workload("127.0.0.1:1", History(), WorkloadOptions(kinds=()), seed=1)

    with pytest.raises(BolideError, match="nothing is served"):
        async with workload.consuming(), workload.sending():
            raise BolideError("nothing is served")
