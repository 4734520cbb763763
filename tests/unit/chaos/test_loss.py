"""What only a master had when it was lost, by where the queues of its slave end."""

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
    assert "| 2 | 3000 | 1,500 | 40 | 5.2 |" in page


@pytest.mark.parametrize("name", ["rounds", "senders", "size"])
def test_options_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name} 0: must be at least 1"):
        LossOptions(**{name: 0})
