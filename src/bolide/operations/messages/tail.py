"""Live tail: the messages that come in, by polling with a cursor."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput
from bolide.operations.messages.cursors import Cursor, Spot, cursor_text
from bolide.operations.messages.filters import MessageFilter, filter_of
from bolide.operations.messages.ranges import bounds_of, moved_up
from bolide.operations.messages.rows import row_of
from bolide.operations.messages.scanning import QueueReader, Scan
from bolide.operations.messages.views import MessageRow, TailBatch

MAX_SIZE = 200
_SECONDS = 1.0
_MOST_BEHIND = 20_000
"""Messages that a tail with a filter looks at before it skips some."""


@read("/messages/{topic}/tail")
async def tail_messages(  # noqa: PLR0913  the options of a search
    cluster: Cluster,
    topic: str,
    *,
    cursor: str = "",
    tags: str = "",
    key: str = "",
    properties: list[str] | None = None,
    text: str = "",
    json_path: str = "",
    sql: str = "",
    size: int = 100,
) -> TailBatch:
    """Follow a topic: the messages that came since the last call.

    The first call, without a cursor, returns none: it marks the place. Call it again with `cursor`
    = `next` about once a second. If more comes than a call returns, the oldest are left out, and
    `skipped` tells how many; `search_messages` has them.

    Args:
        topic: the topic.
        cursor: the `next` of the last call.
        tags: as in `search_messages`, as are the other filters.
        key: only messages with this key.
        properties: only messages with these properties, each `name=value`, or `name` alone.
        text: only messages whose body contains this text.
        json_path: only messages whose body is JSON and fulfils this condition.
        sql: only messages whose properties fulfil this SQL92 expression.
        size: the most messages of one call, up to 200.
    """
    if not 1 <= size <= MAX_SIZE:
        raise BadInput("size", f"{size} is not between 1 and {MAX_SIZE}")
    wanted = filter_of(
        tags=tags, key=key, properties=properties, text=text, json_path=json_path, sql=sql
    )
    known = Cursor.decode(cursor, topic).spots if cursor else None
    bounds, failures = await bounds_of(cluster, topic)
    spots = moved_up(known or (), bounds)
    if known is None:
        spots = [replace(each, position=each.high) for each in spots]
    spots, skipped = _caught_up(spots, wanted, size)
    open_spots = [each for each in spots if each.position < each.high]
    readers = [QueueReader[MessageRow](topic, each, ascending=True) for each in open_spots]
    scan = Scan(cluster.admin.messages, wanted, row_of, readers)
    items = await scan.take(size, seconds=_SECONDS)
    stops = {(each.broker, each.queue_id): each for each in (r.stop for r in readers)}
    places = [stops.get((each.broker, each.queue_id), each) for each in spots]
    return TailBatch(
        items=items,
        next=cursor_text(topic, places),
        skipped=skipped,
        scanned=scan.scanned,
        failures=failures + scan.failures,
    )


async def follow(
    cluster: Cluster, topic: str, *, interval: float = 1.0, **options: Any
) -> AsyncIterator[TailBatch]:
    """The batches of `tail_messages`, one per interval in seconds, as long as they are wanted.

    Args:
        cluster: the cluster.
        topic: the topic.
        interval: seconds between two polls that found nothing.
        options: the filters of `tail_messages`.
    """
    cursor = ""
    while True:
        batch = await tail_messages.function(cluster, topic, cursor=cursor, **options)
        cursor = batch.next
        yield batch
        await asyncio.sleep(interval)


def _caught_up(spots: Sequence[Spot], wanted: MessageFilter, size: int) -> tuple[list[Spot], int]:
    """Skip what a person could not read anyway; returns how many messages that are."""
    behind = sum(each.high - each.position for each in spots)
    most = size * 2 if wanted.is_open else _MOST_BEHIND
    if behind <= most:
        return [*spots], 0
    share = max(most // len(spots), 1)
    moved = [replace(each, position=max(each.position, each.high - share)) for each in spots]
    return moved, behind - sum(each.high - each.position for each in moved)
