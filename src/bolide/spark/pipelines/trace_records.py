"""The records of a trace topic (`protocol.trace`) as rows."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from msgspec import structs

from bolide.arrow.schema import TIMESTAMP
from bolide.protocol.trace import Unreadable, read_records

SCHEMA: Final = pa.schema([
    pa.field("kind", pa.string()),
    pa.field("time", TIMESTAMP),
    pa.field("region", pa.string()),
    pa.field("group_name", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("message_id", pa.string()),
    pa.field("offset_message_id", pa.string()),
    pa.field("tags", pa.string()),
    pa.field("keys", pa.string()),
    pa.field("store_host", pa.string()),
    pa.field("client_host", pa.string()),
    pa.field("body_length", pa.int32()),
    pa.field("cost_ms", pa.int64()),
    pa.field("success", pa.bool_()),
    pa.field("message_type", pa.string()),
    pa.field("request_id", pa.string()),
    pa.field("retry_times", pa.int32()),
    pa.field("outcome", pa.string()),
    pa.field("transaction_id", pa.string()),
    pa.field("transaction_state", pa.string()),
    pa.field("from_check", pa.bool_()),
    pa.field("problem", pa.string()),
    pa.field("traced", TIMESTAMP),
    pa.field("broker", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("number", pa.int32()),
])  # fmt: skip
"""One row a record. A row with a `problem` says what could not be read, and nothing else;
`traced` is when the message that held the record was stored, and the last four are its place."""

PLACE: Final = ("broker", "queue_id", "queue_offset", "number")
"""No two records have the same, so one that is read twice is known by it."""

Row = dict[str, Any]


def record_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From messages (`body`, `store_timestamp`, and where they are) to the records in them."""
    for batch in batches:
        rows = [row for message in batch.to_pylist() for row in _rows_of(message)]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _rows_of(message: Row) -> Iterator[Row]:
    place = {name: message[name] for name in PLACE[:-1]} | {"traced": message["store_timestamp"]}
    records = read_records(message["body"].decode("utf-8", "replace"))
    for number, record in enumerate(records):
        row = structs.asdict(record)
        if not isinstance(record, Unreadable):
            row["group_name"] = row.pop("group")
            row["time"] = None if record.time_ms is None else record.time_ms * 1000  # microseconds
            del row["time_ms"]
        yield row | place | {"number": number}
