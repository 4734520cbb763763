"""Golden texts as `TraceDataEncoder` of several releases writes them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from bolide.spark.pipelines.trace_records import SCHEMA, read_records, record_batches


def text(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


PUB = ("Pub", 1700000000123, "DefaultRegion", "PG", "orders", "7F00000101", "paid", "k1 k2",
       "127.0.0.1:10911", 128, 7, 0)  # fmt: skip


def test_a_send_as_4_4_to_5_x_write_it_has_all_its_fields() -> None:
    [row] = read_records(text(*PUB, "7F0000010000", "true"))
    assert row == {
        "kind": "Pub",
        "time": 1700000000123000,
        "region": "DefaultRegion",
        "group_name": "PG",
        "topic": "orders",
        "message_id": "7F00000101",
        "tags": "paid",
        "keys": "k1 k2",
        "store_host": "127.0.0.1:10911",
        "body_length": 128,
        "cost_ms": 7,
        "message_type": "Normal",
        "offset_message_id": "7F0000010000",
        "success": True,
    }


def test_a_send_may_lack_the_offset_id_or_name_its_client() -> None:
    short, longest = read_records(text(*PUB, "false") + text(*PUB, "id", "false", "10.0.0.9"))
    assert short["success"] is longest["success"] is False
    assert "offset_message_id" not in short
    assert (longest["offset_message_id"], longest["client_host"]) == ("id", "10.0.0.9")


def test_what_java_writes_as_null_is_none() -> None:
    fields = [*PUB[:6], "null", "null", *PUB[8:]]
    [row] = read_records(text(*fields, "null", "true"))
    assert row["tags"] is row["keys"] is row["offset_message_id"] is None


def test_a_consumption_is_told_before_and_after() -> None:
    before, after, old = read_records(
        text("SubBefore", 1700000000500, "R", "CG", "REQ", "7F00000101", 2, "k1")
        + text("SubAfter", "REQ", "7F00000101", 15, "false", "k1", 2, 1700000000515, "CG")
        + text("SubAfter", "REQ", "7F00000101", 15, "true", "k1", 0)
    )
    assert (before["request_id"], before["retry_times"], before["group_name"]) == ("REQ", 2, "CG")
    assert (after["outcome"], after["success"], after["cost_ms"]) == ("EXCEPTION", False, 15)
    assert (after["time"], after["group_name"]) == (1700000000515000, "CG")
    assert old["outcome"] == "SUCCESS"
    assert "time" not in old


def test_what_4_9_traces_for_the_cloud_runs_into_the_next_record() -> None:
    cloud = "\x01".join(["SubAfter", "REQ", "A", "3", "true", "null", "0", ""])
    rows = read_records(cloud + cloud.replace("A\x01", "B\x01") + text(*PUB, "id", "true") + cloud)
    assert [row["message_id"] for row in rows] == ["A", "B", "7F00000101", "A"]


def test_the_end_of_a_transaction_and_a_recall_are_read() -> None:
    end, recall = read_records(
        text("EndTransaction", 1, "R", "PG", "orders", "ID", "null", "k", "h:1", 2, "TX",
             "ROLLBACK_MESSAGE", "true")
        + text("Recall", 1, "R", "PG", "orders", "ID", "true")
    )  # fmt: skip
    assert (end["transaction_id"], end["transaction_state"]) == ("TX", "ROLLBACK_MESSAGE")
    assert (end["message_type"], end["from_check"]) == ("TransCommit", True)
    assert recall["success"] is True


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (text("Pub", 1, "R"), "Pub has 2 fields of at least 11"),
        (text("Pub", "soon", *PUB[2:]), "time of Pub is 'soon'"),
        (text(*PUB[:-1], 9), "message_type of Pub is '9'"),
        (text(*PUB[:-1], -1), "message_type of Pub is '-1'"),
        (text("Sub", 1), "no kind of record is called 'Sub'"),
    ],
)
def test_a_bad_record_says_why_and_harms_no_other(record: str, problem: str) -> None:
    bad, good = read_records(record + text(*PUB, "id", "true"))
    assert bad == {"problem": problem}
    assert good["topic"] == "orders"


def test_batches_of_messages_become_batches_of_records_with_their_places() -> None:
    stored = datetime(2024, 1, 1, tzinfo=UTC)
    bodies = [text(*PUB, "id", "true").encode() * 2, b"\xff\xfe"]
    messages = pa.RecordBatch.from_pylist(
        [
            {
                "body": body,
                "store_timestamp": stored,
                "broker": "broker-a",
                "queue_id": 1,
                "queue_offset": offset,
            }
            for offset, body in enumerate(bodies)
        ]
    )
    [batch] = record_batches([messages])
    rows = batch.to_pylist()
    assert batch.schema == SCHEMA
    assert [(row["queue_offset"], row["number"]) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    assert {row["traced"] for row in rows} == {stored}
    assert rows[0]["time"] == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert rows[2]["problem"].startswith("no kind of record")
