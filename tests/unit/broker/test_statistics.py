"""Broker statistics: sums, rates per minute, hour and day, and totals since midnight."""

import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bolide.broker.statistics import Statistics, Totals
from bolide.protocol.bodies.stats import BrokerStats, StatsWindow
from tests.support.clock import FakeClock

NOON = time.mktime((2024, 5, 7, 12, 0, 0, 0, 0, -1))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def statistics(clock: FakeClock) -> Statistics:
    return Statistics("DefaultCluster", clock)


def pass_time(statistics: Statistics, clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds // 10):
        clock.advance(10)
        statistics.sample()


def sums(statistics: Statistics, keys: dict[str, str]) -> list[int]:
    return [minute_of(statistics.view(name, key)).sum for name, key in keys.items()]


def minute_of(stats: BrokerStats | None) -> StatsWindow:
    assert stats is not None
    assert stats.stats_minute is not None
    return stats.stats_minute


def test_sends_are_seen_by_queue_and_topic_and_broker(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.sent("T", 0, 3, 300, 0.002)
    statistics.sent("T", 1, 1, 50, 0.001)
    statistics.sent("T", 0, 1, 100, 0.004)
    pass_time(statistics, clock, 10)
    sums = {
        name: minute_of(statistics.view(name, key)).sum
        for name, key in {
            "TOPIC_PUT_NUMS": "T",
            "TOPIC_PUT_SIZE": "T",
            "QUEUE_PUT_NUMS": "T@0",
            "QUEUE_PUT_SIZE": "T@1",
            "TOPIC_PUT_LATENCY": "0@T",
            "BROKER_PUT_NUMS": "DefaultCluster",
        }.items()
    }
    assert sums == {
        "TOPIC_PUT_NUMS": 5,
        "TOPIC_PUT_SIZE": 450,
        "QUEUE_PUT_NUMS": 4,
        "QUEUE_PUT_SIZE": 50,
        "TOPIC_PUT_LATENCY": 6,
        "BROKER_PUT_NUMS": 5,
    }


def test_gets_are_seen_by_queue_and_group_and_broker(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.got("g", "T", 2, 32, 3200, 0.003)
    statistics.got("g", "T", 3, 8, 800)
    pass_time(statistics, clock, 10)
    for name, key, total in (
        ("GROUP_GET_NUMS", "T@g", 40),
        ("GROUP_GET_SIZE", "T@g", 4000),
        ("QUEUE_GET_NUMS", "T@2@g", 32),
        ("QUEUE_GET_SIZE", "T@3@g", 800),
        ("GROUP_GET_LATENCY", "2@T@g", 3),
        ("BROKER_GET_NUMS", "DefaultCluster", 40),
    ):
        assert minute_of(statistics.view(name, key)).sum == total, name


def test_a_rate_is_that_between_the_first_and_the_last_sample(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.sent("T", 0, 100, 100, 0.0)
    pass_time(statistics, clock, 10)
    assert statistics.put_tps("T") == 10.0
    pass_time(statistics, clock, 10)
    assert statistics.put_tps("T") == 5.0


def test_the_average_is_that_of_a_call(statistics: Statistics, clock: FakeClock) -> None:
    statistics.sent("T", 0, 30, 1, 0.0)
    statistics.sent("T", 0, 10, 1, 0.0)
    pass_time(statistics, clock, 10)
    assert minute_of(statistics.view("TOPIC_PUT_NUMS", "T")).avgpt == 20.0


def test_a_count_leaves_the_minute_before_the_hour_and_the_day(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.got("g", "T", 0, 600, 1)
    pass_time(statistics, clock, 600)
    found = statistics.view("GROUP_GET_NUMS", "T@g")
    assert minute_of(found) == StatsWindow()
    assert found is not None
    assert found.stats_hour == StatsWindow(sum=600, tps=1.0, avgpt=600.0)
    assert found.stats_day == StatsWindow(sum=600, tps=1.0, avgpt=600.0)
    pass_time(statistics, clock, 3600)
    found = statistics.view("GROUP_GET_NUMS", "T@g")
    assert found is not None
    assert found.stats_hour == StatsWindow()
    assert found.stats_day is not None
    assert found.stats_day.sum == 600


def test_after_an_idle_time_the_rate_covers_the_last_minute_only(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.sent("T", 0, 100, 1, 0.0)
    pass_time(statistics, clock, 1200)
    assert statistics.put_tps("T") == 0.0
    statistics.sent("T", 0, 100, 1, 0.0)
    pass_time(statistics, clock, 10)
    assert minute_of(statistics.view("TOPIC_PUT_NUMS", "T")).sum == 100
    assert statistics.put_tps("T") == 100 / 60


def test_an_unknown_statistic_is_not_found(statistics: Statistics) -> None:
    assert statistics.view("TOPIC_PUT_NUMS", "Nowhere") is None
    assert statistics.view("NO_SUCH_NAME", "T") is None
    assert statistics.view("GROUP_GET_FALL_SIZE", "no@such@key") is None
    assert statistics.put_tps("Nowhere") == statistics.get_tps("g", "Nowhere") == 0.0


def test_retries_and_dead_letters_are_counted(statistics: Statistics, clock: FakeClock) -> None:
    statistics.sent_back("g", "T", 100, 2)
    statistics.sent_back("g", "T", 110, None)
    statistics.dead_lettered("g", "T", by_broker=True)
    pass_time(statistics, clock, 10)
    assert sums(
        statistics,
        {
            "SNDBCK_PUT_NUMS": "T@g",
            "DLQ_PUT_NUMS": "T@g",
            "SNDBCK2DLQ_TIMES": "null@T@g@SEND_BACK_TO_DLQ",
            "TOPIC_PUT_SIZE": "SCHEDULE_TOPIC_XXXX",
            "QUEUE_PUT_NUMS": "SCHEDULE_TOPIC_XXXX@2",
            "BROKER_PUT_NUMS": "DefaultCluster",
        },
    ) == [2, 1, 1, 100, 1, 0]
    assert (statistics.totals.sent, statistics.totals.sent_bytes) == (2, 210)


def test_how_far_a_group_is_behind_is_that_of_now(statistics: Statistics) -> None:
    statistics.fell_behind("g", "T", 4, 10, 1.0)
    statistics.fell_behind("g", "T", 4, 2048, 1.5)
    assert minute_of(statistics.view("GROUP_GET_FALL_SIZE", "4@T@g")).sum == 2048
    assert minute_of(statistics.view("GROUP_GET_FALL_TIME", "4@T@g")).sum == 1500


def test_totals_count_messages_bytes_finds_misses_and_failures(statistics: Statistics) -> None:
    statistics.sent("T", 0, 2, 200, 0.0)
    statistics.failed()
    statistics.got("g", "T", 0, 2, 200)
    statistics.got_nothing()
    statistics.stored("SCHEDULE_TOPIC_XXXX", 1, 50)
    assert statistics.totals == Totals(
        sent=3, sent_bytes=250, failed=1, got=2, found=1, missed=1, user_sent=2, user_got=2
    )


def test_rates_of_a_total_are_those_of_ten_seconds_a_minute_and_ten_minutes(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.sent("T", 0, 600, 1, 0.0)
    pass_time(statistics, clock, 600)
    statistics.sent("T", 0, 60, 1, 0.0)
    pass_time(statistics, clock, 10)
    assert statistics.rates(lambda totals: totals.sent) == [6.0, 1.0, 0.1]


def test_rates_of_a_young_broker_cover_the_time_since_its_start(
    statistics: Statistics, clock: FakeClock
) -> None:
    assert statistics.rates(lambda totals: totals.sent) == [0.0, 0.0, 0.0]
    statistics.sent("T", 0, 10, 1, 0.0)
    clock.advance(5)
    assert statistics.rates(lambda totals: totals.sent) == [2.0, 2.0, 2.0]


def test_totals_are_noted_at_midnight(statistics: Statistics, clock: FakeClock) -> None:
    statistics.sent("T", 0, 5, 1, 0.0)
    pass_time(statistics, clock, 3600 * 11)
    assert statistics.this_morning == Totals()
    pass_time(statistics, clock, 3600 * 2)
    assert statistics.this_morning.sent == 5
    statistics.sent("T", 0, 2, 1, 0.0)
    pass_time(statistics, clock, 3600 * 24)
    assert (statistics.yesterday_morning.sent, statistics.this_morning.sent) == (5, 7)


def test_a_deleted_topic_is_forgotten_and_the_totals_stay(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.sent("T", 0, 5, 1, 0.0)
    statistics.got("g", "T", 0, 5, 1)
    statistics.fell_behind("g", "T", 0, 1, 1.0)
    statistics.sent("Other", 0, 1, 1, 0.0)
    statistics.forget_topic("T")
    assert statistics.view("TOPIC_PUT_NUMS", "T") is None
    assert statistics.view("GROUP_GET_NUMS", "T@g") is None
    assert statistics.view("GROUP_GET_FALL_SIZE", "0@T@g") is None
    assert statistics.view("TOPIC_PUT_NUMS", "Other") is not None
    assert statistics.totals.sent == 6
    statistics.sent("T", 0, 1, 1, 0.0)
    pass_time(statistics, clock, 10)
    assert minute_of(statistics.view("TOPIC_PUT_NUMS", "T")).sum == 1


def test_a_deleted_group_is_forgotten(statistics: Statistics) -> None:
    statistics.got("g", "T", 0, 5, 1)
    statistics.sent_back("g", "T", 1, 2)
    statistics.got("other", "T", 0, 5, 1)
    statistics.forget_group("g")
    assert statistics.view("GROUP_GET_NUMS", "T@g") is None
    assert statistics.view("SNDBCK_PUT_NUMS", "T@g") is None
    assert statistics.view("GROUP_GET_NUMS", "T@other") is not None


def test_idle_statistics_are_dropped_if_configured(clock: FakeClock) -> None:
    statistics = Statistics("DefaultCluster", clock, idle_minutes=5)  # up to 10 mean 30
    statistics.sent("Idle", 0, 1, 1, 0.0)
    pass_time(statistics, clock, 29 * 60)
    assert statistics.view("TOPIC_PUT_NUMS", "Idle") is not None
    for _ in range(3):
        statistics.sent("Busy", 0, 1, 1, 0.0)
        pass_time(statistics, clock, 60)
    assert statistics.view("TOPIC_PUT_NUMS", "Idle") is None
    assert statistics.view("TOPIC_PUT_NUMS", "Busy") is not None
    assert statistics.view("BROKER_PUT_NUMS", "DefaultCluster") is not None


def test_pending_counts_are_added_before_sums_are_read(statistics: Statistics) -> None:
    statistics.before_read.add(lambda: statistics.sent_singly("T", 0, 2, 20, 0.001))
    statistics.before_read.add(lambda: statistics.got_by_calls(2, "g", "T", 0, 3, 30, 0.001))
    assert statistics.totals == Totals(
        sent=2, sent_bytes=20, got=3, found=2, user_sent=2, user_got=3
    )
    assert statistics.view("TOPIC_PUT_NUMS", "T") is not None
    assert statistics.view("QUEUE_GET_NUMS", "T@0@g") is not None


def test_pending_counts_of_a_deleted_group_do_not_reappear(statistics: Statistics) -> None:
    untold = [3]

    def tell() -> None:
        if untold:
            statistics.got_by_calls(1, "g", "T", 0, untold.pop(), 30, 0.001)

    statistics.before_read.add(tell)
    statistics.forget_group("g")
    assert not untold
    assert statistics.view("QUEUE_GET_NUMS", "T@0@g") is None


def test_a_window_that_is_not_full_shows_what_was_counted_until_now(
    statistics: Statistics, clock: FakeClock
) -> None:
    clock.advance(300)
    statistics.sample()
    statistics.sent("T", 0, 100, 1, 0.0)
    clock.advance(4)
    found = statistics.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    windows = (found.stats_minute, found.stats_hour, found.stats_day)
    assert windows == (StatsWindow(sum=100, tps=10.0, avgpt=100.0),) * 3  # a rate is by 10 s
    clock.advance(16)
    statistics.sample()
    clock.advance(5)
    statistics.sent("T", 0, 25, 1, 0.0)
    found = statistics.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.stats_day == StatsWindow(sum=125, tps=5.0, avgpt=62.5)


def test_figures_of_the_broker_have_no_average_and_tell_system_topics_apart(
    statistics: Statistics, clock: FakeClock
) -> None:
    statistics.sent("T", 0, 4, 400, 0.0)
    statistics.sent("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1, 100, 0.0)
    statistics.got("g", "rmq_sys_wheel_timer", 0, 3, 300)
    statistics.leased("g", "T", 2)
    statistics.acknowledged("g", "T", 5)
    pass_time(statistics, clock, 10)
    names = ("PUT_NUMS", "PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "GET_NUMS", "ACK_NUMS", "CK_NUMS")
    found = [minute_of(statistics.view(f"BROKER_{name}", "DefaultCluster")) for name in names]
    assert [each.sum for each in found] == [5, 4, 3, 5, 2]
    assert [each.avgpt for each in found] == [0.0] * 5
    assert sums(statistics, {"GROUP_ACK_NUMS": "T@g", "GROUP_CK_NUMS": "T@g"}) == [5, 2]


def test_what_the_broker_stores_itself_has_no_latency(statistics: Statistics) -> None:
    statistics.stored("T", 0, 100)
    assert statistics.view("TOPIC_PUT_LATENCY", "0@T") is None
    statistics.sent("T", 0, 1, 100, 0.008)
    latency = minute_of(statistics.view("TOPIC_PUT_LATENCY", "0@T"))
    assert (latency.sum, latency.avgpt) == (8, 8.0)
    assert minute_of(statistics.view("TOPIC_PUT_NUMS", "T")).sum == 2


def test_a_delayed_message_is_delivered_from_its_level_to_its_topic(
    statistics: Statistics,
) -> None:
    statistics.delivered_delayed(3, "T", 1, 120)
    assert sums(
        statistics,
        {
            "GROUP_GET_NUMS": "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER",
            "QUEUE_GET_SIZE": "SCHEDULE_TOPIC_XXXX@3@SCHEDULE_CONSUMER",
            "QUEUE_PUT_NUMS": "T@1",
            "BROKER_PUT_NUMS": "DefaultCluster",
            "BROKER_GET_NUMS": "DefaultCluster",
        },
    ) == [1, 120, 1, 1, 0]


def test_the_latency_of_a_pop_is_that_of_the_queue_it_named(statistics: Statistics) -> None:
    statistics.got_by_calls(1, "g", "T", 2, 5, 500, None)
    assert statistics.view("GROUP_GET_LATENCY", "2@T@g") is None
    statistics.popped("g", "T", -1, 0.003)
    statistics.popped("g", "T", 2, 0.004)
    keys = {"GROUP_GET_LATENCY": "-1@T@g", "GROUP_GET_NUMS": "T@g"}
    assert sums(statistics, keys) == [3, 5]
    assert sums(statistics, {"GROUP_GET_LATENCY": "2@T@g"}) == [4]


def test_registrations_and_connections_are_counted(statistics: Statistics) -> None:
    statistics.registered(2, 1, 0.004)
    statistics.channels((5, 3, 1, 0))
    statistics.channels((7, 4, 1, 0))
    beats = minute_of(statistics.view("CONSUMER_REGISTER_TIME", "DefaultCluster"))
    assert (beats.sum, beats.avgpt) == (8, 4.0)
    assert minute_of(statistics.view("PRODUCER_REGISTER_TIME", "DefaultCluster")).sum == 4
    events = ("CONNECT", "CLOSE", "EXCEPTION", "IDLE")
    found = [minute_of(statistics.view("CHANNEL_ACTIVITY", event)).sum for event in events]
    assert found == [7, 4, 1, 0]


def test_a_group_that_has_read_a_queue_is_not_behind(statistics: Statistics) -> None:
    statistics.caught_up("g", "T", 4)
    assert statistics.view("GROUP_GET_FALL_SIZE", "4@T@g") is None
    statistics.fell_behind("g", "T", 4, 2048, 1.5)
    statistics.caught_up("g", "T", 4)
    assert sums(statistics, {"GROUP_GET_FALL_SIZE": "4@T@g", "GROUP_GET_FALL_TIME": "4@T@g"}) == [
        0,
        0,
    ]


def test_many_counters_are_sampled_a_few_at_a_time(
    statistics: Statistics, clock: FakeClock
) -> None:
    for number in range(3000):
        statistics.sent(f"T{number}", 0, 10, 1, 0.0)
    clock.advance(10)
    assert sum(1 for _ in statistics.sample_in_slices()) >= 10
    assert {statistics.put_tps(f"T{number}") for number in range(3000)} == {1.0}


@pytest.mark.parametrize(("forget", "name"), [("forget_topic", "T0"), ("forget_group", "g0")])
def test_a_deletion_is_no_work_for_other_topics_and_groups(forget: str, name: str) -> None:
    def work(others: int) -> int:
        """Instructions of a deletion among so many others."""
        statistics = Statistics("c")
        traffic = statistics.traffic
        for number in range(others + 1):
            group, topic = f"g{number}", f"T{number}"
            statistics.sent(topic, 0, 1, 10, 0.001)
            statistics.got(group, topic, 0, 1, 10)
            statistics.fell_behind(group, topic, 0, 10, 1.0)
            statistics.dead_lettered(group, topic, by_broker=True)
            traffic.message_in(topic, "normal", [10])
            traffic.pulled(group, topic, 1, 10)
            traffic.message_revived(group, topic)
        done = instructions(partial(getattr(statistics, forget), name))
        for table in (traffic.delivered, traffic.dead, traffic.revived):
            assert len(table) == others
        assert statistics.view("GROUP_GET_FALL_SIZE", "0@T0@g0") is None
        assert statistics.view("GROUP_GET_FALL_SIZE", "0@T1@g1") is not None
        return done

    assert work(others=500) == work(others=5)


def instructions(call: Callable[[], object]) -> int:
    """How many instructions of Python a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
