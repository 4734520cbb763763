import pytest

from benchmarks.compare import figures
from tests.unit.benchmarks.sample_rounds import sample_round


def test_ratios_are_of_the_medians_so_one_lucky_round_changes_nothing() -> None:
    ours = [sample_round("ours", per_second=rate) for rate in (300, 310, 9_000)]
    theirs = [sample_round("theirs", per_second=rate) for rate in (1, 100, 155)]
    found = figures.ratio([*ours, *theirs], "ours", "theirs", lambda each: each.per_second)
    assert found == pytest.approx(3.1)


def test_a_server_without_rounds_has_no_ratio() -> None:
    rounds = [sample_round("ours")]
    assert figures.ratio(rounds, "ours", "theirs", lambda each: each.per_second) is None


def test_values_that_a_round_does_not_have_are_left_out() -> None:
    rounds = [sample_round("ours"), sample_round("ours", p99_us=7.0)]
    assert figures.values(rounds, "ours", lambda each: each.loaded.p99_us) == [7.0]


def test_a_client_that_costs_nothing_gains_all_that_the_server_saves() -> None:
    assert figures.client_bound(0.0, 40.0, 10.0) == 4.0


def test_a_client_bounds_what_a_cheaper_server_can_gain() -> None:
    assert figures.client_bound(40.0, 40.0, 10.0) == pytest.approx(1.6)


def test_synced_sends_wait_for_the_disk_and_for_their_own_handling() -> None:
    assert figures.sync_bound(8, 0.0001, 80_000) == pytest.approx(40_000)


def test_an_endlessly_fast_disk_leaves_the_rate_without_sync() -> None:
    assert figures.sync_bound(64, 0.0, 50_000) == pytest.approx(50_000)


def test_growth_tells_the_last_third_by_the_first_and_leaves_the_start_out() -> None:
    costs = [90.0, 90.0, *[10.0] * 6, *[11.0] * 6, *[15.0] * 6]
    assert figures.growth(costs) == pytest.approx(1.5)


def test_too_few_steps_have_no_growth() -> None:
    assert figures.growth([1.0, 2.0]) is None


def test_a_cost_that_noise_hides_is_not_taken_for_none() -> None:
    assert figures.without(1.0, 0.25) == 0.75
    assert figures.without(1.0, 1.25) == 0.02
