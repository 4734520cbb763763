"""Found messages as JSON lines, with their whole bodies."""

import base64
from time import monotonic

import msgspec

from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput
from bolide.operations.messages.cursors import cursor_text
from bolide.operations.messages.filters import check_times, filter_of
from bolide.operations.messages.finding import message_of
from bolide.operations.messages.ranges import begin_search
from bolide.operations.messages.scanning import QueueReader, Scan
from bolide.operations.messages.views import Download, Order

MAX_COUNT = 1000
MAX_BYTES = 16 * 1024 * 1024
"""A download ends after the line that takes it over this."""
_STEP = 20
_SECONDS = 10.0


@read("/messages/{topic}/download")
async def download_messages(  # noqa: PLR0913  the options of a search
    cluster: Cluster,
    topic: str,
    *,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    broker: str = "",
    queue_id: int | None = None,
    offset: int | None = None,
    order: Order = Order.NEWEST,
    tags: str = "",
    key: str = "",
    properties: list[str] | None = None,
    text: str = "",
    json_path: str = "",
    sql: str = "",
    cursor: str = "",
    count: int = MAX_COUNT,
) -> Download:
    """Search as `search_messages` does, and return whole messages as JSON lines.

    A line has the ids, the place, the times in ms, tags, keys, all properties and the body: as
    `body` if it is text in UTF-8, otherwise as `body_base64`. A request ends at `count` messages,
    16 MiB, or ten seconds; repeat it with `cursor` = `next` for the rest.

    Args:
        topic: the topic.
        begin_ms: as in `search_messages`, as are all other filters.
        end_ms: only messages stored at this time or before.
        broker: only queues of this broker.
        queue_id: only queues with this number.
        offset: begin with the message at this offset; needs `broker` and `queue_id`.
        order: `newest` first or `oldest` first.
        tags: only messages with one of these tags.
        key: only messages with this key.
        properties: only messages with these properties.
        text: only messages whose body contains this text.
        json_path: only messages whose body is JSON and fulfils this.
        sql: only messages whose properties fulfil this SQL92 expression.
        cursor: where to go on; one of `search_messages` works, too.
        count: how many messages are wanted, up to 1000.
    """
    if not 1 <= count <= MAX_COUNT:
        raise BadInput("count", f"{count} is not between 1 and {MAX_COUNT}")
    check_times(begin_ms, end_ms)
    wanted = filter_of(
        tags=tags,
        key=key,
        properties=properties,
        text=text,
        json_path=json_path,
        sql=sql,
        begin_ms=begin_ms,
        end_ms=end_ms,
    )
    spots, _, failures = await begin_search(
        cluster,
        topic,
        cursor=cursor,
        broker=broker,
        queue_id=queue_id,
        offset=offset,
        begin_ms=begin_ms,
        end_ms=end_ms,
        order=order,
    )
    readers = [QueueReader[str](topic, each, order is Order.OLDEST) for each in spots]
    scan = Scan(cluster.admin.messages, wanted, line_of, readers)
    lines = await _lines(scan, count)
    return Download(
        lines="".join(lines),
        count=len(lines),
        next=None if scan.is_complete else cursor_text(topic, [r.stop for r in readers]),
        failures=failures + scan.failures,
    )


async def _lines(scan: Scan[str], count: int) -> list[str]:
    end = monotonic() + _SECONDS
    lines: list[str] = []
    size = 0
    while len(lines) < count and size < MAX_BYTES and (left := end - monotonic()) > 0:
        got = await scan.take(min(_STEP, count - len(lines)), seconds=left)
        if not got and (scan.is_complete or scan.failures):
            break
        lines += got
        size += sum(map(len, got))
    return lines


@read("/messages/{topic}/ids/{message_id}/download")
async def download_one(cluster: Cluster, topic: str, message_id: str) -> Download:
    """Return one message as a JSON line, with its whole body.

    Args:
        topic: the topic.
        message_id: an id of either kind.
    """
    message = await message_of(cluster, topic, message_id)
    return Download(lines=line_of(message), count=1, next=None)


def line_of(message: StoredMessage) -> str:
    """A message as one line of JSON."""
    row: dict[str, object] = {
        "topic": message.topic,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "born_ms": message.born_timestamp,
        "stored_ms": message.store_timestamp,
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "tags": message.tags,
        "keys": list(message.keys),
        "reconsume_times": message.reconsume_times,
        "properties": {_valid(n): _valid(v) for n, v in message.properties.items()},
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(message.body).decode()
    return msgspec.json.encode(row).decode() + "\n"


def _valid(text: str) -> str:
    """Text that can be encoded: properties may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()
