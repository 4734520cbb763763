"""The columns of a message, in one place: Spark compares schemas to the letter and in order."""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
VALUE = "value"

MESSAGE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("topic", pa.string()),
    pa.field("broker", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("physical_offset", pa.int64()),
    pa.field("message_id", pa.string()),
    pa.field("offset_message_id", pa.string()),
    pa.field("keys", pa.string()),
    pa.field("tags", pa.string()),
    pa.field("body", pa.binary()),
    pa.field("born_timestamp", TIMESTAMP),
    pa.field("store_timestamp", TIMESTAMP),
    pa.field("born_host", pa.string()),
    pa.field("store_host", pa.string()),
    pa.field("reconsume_times", pa.int32()),
    pa.field("sys_flag", pa.int32()),
    pa.field("flag", pa.int32()),
)
PROPERTIES_FIELD = pa.field("properties", PROPERTIES)


def message_schema(
    *, include_properties: bool = True, value: pa.StructType | None = None
) -> pa.Schema:
    """The schema of every batch: the fields, then `properties`, then `value` as far as asked for.

    All may be null as far as Arrow goes; only `keys`, `tags` and `value` ever are, and the `broker`
    of what was read from log files.
    """
    fields = [*MESSAGE_FIELDS]
    if include_properties:
        fields.append(PROPERTIES_FIELD)
    if value is not None:
        fields.append(pa.field(VALUE, value))
    return pa.schema(fields)
