"""Appending, compaction and retention of an archive, and its seam with the log."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bolide.arrow.offsets import Bounds, QueueRange
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.errors import ArchiveGap, SeamGap
from bolide.spark.archive.maintenance import drop_before, find_compaction_groups
from bolide.spark.archive.manifest import DataFile, QueueSpan, State
from bolide.spark.archive.seam import log_ranges_before, log_start, refuse_gap, refuse_shorter_log
from bolide.spark.archive.table import Settings
from bolide.spark.archive.writing import refuse_gaps
from tests.unit.spark.archive.made import plain_rows, stage, table_in

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


def data_file(
    *spans: QueueSpan, size: int = 10, hour: str = "2026-07-01-05", name: str = "x"
) -> DataFile:
    return DataFile(f"topic=orders/hour={hour}/{name}", "orders", hour, size, spans)


def span(first: int, last: int, rows: int | None = None) -> QueueSpan:
    return QueueSpan("broker-a", 0, first, last, last - first + 1 if rows is None else rows)


# Append


@pytest.mark.parametrize(
    "spans",
    [[span(5, 9)], [span(8, 9), span(5, 7)], [span(5, 9, rows=3), span(6, 8, rows=2)]],
)
def test_rows_that_go_on_without_a_hole_are_taken(spans: list[QueueSpan]) -> None:
    state = State(begin={QUEUE: 2}, covered={QUEUE: 5})
    refuse_gaps([data_file(each) for each in spans], state)


@pytest.mark.parametrize(
    ("state", "spans", "message"),
    [
        (State(covered={QUEUE: 5}), [span(7, 9)], "2 messages are missing between offset 5"),
        (State(), [span(1, 9)], "1 messages are missing between offset 0"),
        (State(begin={QUEUE: 4}), [span(4, 9, rows=5)], "1 messages are missing between offset 4"),
        (State(), [span(0, 4), span(4, 9)], "a batch has 1 rows more"),
    ],
)
def test_holes_are_refused(state: State, spans: list[QueueSpan], message: str) -> None:
    with pytest.raises(ArchiveGap, match=message):
        refuse_gaps([data_file(each) for each in spans], state)


# Compaction


def test_hours_with_enough_small_files_are_merged() -> None:
    files = [
        data_file(size=10, name="a"),
        data_file(size=60, name="b"),  # over half of what a file should have
        data_file(size=20, name="c"),
        data_file(size=10, hour="2026-07-01-06", name="a"),
        data_file(size=10, hour="2026-07-01-07", name="a"),
        data_file(size=10, hour="2026-07-01-07", name="b"),
    ]
    (group,) = find_compaction_groups(files, before_hour="2026-07-01-07", target=100)
    assert (group.hour, group.size, len(group.files)) == ("2026-07-01-05", 30, 2)
    assert len(find_compaction_groups(files, target=100)) == 2
    assert find_compaction_groups(files, least=3, target=100) == []


# Retention


def test_only_hours_that_are_over_are_taken_out(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as writer:
        for number, hour in enumerate(["2026-07-01-04", "2026-07-01-05", "2026-07-01-06"]):
            writer.commit("append", [stage(writer, number, number, hour=hour)])
        moment = datetime(2026, 7, 1, 5, 59, tzinfo=UTC)
        assert drop_before(writer, moment) == 1
        assert drop_before(writer, moment) == 0
    assert plain_rows(table.files) == ["orders 0 1 1", "orders 0 2 2"]
    assert table.state().dropped == {QUEUE: 1}


# The seam


def test_the_log_goes_on_where_the_archive_ends() -> None:
    state = State(covered={QUEUE: 10})
    bounds = {QUEUE: Bounds(3, 20), OTHER: Bounds(7, 9)}
    refuse_gap(state, bounds)
    assert log_start(state, bounds) == {QUEUE: 10, OTHER: 7}


def test_what_the_log_has_from_before_the_archive_is_read_too() -> None:
    began_late = State(begin={QUEUE: 10, OTHER: 4})  # with nothing archived yet
    bounds = {QUEUE: Bounds(3, 20), OTHER: Bounds(5, 9)}
    assert log_start(began_late, {QUEUE: bounds[QUEUE]}) == {QUEUE: 10}
    assert log_ranges_before(began_late, bounds) == [
        QueueRange(QUEUE, 3, 10),
        QueueRange(OTHER, 5, 5),
    ]

    file = data_file(span(12, 14))  # 10 and 11 were deleted as too old
    has_rows = State(files={file.path: file}, begin={QUEUE: 10}, covered={QUEUE: 15})
    assert log_ranges_before(has_rows, {QUEUE: bounds[QUEUE]}) == [QueueRange(QUEUE, 3, 12)]


@pytest.mark.parametrize("state", [State(covered={QUEUE: 10}), State(begin={QUEUE: 10})])
def test_a_hole_at_the_seam_is_told(state: State) -> None:
    bounds = {QUEUE: Bounds(15, 20)}
    refuse_shorter_log(state, bounds)
    with pytest.raises(SeamGap, match="5 messages are in neither"):
        refuse_gap(state, bounds)


@pytest.mark.parametrize("state", [State(covered={QUEUE: 10}), State(begin={QUEUE: 10})])
def test_a_log_that_ends_before_the_archive_is_another_one(state: State) -> None:
    with pytest.raises(SeamGap, match="was recreated"):
        refuse_shorter_log(state, {QUEUE: Bounds(0, 4)})
