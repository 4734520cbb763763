"""What only a master had when it was lost, by where the queues of its slave end."""

from typing import Any

import pytest

from bolide.chaos.loss import Ack, LossOptions, LossResult, LossRound, judge
from bolide.chaos.report import Circumstances
from bolide.errors import ConfigError

WHERE = Circumstances(date="today", machine="a machine", python="3.11", commit="abc")


def test_what_lies_behind_the_end_of_the_slave_is_lost() -> None:
    acks = [Ack(0, 6, 11.0), Ack(0, 7, 11.9), Ack(1, 3, 11.5), Ack(0, 8, 11.95)]
    found = judge(acks, {0: 7, 1: 4}, began=10.0, lost_at=12.0)
    assert (found.acknowledged, found.rate, found.lost) == (4, 2.0, 2)
    assert found.window == pytest.approx(0.1)


def test_a_queue_that_the_slave_does_not_have_is_lost_whole() -> None:
    assert judge([Ack(2, 0, 11.0)], {0: 7}, began=10.0, lost_at=12.0).lost == 1


def test_without_losses_there_is_no_window() -> None:
    assert judge([Ack(0, 6, 11.0)], {0: 7}, began=10.0, lost_at=12.0) == LossRound(1, 0.5, 0, 0.0)


def test_the_report_has_every_round_and_the_worst() -> None:
    result = LossResult([LossRound(1000, 500.0, 0, 0.0), LossRound(3000, 1500.0, 40, 0.0052)])
    page = result.report(WHERE)
    assert "40 of 4,000 acknowledged messages were on the master only" in page
    assert "median 20, at most 40" in page
    assert "median 2.6 ms, at most 5.2 ms before the loss" in page
    assert "| 2 | 3000 | 1,500 | 0 | 40 | 5.2 |" in page


@pytest.mark.parametrize(("is_loss_allowed", "is_good"), [(True, True), (False, False)])
def test_a_loss_breaks_the_promise_of_a_mode_that_allows_none(
    is_loss_allowed: bool, is_good: bool
) -> None:
    result = LossResult(
        [LossRound(1000, 500.0, 0, 0.0), LossRound(1000, 500.0, 1, 0.002)], is_loss_allowed
    )
    assert result.is_good is is_good
    assert ("Promises were broken" in result.summary()) is not is_good


@pytest.mark.parametrize("is_loss_allowed", [True, False])
def test_a_round_without_acknowledgements_shows_nothing(is_loss_allowed: bool) -> None:
    assert not LossResult([LossRound(0, 0.0, 0, 0.0, weak=9)], is_loss_allowed).is_good


def test_weak_statuses_are_reported_beside_acknowledgements() -> None:
    found = judge([Ack(0, 6, 11.0)], {0: 7}, began=10.0, lost_at=12.0, weak=3)
    assert "| 1 | 1 | 0 | 3 | 0 | 0.0 |" in LossResult([found]).report(WHERE)


def test_slaves_cannot_be_cut_off_for_less_than_no_time() -> None:
    with pytest.raises(ConfigError, match="--ahead -1: must not be negative"):
        LossOptions(ahead=-1)


@pytest.mark.parametrize("name", ["rounds", "senders", "size"])
def test_options_must_be_positive(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"--{name} 0: must be at least 1"):
        LossOptions(**options)
