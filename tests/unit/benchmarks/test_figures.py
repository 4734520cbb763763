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


def test_rounds_without_the_metric_are_skipped() -> None:
    rounds = [sample_round("ours"), sample_round("ours", p99_us=7.0)]
    assert figures.values(rounds, "ours", lambda each: each.loaded.p99_us) == [7.0]


def test_without_client_cost_the_bound_is_the_ratio_of_server_costs() -> None:
    assert figures.client_bound(0.0, 40.0, 10.0) == 4.0


def test_client_cost_bounds_the_gain_of_a_cheaper_server() -> None:
    assert figures.client_bound(40.0, 40.0, 10.0) == pytest.approx(1.6)


def test_the_sync_bound_adds_disk_time_and_processing_time() -> None:
    assert figures.sync_bound(8, 0.0001, 80_000) == pytest.approx(40_000)


def test_with_an_instant_disk_the_bound_is_the_rate_without_sync() -> None:
    assert figures.sync_bound(64, 0.0, 50_000) == pytest.approx(50_000)


def test_growth_compares_the_last_third_with_the_first_and_skips_the_start() -> None:
    costs = [90.0, 90.0, *[10.0] * 6, *[11.0] * 6, *[15.0] * 6]
    assert figures.growth(costs) == pytest.approx(1.5)


def test_too_few_steps_have_no_growth() -> None:
    assert figures.growth([1.0, 2.0]) is None


def test_a_remainder_below_noise_is_not_zero() -> None:
    assert figures.without(1.0, 0.25) == 0.75
    assert figures.without(1.0, 1.25) == 0.02
