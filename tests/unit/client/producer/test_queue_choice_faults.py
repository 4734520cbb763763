import pytest

from bolide.client.producer.queue_choice import BrokerFaults, FaultTable, QueueChoice
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from tests.support.clock import FakeClock

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in (0, 1)]


@pytest.mark.parametrize(
    ("latency", "out"),
    [(0.0, 0), (0.549, 0), (0.55, 30), (1.0, 60), (2.5, 120), (3.0, 180), (15.0, 600), (99, 600)],
)
def test_the_table_is_that_of_4_9(latency: float, out: float) -> None:
    assert FaultTable().duration(latency) == out


def test_a_table_whose_lists_do_not_match_is_refused() -> None:
    with pytest.raises(ConfigError, match="differ in length"):
        FaultTable(latencies=[1.0], durations=[])
    with pytest.raises(ConfigError, match="must ascend"):
        FaultTable(latencies=[2.0, 1.0], durations=[0.0, 1.0])


def test_a_slow_broker_is_out_for_a_while() -> None:
    clock = FakeClock()
    faults = BrokerFaults(FaultTable(), clock)
    assert faults.is_available("a")
    faults.sent("a", 0.6)
    assert not faults.is_available("a")
    clock.advance(30)
    assert faults.is_available("a")


def test_a_failure_counts_as_thirty_seconds() -> None:
    clock = FakeClock()
    faults = BrokerFaults(FaultTable(), clock)
    faults.failed("a", 0.001)
    clock.advance(599)
    assert not faults.is_available("a")
    clock.advance(1)
    assert faults.is_available("a")


def test_when_all_are_out_the_better_half_takes_turns() -> None:
    faults = BrokerFaults(FaultTable(), FakeClock())
    for latency, name in enumerate("abcd", start=1):
        faults.sent(name, latency)
    assert {faults.best_of("abcd") for _ in range(4)} == {"a", "b"}


def test_queues_take_turns() -> None:
    choice = QueueChoice()
    chosen = [choice.choose("T", QUEUES) for _ in range(12)]
    assert sorted(chosen[:6]) == sorted(QUEUES)
    assert chosen[:6] == chosen[6:]


def test_a_retry_goes_to_another_broker_if_there_is_one() -> None:
    choice = QueueChoice()
    assert {choice.choose("T", QUEUES, avoid="b").broker_name for _ in range(12)} == {"a", "c"}
    alone = [queue for queue in QUEUES if queue.broker_name == "b"]
    assert choice.choose("T", alone, avoid="b") in alone


def test_brokers_that_are_out_are_passed_over() -> None:
    faults = BrokerFaults(FaultTable(), FakeClock())
    choice = QueueChoice(faults)
    faults.failed("a", 1.0)
    assert {choice.choose("T", QUEUES).broker_name for _ in range(12)} == {"b", "c"}
    for name, latency in (("a", 20.0), ("b", 1.0), ("c", 20.0)):
        faults.sent(name, latency)
    assert {choice.choose("T", QUEUES).broker_name for _ in range(12)} == {"b"}
