from collections import deque

from bolide.client.tracing.sender import MAX_BODY, MAX_KEYS, TraceBatch
from bolide.protocol.trace import TraceRecord, read_records


def record(message_id: str, keys: str | None = None) -> TraceRecord:
    return TraceRecord(kind="Recall", time_ms=1, message_id=message_id, keys=keys, success=True)


def test_a_batch_takes_the_first_records_up_to_a_number() -> None:
    waiting = deque([record("a", "k1 k2"), record("b", "k2"), record("a")])
    batch = TraceBatch.pop_from(waiting, 2)
    message = batch.message("Traces")
    assert (batch.count, len(waiting)) == (2, 1)
    assert message.topic == "Traces"
    assert message.keys == ("a", "k1", "k2", "b")
    told = list(read_records(message.body.decode()))
    assert [each.message_id for each in told if isinstance(each, TraceRecord)] == ["a", "b"]


def test_keys_that_fill_a_message_leave_the_rest_for_the_next() -> None:
    waiting = deque(record(str(number), "ä" * (MAX_KEYS // 8)) for number in range(3))
    other = deque(record(str(number), f"{number}" * (MAX_KEYS // 3)) for number in range(3))
    assert TraceBatch.pop_from(waiting, 100).count == 3  # all the same word
    assert [TraceBatch.pop_from(other, 100).count for _ in range(2)] == [2, 1]
    assert not waiting
    assert not other


def test_a_message_that_is_full_takes_no_more() -> None:
    waiting = deque(TraceRecord(kind="Recall", group="g" * (MAX_BODY // 2)) for _ in range(3))
    assert [TraceBatch.pop_from(waiting, 100).count for _ in range(3)] == [1, 1, 1]


def test_a_record_with_too_many_keys_is_found_by_its_id_alone() -> None:
    keys = " ".join(str(number) for number in range(MAX_KEYS))
    message = TraceBatch.pop_from(deque([record("id", keys)]), 100).message("Traces")
    assert message.keys == ("id",)
