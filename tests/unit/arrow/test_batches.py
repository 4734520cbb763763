import logging

import pyarrow as pa
import pytest

from bolide.arrow.batches import BatchBuilder
from bolide.arrow.schema import message_schema
from bolide.kernel.column_buffers import Wanted
from bolide.protocol.record import encode_blank
from bolide.protocol.record_errors import BadRecord
from tests.unit.kernel.drafts import DRAFT, ENCODED, log_of, record


def all_of(batches: BatchBuilder, *bodies: bytes, offset_delta: int = 0) -> list[pa.RecordBatch]:
    found = [batch for body in bodies for batch in batches.add(body, offset_delta=offset_delta)]
    return [*found, *batches.flush()]


def test_a_batch_has_the_columns_of_a_message() -> None:
    (batch,) = all_of(BatchBuilder(broker="broker-a"), ENCODED)
    batch.validate(full=True)
    assert batch.schema.equals(message_schema())
    (row,) = batch.to_pylist()
    assert row["broker"] == "broker-a"
    assert row["born_timestamp"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert row["store_timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert row["properties"] == [("TAGS", "TagA"), ("KEYS", "k1 k2")]
    assert (row["topic"], row["body"], row["keys"]) == ("TopicTest", b"hello", "k1 k2")


def test_text_that_is_no_utf_8_is_sound_in_arrow() -> None:
    data = record(
        DRAFT._replace(topic=b"a\xff", properties=b"TAGS\x01\xfe\x02\xed\xa0\x80\x01x"), 0, 0
    )
    (batch,) = all_of(BatchBuilder(broker=None), data)
    batch.validate(full=True)
    (row,) = batch.to_pylist()
    assert (row["topic"], row["tags"], row["broker"]) == ("a\ufffd", "\ufffd", None)


def test_several_replies_make_one_batch_and_large_ones_several() -> None:
    bodies = [log_of((DRAFT, number + part * 10) for number in range(10)) for part in range(3)]
    found = all_of(BatchBuilder(broker="b", max_rows=12), *bodies)
    assert [batch.num_rows for batch in found] == [12, 12, 6]
    offsets = pa.Table.from_batches(found)["queue_offset"].to_pylist()
    assert offsets == [*range(30)]


def test_a_batch_is_full_by_the_bytes_of_its_bodies_and_properties() -> None:
    size = len(DRAFT.body) + len(DRAFT.properties)
    log = log_of((DRAFT, n) for n in range(5))
    found = all_of(BatchBuilder(broker="b", max_bytes=size + 1), log)
    assert [batch.num_rows for batch in found] == [2, 2, 1]


def test_what_was_not_asked_for_is_passed_over() -> None:
    batches = BatchBuilder(broker="b", wanted=Wanted(first_offset=12, end_offset=14))
    (batch,) = all_of(batches, log_of((DRAFT, n) for n in range(8)), offset_delta=10)
    assert batch["queue_offset"].to_pylist() == [12, 13]
    assert all_of(batches, log_of([(DRAFT, 9)])) == []


def test_the_topic_can_be_given() -> None:
    (batch,) = all_of(BatchBuilder(broker="b", topic="mine"), ENCODED)
    assert batch.schema.equals(message_schema())
    assert batch["topic"].to_pylist() == ["mine"]


def test_properties_can_be_left_out() -> None:
    (batch,) = all_of(BatchBuilder(broker="b", include_properties=False), ENCODED)
    assert batch.schema.equals(message_schema(include_properties=False))


def test_json_bodies_become_a_column() -> None:
    kind = pa.struct([pa.field("id", pa.int64())])
    log = log_of([(DRAFT._replace(body=b'{"id": 5}'), 0), (DRAFT, 1)])
    (batch,) = all_of(BatchBuilder(broker="b", value=kind), log)
    assert batch.schema.equals(message_schema(value=kind))
    assert batch["value"].to_pylist() == [{"id": 5}, None]


@pytest.mark.parametrize("behind", [encode_blank(8), bytes(8), b"x", ENCODED[:-1]])
def test_what_is_no_record_in_a_reply_is_an_error(behind: bytes) -> None:
    batches = BatchBuilder(broker="b")
    with pytest.raises(BadRecord) as caught:
        all_of(batches, ENCODED + behind)
    assert caught.value.position == len(ENCODED)


def test_bodies_that_stay_compressed_are_told_once_a_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    squeezed = DRAFT._replace(sys_flag=1)
    with caplog.at_level(logging.WARNING):
        (batch,) = all_of(BatchBuilder(broker="b"), log_of((squeezed, n) for n in range(3)))
    assert batch["body"].to_pylist() == [b"hello"] * 3
    assert [line.getMessage()[:8] for line in caplog.records] == ["3 bodies"]


def test_a_batch_outlives_its_maker_and_is_as_arrow_writes_it() -> None:
    (batch,) = all_of(BatchBuilder(broker="b"), log_of((DRAFT, n) for n in range(100)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch.slice(3, 50))
    read = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert read.to_pylist() == batch.slice(3, 50).to_pylist()
