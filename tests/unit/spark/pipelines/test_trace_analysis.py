"""Trace messages as rows."""

from datetime import UTC, datetime

import pyarrow as pa

from bolide.spark.pipelines.trace_analysis import SCHEMA, record_batches


def text(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


PUB = ("Pub", 1700000000123, "DefaultRegion", "PG", "orders", "7F00000101", "paid", "k1 k2",
       "127.0.0.1:10911", 128, 7, 0)  # fmt: skip


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
    assert (rows[0]["group_name"], rows[0]["cost_ms"], rows[0]["problem"]) == ("PG", 7, None)
    assert rows[2]["problem"].startswith("no kind of record")
