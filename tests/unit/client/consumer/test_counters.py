"""What `consumerStatus` is shown of a topic."""

from bolide.client.consumer.counters import TopicCounters
from tests.support.clock import FakeClock


def test_rates_are_those_of_the_last_minute() -> None:
    clock = FakeClock()
    counters = TopicCounters(clock)
    counters["T"].consumed(1000, 0, 1.0)
    counters.sample()
    for _ in range(6):
        clock.advance(10)
        counters["T"].pulled(20, 0.05)
        counters["T"].consumed(19, 1, 0.2)
        counters.sample()
    shown = counters["T"].status()
    assert (shown.pull_tps, shown.consume_ok_tps, shown.consume_failed_tps) == (2.0, 1.9, 0.1)
    assert round(shown.pull_rt) == 50
    assert round(shown.consume_rt) == 200
    assert shown.consume_failed_msgs == 6


def test_a_topic_of_which_nothing_came_yet_shows_nothing() -> None:
    assert TopicCounters(FakeClock())["T"].status().consume_ok_tps == 0.0
