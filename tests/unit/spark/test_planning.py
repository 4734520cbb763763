import logging

import pytest

from bolide.arrow.errors import DataLost
from bolide.arrow.offsets import Bounds, QueueRange
from bolide.model.message_queue import MessageQueue
from bolide.spark.planning import AbsenceTracker, QueuesGone, advance, ranges_between
from tests.support.clock import FakeClock

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))


def test_a_batch_goes_to_the_end_of_every_queue() -> None:
    assert advance({A: 3, B: 0}, {A: Bounds(0, 9), B: Bounds(0, 4)}) == {A: 9, B: 4}


def test_without_anything_new_the_end_is_the_start() -> None:
    assert advance({A: 9}, {A: Bounds(2, 9)}, max_rows=1) == {A: 9}


def test_a_limit_is_shared_by_backlog() -> None:
    bounds = {A: Bounds(0, 90), B: Bounds(0, 10), C: Bounds(0, 7)}

    assert advance({A: 0, B: 0, C: 7}, bounds, max_rows=10) == {A: 9, B: 1, C: 7}


def test_a_queue_that_nobody_serves_keeps_its_position() -> None:
    assert advance({A: 3, B: 5}, {A: Bounds(0, 9)}) == {A: 9, B: 5}


def test_a_new_queue_is_read_from_its_beginning() -> None:
    end = advance({A: 3}, {A: Bounds(0, 3), B: Bounds(0, 4)})

    assert end == {A: 3, B: 4}
    assert ranges_between({A: 3}, end) == [QueueRange(B, 0, 4)]


def test_a_new_queue_whose_beginning_is_gone_is_data_loss() -> None:
    with pytest.raises(DataLost, match="offset 0 was wanted"):
        advance({}, {B: Bounds(5, 9)})


def test_a_target_is_never_passed_and_queues_that_came_later_are_left_alone() -> None:
    bounds = {A: Bounds(0, 90), B: Bounds(0, 4)}

    assert advance({A: 3}, bounds, target={A: 20}) == {A: 20}
    assert advance({A: 20}, bounds, target={A: 20}) == {A: 20}


def test_a_start_behind_the_target_is_not_taken_back() -> None:
    """`latest` is looked up after the target, and there may be more by then."""
    assert advance({A: 25}, {A: Bounds(0, 90)}, target={A: 20}) == {A: 25}


def test_deleted_messages_fail_a_batch() -> None:
    with pytest.raises(DataLost, match=r"offset 3 was wanted.*5 up to 9"):
        advance({A: 3}, {A: Bounds(5, 9)})


def test_where_loss_is_allowed_a_batch_counts_from_what_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    end = advance({A: 3}, {A: Bounds(50, 90)}, max_rows=10, fail_on_data_loss=False)

    assert end == {A: 60}
    assert "about 47 messages are gone, continuing at 50" in caplog.text


def test_a_queue_that_was_made_anew_is_data_loss() -> None:
    with pytest.raises(DataLost, match="offset 100 was wanted"):
        advance({A: 100}, {A: Bounds(0, 9)})


def test_where_loss_is_allowed_a_queue_that_was_made_anew_is_read_from_its_beginning() -> None:
    end = advance({A: 100}, {A: Bounds(0, 9)}, fail_on_data_loss=False)

    assert end == {A: 9}
    assert ranges_between({A: 100}, end) == [QueueRange(A, 0, 9)]


def test_ranges_come_from_the_two_positions_alone_and_in_order() -> None:
    start, end = {B: 5, A: 3}, {C: 2, B: 9, A: 3}

    assert ranges_between(start, end) == [QueueRange(B, 5, 9), QueueRange(C, 0, 2)]


# Absent queues


def test_queues_that_are_away_are_waited_for_until_patience_ends() -> None:
    clock = FakeClock()
    absence = AbsenceTracker(60.0, fail=True, now=clock)

    assert absence.should_wait([A, B])
    clock.advance(40)
    assert absence.should_wait([A])
    clock.advance(15)
    assert absence.should_wait([A, B])
    clock.advance(5)
    with pytest.raises(QueuesGone, match=r"60 s: orders/broker-a/0\. Start") as gone:
        absence.should_wait([A, B])
    assert gone.value.queues == (A,)


def test_where_loss_is_allowed_nobody_waits_longer_than_that() -> None:
    clock = FakeClock()
    absence = AbsenceTracker(60.0, fail=False, now=clock)

    assert absence.should_wait([A])
    clock.advance(60)
    assert not absence.should_wait([A])
    assert not absence.should_wait([])


def test_an_absence_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    absence = AbsenceTracker(60.0, fail=True)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            absence.should_wait([A])

    assert [record.message for record in caplog.records] == [
        "no broker serves orders/broker-a/0 at the moment"
    ]
