import random

import pytest

from bolide.bench.counters import Histogram


def test_percentiles_are_within_one_percent_of_the_samples() -> None:
    chance = random.Random(7)
    samples = sorted(chance.lognormvariate(-6, 2) for _ in range(20_000))
    histogram = Histogram()
    for sample in samples:
        histogram.record(sample)

    for part in (0.5, 0.9, 0.99, 0.999):
        exact = samples[int(part * len(samples)) - 1]
        assert histogram.percentile(part) == pytest.approx(exact, rel=0.01, abs=2e-6)


def test_the_longest_and_the_mean_are_exact() -> None:
    histogram = Histogram()
    for seconds in (0.001, 0.002, 3.123456789):
        histogram.record(seconds)

    assert histogram.longest == histogram.percentile(1.0) == 3.123456789
    assert histogram.mean == pytest.approx(1.042152263)
    assert histogram.count == 3


def test_any_number_of_samples_takes_bounded_memory() -> None:
    histogram = Histogram()
    for micros in range(1, 2_000_000, 7):
        histogram.record(micros / 1e6)

    assert len(histogram._buckets) < 2_500


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    histogram = Histogram()
    histogram.record(-5.0)

    assert (histogram.count, histogram.percentile(0.5), histogram.longest) == (1, 0.0, 0.0)


def test_figures_are_milliseconds_and_zero_when_nothing_was_counted() -> None:
    histogram = Histogram()
    assert set(histogram.in_ms().values()) == {0.0}
    histogram.record(0.0015)

    assert histogram.in_ms() == {
        "mean": 1.5, "p50": 1.5, "p90": 1.5, "p99": 1.5, "p99.9": 1.5, "max": 1.5,
    }  # fmt: skip
