"""What traced clients tell of their messages (`TraceDataEncoder`), as rows.

The body of a message on the trace topic is text: records, each ended by character 2, of fields
with character 1 between. The first field says of which kind a record is; clients of different
ages write more or fewer at the end:

    Pub             time region group topic msgId tags keys storeHost bodyLength cost msgType
                    then success | offsetMsgId success | offsetMsgId success clientHost
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId cost success keys [contextCode [time group]]
    EndTransaction  time region group topic msgId tags keys storeHost msgType
                    transactionId state fromCheck
    Recall          time region group topic msgId success

Times are milliseconds since 1970 by the client's clock, costs milliseconds. Java writes `null`
for what is absent. 4.9 ends a SubAfter meant for the cloud by character 1, so the next begins in
the same record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from bolide.arrow.schema import TIMESTAMP

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"

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

MESSAGE_TYPES: Final = ("Normal", "TransHalf", "TransCommit", "Delay", "Order")
OUTCOMES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")

_SENT = ("time", "region", "group_name", "topic", "message_id", "tags", "keys", "store_host")
_PUB = (*_SENT, "body_length", "cost_ms", "message_type")
_SUB_AFTER = (
    "request_id",
    "message_id",
    "cost_ms",
    "success",
    "keys",
    "outcome",
    "time",
    "group_name",
)
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Pub": (*_PUB, "offset_message_id", "success", "client_host"),
    "SubBefore": (*_SENT[:3], "request_id", "message_id", "retry_times", "keys"),
    "SubAfter": _SUB_AFTER,
    "EndTransaction": (
        *_SENT, "message_type", "transaction_id", "transaction_state", "from_check",
    ),
    "Recall": ("time", "region", "group_name", "topic", "message_id", "success"),
}  # fmt: skip
_NEEDED = {"Pub": 11, "SubBefore": 6, "SubAfter": 4, "EndTransaction": 12, "Recall": 6}
_CLOUD_END = 7  # fields of a SubAfter for the cloud, its kind among them
_BEGINNINGS = [[kind] for kind in _FIELDS]
_LONGEST_EXCERPT = 80

Row = dict[str, Any]


class UnreadableRecord(ValueError):
    """A record is not as any client writes it."""


def read_records(text: str) -> Iterator[Row]:
    """The records of one trace message; what cannot be read becomes a row with a `problem`."""
    for record in text.split(RECORD_END):
        for fields in _separated(record.split(FIELD_END)):
            if fields != [""]:
                yield _row_or_problem(fields)


def record_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From messages (`body`, `store_timestamp`, and where they are) to the records in them."""
    for batch in batches:
        rows = [row for message in batch.to_pylist() for row in _rows_of(message)]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _rows_of(message: Row) -> Iterator[Row]:
    place = {name: message[name] for name in PLACE[:-1]} | {"traced": message["store_timestamp"]}
    for number, row in enumerate(read_records(message["body"].decode("utf-8", "replace"))):
        yield row | place | {"number": number}


def _separated(fields: list[str]) -> Iterator[list[str]]:
    """Cut where another record begins though nothing ended the one before it."""
    while fields[0] == "SubAfter" and fields[_CLOUD_END : _CLOUD_END + 1] in _BEGINNINGS:
        yield fields[:_CLOUD_END]
        fields = fields[_CLOUD_END:]
    yield fields


def _row_or_problem(fields: list[str]) -> Row:
    try:
        return _row(fields)
    except UnreadableRecord as exc:
        return {"problem": str(exc)}


def _row(fields: list[str]) -> Row:
    kind, *values = fields
    names = _names(kind, values)
    row: Row = {"kind": kind}
    for name, value in zip(names, values, strict=False):
        try:
            row[name] = _READERS.get(name, _text)(value)
        except (ValueError, IndexError) as exc:
            raise UnreadableRecord(f"{name} of {kind} is {value[:_LONGEST_EXCERPT]!r}") from exc
    if kind in {"Pub", "SubAfter", "Recall"}:
        row.setdefault("success", True)  # what Java's reader takes for granted
    return row


def _names(kind: str, values: list[str]) -> tuple[str, ...]:
    names = _FIELDS.get(kind)
    if names is None:
        raise UnreadableRecord(f"no kind of record is called {kind[:_LONGEST_EXCERPT]!r}")
    if len(values) < _NEEDED[kind]:
        raise UnreadableRecord(f"{kind} has {len(values)} fields of at least {_NEEDED[kind]}")
    if kind == "Pub" and len(values) == len(_PUB) + 1:
        return (*_PUB, "success")
    if kind == "SubAfter" and len(values) == len(_SUB_AFTER) - 1:
        return _SUB_AFTER[:-2]  # for the cloud: a separator, and nothing behind it
    return names


def _text(value: str) -> str | None:
    return None if value in {"", "null"} else value


def _boolean(value: str) -> bool:
    return value.lower() == "true"


def _microseconds(value: str) -> int:
    return int(value) * 1000


def _named(names: tuple[str, ...]) -> Callable[[str], str]:
    def read(value: str) -> str:
        number = int(value)
        if number < 0:
            raise IndexError(number)
        return names[number]

    return read


_READERS: Mapping[str, Callable[[str], Any]] = {
    "time": _microseconds,
    "body_length": int,
    "cost_ms": int,
    "retry_times": int,
    "success": _boolean,
    "from_check": _boolean,
    "message_type": _named(MESSAGE_TYPES),
    "outcome": _named(OUTCOMES),
}
