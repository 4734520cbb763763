"""Recurring messages, one occurrence at a time."""

import pytest

from bolide.broker.timers.recurring import Recurring, begin_series, check_batch
from bolide.broker.timers.timetable import timer_draft
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import MessageIllegal
from tests.support.clock import FakeClock

MINUTE = 60_000
BEGIN = 1_700_000_040_000 // MINUTE * MINUTE
TOPIC = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)


class Series:
    """A pending recurring message and what its occurrences produce."""

    def __init__(self, **properties: str) -> None:
        self.clock = FakeClock(BEGIN / 1000)
        self.topics = {"T": TOPIC}
        self.recurring = Recurring(self.topics.get, self.clock)
        self.waiting = self.sent(**properties)

    def sent(self, **properties: str) -> RecordDraft:
        given = {PropertyName.CRON: "* * * * *", PropertyName.UNIQUE_ID: "ID"} | properties
        draft = RecordDraft(b"T", b"body", b"", 1, 5, b"host", b"host")
        begin_series(given, draft, int(self.clock.now * 1000))
        return timer_draft(draft, given, int(given[PropertyName.TIMER_DELIVER_MS]))

    def turn(self, waiting: RecordDraft | None = None) -> list[RecordDraft]:
        """Deliver the pending timer."""
        waiting = waiting or self.waiting
        properties = properties_of(waiting)
        draft = waiting._replace(topic=b"T", queue_id=int(properties[PropertyName.REAL_QUEUE_ID]))
        self.clock.now = max(self.clock.now, due_of(waiting) / 1000)
        found = self.recurring.continued(draft, properties)
        assert found is not None
        return list(found)


def properties_of(draft: RecordDraft) -> dict[str, str]:
    return decode_properties(bytes(draft.properties).decode())


def due_of(draft: RecordDraft) -> int:
    return int(properties_of(draft)[PropertyName.TIMER_OUT_MS])


def test_a_turn_is_a_plain_copy_and_the_next_wait() -> None:
    series = Series(colour="red")
    copy, waiting = series.turn()

    assert due_of(series.waiting) == BEGIN + MINUTE
    assert due_of(waiting) == BEGIN + 2 * MINUTE
    assert waiting.topic == b"rmq_sys_wheel_timer"
    assert properties_of(waiting)[PropertyName.UNIQUE_ID] == "ID"
    assert (copy.topic, copy.queue_id, copy.body) == (b"T", 1, b"body")
    assert properties_of(copy) == {
        "colour": "red",
        PropertyName.UNIQUE_ID: f"ID.{BEGIN + MINUTE}",
        PropertyName.SERIES_ID: "ID",
        PropertyName.TIMER_OUT_MS: str(BEGIN + MINUTE),
    }


def test_what_was_missed_comes_once() -> None:
    series = Series()
    series.clock.advance(10 * 60 + 5)
    copy, waiting = series.turn()

    assert properties_of(copy)[PropertyName.UNIQUE_ID] == f"ID.{BEGIN + MINUTE}"
    assert due_of(waiting) == BEGIN + 11 * MINUTE


def test_a_clock_that_is_put_back_brings_no_turn_twice() -> None:
    series = Series()
    _, waiting = series.turn()
    series.clock.now -= 3600
    _, again = (
        series.recurring.continued(waiting._replace(topic=b"T", queue_id=1), properties_of(waiting))
        or ()
    )

    assert due_of(again) == BEGIN + 3 * MINUTE


def test_a_turn_that_the_store_took_back_is_taken_again() -> None:
    series = Series()

    assert [due_of(each) for each in series.turn()] == [due_of(each) for each in series.turn()]


def test_two_waits_of_one_series_become_one() -> None:
    """Duplicates left by a crash or by a retried send."""
    series = Series()
    double = series.sent()
    _, waiting = series.turn()

    assert series.turn(double) == []
    assert len(series.turn(waiting)) == 2
    (copy,) = series.turn(double)
    assert copy.topic == b"T"


def test_a_series_ends_when_it_expires() -> None:
    series = Series(**{PropertyName.EXPIRES_AT: str(BEGIN + 2 * MINUTE)})
    (copy,) = series.turn()

    assert copy.topic == b"T"


def test_a_series_ends_with_its_topic() -> None:
    series = Series()
    series.topics.clear()

    assert series.turn() == []


def test_a_queue_that_the_topic_has_no_more_is_another_one() -> None:
    series = Series()
    series.topics["T"] = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
    copy, waiting = series.turn()

    assert copy.queue_id == 0
    assert properties_of(waiting)[PropertyName.REAL_QUEUE_ID] == "0"


def test_messages_that_do_not_recur_are_left_alone() -> None:
    draft = RecordDraft(b"T", b"body", b"", 1, 5, b"host", b"host")

    assert Recurring({"T": TOPIC}.get).continued(draft, {"colour": "red"}) is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({PropertyName.CRON: "now and then"}, "cron.*now and then"),
        ({PropertyName.CRON_ZONE: "Nowhere"}, "cron_zone.*Nowhere"),
        ({PropertyName.DELAY_LEVEL: "3"}, "DELAY"),
        ({PropertyName.TIMER_DELAY_MS: "3"}, "TIMER_DELAY_MS"),
        ({PropertyName.DEDUP_KEY: "key"}, "DEDUP_KEY"),
        ({PropertyName.TRANSACTION_PREPARED: "true"}, "TRAN_MSG"),
        ({PropertyName.EXPIRES_AT: str(BEGIN + 1)}, "expires before its first occurrence"),
    ],
)
def test_what_cannot_recur_is_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(MessageIllegal, match=named):
        Series(**given)


def test_no_message_of_a_batch_recurs() -> None:
    properties = f"{PropertyName.CRON}\x01* * * * *\x02".encode()
    draft = RecordDraft(b"T", b"body", properties, 1, 5, b"host", b"host")

    check_batch(b"none of ours", [draft])
    with pytest.raises(MessageIllegal, match=PropertyName.CRON):
        check_batch(b"...BOLIDE_CRON...", [draft])
