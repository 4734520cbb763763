"""What counts in a failover: the first other member, and what the old master says after it."""

import pytest

from bolide.chaos.failover import (
    FailoverOptions,
    FailoverResult,
    FailoverRound,
    _Ack,
    _Round,
    measure_failover,
)
from bolide.chaos.report import Circumstances
from bolide.errors import ConfigError
from tests.support.aio import on_loop
from tests.unit.chaos.fake_target import FakeTarget

OLD, NEW = "broker-a-0", "broker-a-1"
WHERE = Circumstances(date="today", machine="a machine", python="3.11", commit="abc")


def judged(probes: list[_Ack], client: list[_Ack]) -> FailoverRound:
    """The round of a fault at 10.0."""
    failover = _Round(FakeTarget(), FailoverOptions(), [OLD])
    failover._probes += probes
    failover._client_acks += client
    return failover._judge(10.0)


def test_the_first_acknowledgement_of_another_member_counts() -> None:
    found = judged(
        [_Ack(OLD, 10.0, 10.1), _Ack(NEW, 11.9, 12.0), _Ack(NEW, 12.0, 12.1)],
        [_Ack(OLD, 9.9, 10.1), _Ack(NEW, 11.5, 12.5)],
    )

    assert (found.new, found.writable, found.client) == (NEW, 2.0, 2.5)
    assert found.late_acknowledgements == 0


def test_what_the_old_master_acknowledges_after_the_new_one_is_late() -> None:
    found = judged(
        [_Ack(NEW, 11.9, 12.0), _Ack(OLD, 11.5, 12.2)],
        [_Ack(OLD, 13.0, 13.1), _Ack(OLD, 9.9, 14.0), _Ack(NEW, 12.0, 12.5)],
    )

    # The send that began before the fault was replicated before it: it may be answered late.
    assert found.late_acknowledgements == 2


def test_a_round_without_a_new_master_has_failed() -> None:
    found = judged([_Ack(OLD, 10.0, 10.1)], [])

    assert found.writable is None
    assert FailoverResult("kill", [found]).failed == 1
    assert not FailoverResult("kill", [found]).is_good


def test_median_and_worst_are_reported() -> None:
    rounds = [FailoverRound(OLD, NEW, seconds, seconds + 1) for seconds in (1.0, 2.0, 4.0)]
    result = FailoverResult("cut", rounds)

    assert result.is_good
    assert result.summary() == (
        "cut: 3 rounds, 0 failed; new master writable median 2.00 s, worst 4.00 s; client"
        " acknowledged median 3.00 s, worst 5.00 s; acknowledged by the old master afterwards: 0"
    )
    assert "| 1 | broker-a-0 | broker-a-1 | 1.00 | 2.00 | 0 |" in result.report(WHERE)


def test_only_the_members_of_the_group_are_probed() -> None:
    assert _Round(FakeTarget(), FailoverOptions(), ["broker-b-1"])._members == [
        "broker-b-0", "broker-b-1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "text"), [({"fault": "flood"}, "--fault flood"), ({"rounds": 0}, "--rounds 0")]
)
def test_impossible_options_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        FailoverOptions(**options)  # type: ignore[arg-type]


@on_loop
async def test_a_cut_needs_a_network_that_can_be_cut() -> None:
    with pytest.raises(ConfigError, match="--fault cut"):
        await measure_failover(FakeTarget(can_cut=False), FailoverOptions(fault="cut"), print)


@on_loop
async def test_killing_the_leading_controller_too_needs_a_quorum_without_it() -> None:
    with pytest.raises(ConfigError, match="--fault kill-leaders"):
        await measure_failover(FakeTarget(), FailoverOptions(fault="kill-leaders"), print)


@on_loop
async def test_all_that_is_harmed_is_killed_and_started_again() -> None:
    target = FakeTarget()
    failover = _Round(target, FailoverOptions(fault="kill-leaders"), [OLD, "namesrv-1"])

    async with failover._fault():
        assert target.done == [f"kill {OLD}", "kill namesrv-1"]
    assert target.done[2:] == [f"start {OLD}", "start namesrv-1"]
