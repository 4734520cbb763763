"""Search and browsing by time, position and content."""

from collections.abc import Sequence

from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput
from bolide.operations.messages.cursors import Spot, cursor_text
from bolide.operations.messages.filters import check_times, filter_of
from bolide.operations.messages.ranges import begin_search
from bolide.operations.messages.rows import row_of
from bolide.operations.messages.scanning import QueueReader, Scan
from bolide.operations.messages.views import MessageList, MessageRow, Order, QueueReach
from bolide.operations.views import Failure

MAX_SIZE = 200
MAX_SECONDS = 10.0


@read("/messages/{topic}")
async def search_messages(  # noqa: PLR0913  the options of a search
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
    size: int = 50,
    seconds: float = 2.0,
) -> MessageList:
    """Browse a topic, or search it by time, position and content.

    The queues are read from their ends on and merged by store time, so the first messages come at
    once, however large the topic is. A search that finds little stops after `seconds` and tells
    how far it got; repeat it with `cursor` = `next` and the same other parameters to go on. An
    empty `items` with a `next` means: nothing yet, go on.

    Args:
        topic: the topic; those of retries and dead letters, too.
        begin_ms: only messages stored at this time or later, in ms since 1970.
        end_ms: only messages stored at this time or before.
        broker: only queues of this broker, by name.
        queue_id: only queues with this number.
        offset: begin with the message at this offset; needs `broker` and `queue_id`.
        order: `newest` first or `oldest` first.
        tags: only messages with one of these tags: `a || b`; the broker selects them.
        key: only messages with this key; `find_by_key` uses the index and is faster.
        properties: only messages with these properties, each `name=value`, or `name` alone.
        text: only messages whose body contains this text, case by case.
        json_path: only messages whose body is JSON and fulfils this: `$.order.total > 100`,
            `$.items[*].sku == 'x'`, `$..name contains 'part'`.
        sql: only messages whose properties fulfil this SQL92 expression of RocketMQ; the broker
            selects them if it can.
        cursor: where to go on.
        size: how many messages are wanted, up to 200.
        seconds: how long to search, up to 10.
    """
    size, seconds = _checked(size, seconds)
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
    spots, is_back, failures = await begin_search(
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
    ascending = (order is Order.OLDEST) != is_back
    readers = [QueueReader[MessageRow](topic, spot, ascending) for spot in spots]
    scan = Scan(cluster.admin.messages, wanted, row_of, readers)
    items = await scan.take(size, seconds=seconds)
    return _listed(topic, scan, items, spots, is_back, failures)


def _listed(
    topic: str,
    scan: Scan[MessageRow],
    items: list[MessageRow],
    begun: Sequence[Spot],
    is_back: bool,
    failures: list[Failure],
) -> MessageList:
    stops = [each.stop for each in scan.readers]
    onwards = None if scan.is_complete else cursor_text(topic, stops, is_back=is_back)
    backwards = None
    if any(each.position != _first(each, scan) for each in begun):
        backwards = cursor_text(topic, begun, is_back=not is_back)
    if is_back:
        items, onwards, backwards = items[::-1], backwards, onwards
    return MessageList(
        items=items,
        next=onwards,
        previous=backwards,
        scanned=scan.scanned,
        remaining=scan.remaining,
        reached_ms=scan.reached_ms,
        queues=[
            QueueReach(
                broker=each.broker,
                queue_id=each.queue_id,
                position=each.position,
                low=each.low,
                high=each.high,
            )
            for each in stops
        ],
        failures=failures + scan.failures,
    )


def _first(spot: Spot, scan: Scan[MessageRow]) -> int:
    """Where a scan of the whole range begins."""
    ascending = scan.readers[0].ascending
    return spot.low if ascending else spot.high


def _checked(size: int, seconds: float) -> tuple[int, float]:
    if not 1 <= size <= MAX_SIZE:
        raise BadInput("size", f"{size} is not between 1 and {MAX_SIZE}")
    if not 0 < seconds <= MAX_SECONDS:
        raise BadInput("seconds", f"{seconds:g} is not between 0 and {MAX_SECONDS:g}")
    return size, seconds
