"""Latency percentiles per minute."""

import pytest

from bolide.broker.counters import Latencies


def filled(*milliseconds: float) -> Latencies:
    latencies = Latencies()
    for each in milliseconds:
        latencies.add(each)
    return latencies


def test_a_percentile_is_the_upper_bound_of_its_bucket() -> None:
    latencies = filled(*[0.3] * 98, 4.0, 4.0)
    assert latencies.percentile(0.5) == 0.5
    assert latencies.percentile(0.99) == 4.0  # never more than the maximum
    assert latencies.longest == 4.0


def test_a_percentile_beyond_the_last_bucket_is_the_maximum() -> None:
    assert filled(12_000.0).percentile(0.99) == 12_000.0


def test_nothing_took_no_time() -> None:
    assert Latencies().percentile(0.99) == 0.0
    assert Latencies().longest == 0.0


@pytest.mark.parametrize(
    ("milliseconds", "bucket"),
    [
        (0.0, "[<=0ms]"),
        (0.99, "[<=0ms]"),
        (1.0, "[0~10ms]"),
        (9.9, "[0~10ms]"),
        (10.0, "[10~50ms]"),
        (999.0, "[500ms~1s]"),
        (4500.0, "[4~5s]"),
        (9999.0, "[5~10s]"),
        (10_000.0, "[10s~]"),
    ],
)
def test_the_distribution_has_rocketmqs_buckets(milliseconds: float, bucket: str) -> None:
    parts = filled(milliseconds, milliseconds).distribution().split(" ")
    assert len(parts) == 13
    assert [part for part in parts if not part.endswith(":0")] == [f"{bucket}:2"]


def test_the_last_full_minute_is_reported_once_there_is_one() -> None:
    latencies = filled(4.0)
    assert latencies.percentile(0.99) == 4.0
    latencies.begin_minute()
    latencies.add(200.0)
    assert latencies.percentile(0.99) == 5.0
    latencies.begin_minute()
    assert latencies.percentile(0.99) == 200.0
