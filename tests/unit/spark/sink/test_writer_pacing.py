import pyarrow as pa

from bolide.spark.sink.writer import paced
from tests.support.clock import FakeClock


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [*range(rows)]})


def test_rows_wait_until_those_before_them_have_had_their_time() -> None:
    clock = FakeClock()
    began = clock()
    parts = paced([batch(5), batch(3)], 20.0, clock, clock.advance)
    passed = [(clock() - began, part.num_rows) for part in parts]
    assert [rows for _, rows in passed] == [2, 2, 1, 2, 1]
    assert [round(at, 6) for at, _ in passed] == [0.0, 0.1, 0.2, 0.25, 0.35]


def test_a_rate_below_one_row_a_second_is_kept() -> None:
    clock = FakeClock()
    began = clock()
    parts = paced([batch(3)], 0.5, clock, clock.advance)
    assert [clock() - began for _ in parts] == [0.0, 2.0, 4.0]


def test_rows_that_come_late_are_not_held_up_further() -> None:
    clock = FakeClock()
    waits: list[float] = []
    for _ in paced([batch(1), batch(1)], 10.0, clock, waits.append):
        clock.advance(1.0)
    assert waits == []


def test_without_a_rate_batches_pass_as_they_are() -> None:
    batches = [batch(5), batch(3)]
    assert [*paced(batches, None)] == batches
