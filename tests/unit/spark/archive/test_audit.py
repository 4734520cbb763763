"""Comparison of an archive with the log, and the faults it reports."""

import pytest

from bolide.arrow.offsets import Bounds, QueueRange
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.audit import (
    Fault,
    HourComparison,
    RowCounts,
    compare,
    find_faults,
    find_hour_starts,
    hours_between,
    log_counts,
    ranges_still_in_log,
    start_ms,
)
from bolide.spark.archive.manifest import State
from tests.support.aio import on_loop

A, B = (MessageQueue("orders", "broker-a", number) for number in (0, 1))
FIRST, SECOND, THIRD = "2026-07-01-22", "2026-07-01-23", "2026-07-02-00"


def test_only_what_both_can_have_is_compared() -> None:
    state = State(begin={A: 5}, covered={A: 50, B: 10}, dropped={A: 20})
    bounds = {A: Bounds(30, 80), B: Bounds(0, 8)}
    assert ranges_still_in_log(state, bounds) == {A: QueueRange(A, 30, 50), B: QueueRange(B, 0, 8)}
    assert ranges_still_in_log(state, {B: Bounds(10, 90)}) == {B: QueueRange(B, 10, 10)}


def test_hours_have_no_hole() -> None:
    assert hours_between(FIRST, THIRD) == [FIRST, SECOND, THIRD]
    assert start_ms(THIRD) - start_ms(FIRST) == 2 * 3_600_000


def test_messages_of_the_log_are_counted_within_the_common_part() -> None:
    counts = log_counts(QueueRange(A, 30, 50), [FIRST, SECOND, THIRD], [20, 45])
    assert counts == {FIRST: 0, SECOND: 15, THIRD: 5}


@on_loop
async def test_hours_without_messages_are_not_asked_for() -> None:
    asked = []

    async def search(mark: int) -> int:
        asked.append(mark)
        return 0 if mark < 700 else 9

    hour_starts = await find_hour_starts(range(1000), search)
    assert hour_starts == [0] * 700 + [9] * 300
    assert len(asked) < 15
    assert await find_hour_starts([], search) == []
    assert await find_hour_starts([3], search) == [0]


def test_equal_counts_are_no_difference() -> None:
    table = {
        (A, FIRST): RowCounts(10, 10, 0),
        (A, SECOND): RowCounts(5, 5, 5),
        (B, FIRST): RowCounts(3, 3, 0),
    }
    log = {(A, FIRST): 0, (A, SECOND): 5}
    lines = compare(table, log, [A])
    assert lines == [
        HourComparison(A, FIRST, None, 0, 10),  # older than the log
        HourComparison(A, SECOND, 5, 5, 5),
        HourComparison(B, FIRST, None, 0, 3),  # the queue is gone
    ]
    assert find_faults(State(covered={A: 15, B: 3}), table, lines) == []


@pytest.mark.parametrize(
    ("rows", "log", "texts"),
    [
        (RowCounts(4, 4, 4), 5, ["1 of the offsets 0 to 4 are missing", "hour"]),
        (RowCounts(6, 5, 6), 5, ["1 rows are there more than once", "hour"]),
        (RowCounts(5, 5, 5), 4, ["hour"]),
    ],
)
def test_what_differs_is_told(rows: RowCounts, log: int, texts: list[str]) -> None:
    table = {(A, FIRST): rows}
    faults = find_faults(State(covered={A: 5}), table, compare(table, {(A, FIRST): log}, [A]))
    for fault, text in zip(faults, texts, strict=True):
        assert fault.place == "orders/broker-a/0"
        assert text in fault.text


def test_an_hour_that_the_table_lacks_is_told() -> None:
    lines = compare({}, {(A, FIRST): 7, (A, SECOND): 0}, [A])
    assert find_faults(State(covered={}), {}, lines) == [
        Fault("orders/broker-a/0", f"hour {FIRST}: the log has 7 messages, the table 0")
    ]
