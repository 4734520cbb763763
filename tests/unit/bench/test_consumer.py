import pytest

from bolide.bench.consumer import Listener
from bolide.bench.counters import ConsumeCounters
from bolide.client.consumer.handlers.handler import Retry
from bolide.model.message import StoredMessage
from tests.support.clock import FakeClock

MESSAGE = StoredMessage("T", b"x", {}, born_timestamp=999_990, store_timestamp=999_995)


def test_ages_are_from_birth_and_from_storing() -> None:
    counters = ConsumeCounters()
    Listener(counters, now=FakeClock(1000.0))(MESSAGE)

    assert counters.born.longest == pytest.approx(0.010)
    assert counters.stored.longest == pytest.approx(0.005)


def test_what_fails_is_counted_and_asked_for_again() -> None:
    counters = ConsumeCounters()
    listener = Listener(counters, fail_rate=1.0)

    with pytest.raises(Retry):
        listener(MESSAGE)

    assert (counters.born.count, counters.failed) == (1, 1)


def test_who_waits_for_a_number_is_told_of_each_message() -> None:
    told: list[int] = []
    listener = Listener(ConsumeCounters(), after=told.append)
    for _ in range(3):
        listener(MESSAGE)

    assert told == [1, 2, 3]
