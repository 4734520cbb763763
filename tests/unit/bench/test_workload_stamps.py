from bolide.bench.workload import MIN_SIZE, Stamps
from tests.support.clock import FakeClock


def test_a_message_tells_its_age() -> None:
    clock = FakeClock(0)
    stamps = Stamps("T", 100, lambda: int(clock.now * 1e9))
    message = stamps.message()
    clock.advance(0.25)

    assert (message.topic, len(message.body)) == ("T", 100)
    assert stamps.age(message.body) == 0.25


def test_messages_of_other_runs_are_not_told_apart_by_age() -> None:
    stamps, others = Stamps("T", 20), Stamps("T", 20)

    assert stamps.age(others.message().body) is None
    assert stamps.age(b"something else, long enough") is None
    assert stamps.age(b"short") is None


def test_a_body_is_never_shorter_than_its_stamp() -> None:
    assert len(Stamps("T", 1).message().body) == MIN_SIZE
