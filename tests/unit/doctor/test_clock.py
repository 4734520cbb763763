"""Bounds of the difference between two clocks, from figures in whole seconds."""

import pytest

from bolide.doctor.clock import ClockDifference, combined, difference_in

BOOT = 1_700_000_000


def figures(elapsed: int) -> dict[str, str]:
    days, rest = divmod(elapsed, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    text = f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
    return {"bootTimestamp": str(BOOT * 1000), "runtime": text}


@pytest.mark.parametrize("truth", [0.0, 3.7, -120.25, 90_061.0])
def test_the_bounds_hold_the_difference(truth: float) -> None:
    asked, halfway, answered = BOOT + 200_000.4, BOOT + 200_000.45, BOOT + 200_000.6
    found = difference_in(figures(int(halfway + truth - BOOT)), asked, answered)

    assert found is not None
    assert found.least <= truth <= found.most
    assert found.most - found.least == pytest.approx(1.2, abs=0.01)


def test_answers_at_different_parts_of_a_second_narrow_it_down() -> None:
    truth, found = 5.0, []
    for begun in (100.0, 100.35, 100.7):
        now = BOOT + begun
        found.append(difference_in(figures(int(begun + 0.005 + truth)), now, now + 0.01))

    bounds = combined(each for each in found if each)

    assert bounds is not None
    assert bounds.least <= truth <= bounds.most
    assert bounds.most - bounds.least < 0.35
    assert 4.6 < bounds.certain <= 5.0 <= bounds.possible < 5.4


def test_answers_that_contradict_each_other_tell_nothing() -> None:
    assert combined([ClockDifference(0, 1), ClockDifference(5, 6)]) is None
    assert combined([]) is None


@pytest.mark.parametrize("lacking", ["bootTimestamp", "runtime"])
def test_without_its_figures_there_is_no_difference(lacking: str) -> None:
    assert difference_in(figures(5) | {lacking: ""}, 0, 0) is None


def test_clocks_that_may_agree_do_not_differ_for_certain() -> None:
    assert ClockDifference(-0.4, 0.6).certain == 0
    assert ClockDifference(-3, -2).certain == 2
