"""Look-up by key and by id, through the index of the brokers."""

from bolide.admin.messages import DEFAULT_LIMIT
from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput
from bolide.operations.messages.cursors import Cursor, Spot, cursor_text
from bolide.operations.messages.filters import END_OF_TIME, check_times, filter_of
from bolide.operations.messages.finding import messages_of_id
from bolide.operations.messages.rows import row_of
from bolide.operations.messages.views import MessageList
from bolide.operations.views import Failure, reason_of

_Seen = frozenset[tuple[str, int]]
"""Brokers and physical offsets of messages that an earlier request has returned."""


@read("/messages/{topic}/by-key")
async def find_by_key(  # noqa: PLR0913  the options of a search
    cluster: Cluster,
    topic: str,
    key: str,
    *,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    tags: str = "",
    text: str = "",
    json_path: str = "",
    cursor: str = "",
) -> MessageList:
    """Find the messages with a key, the newest first, through the index of the brokers.

    A request looks at the newest 64 messages of each broker; repeat it with `cursor` = `next` to
    get all. Messages whose index files the brokers have deleted are found by `search_messages`
    only, and so are messages of the last moment.

    Args:
        topic: the topic.
        key: the key, as the sender set it.
        begin_ms: only messages stored at this time or later, in ms since 1970.
        end_ms: only messages stored at this time or before.
        tags: only messages with one of these tags: `a || b`.
        text: only messages whose body contains this text.
        json_path: only messages whose body fulfils this, as in `search_messages`.
        cursor: where to go on.
    """
    key = key.strip()
    if not key:
        raise BadInput("key", "give the key that the sender set")
    check_times(begin_ms, end_ms)
    wanted = filter_of(tags=tags, key=key, text=text, json_path=json_path)
    end, seen = END_OF_TIME if end_ms is None else end_ms, _Seen()
    if cursor:
        end, seen = _place_of(cursor, topic)
    parts, errors = await cluster.admin.messages.page_of_key(
        topic, key, begin=begin_ms or 0, end=end
    )
    if errors and not parts:
        raise errors[0]
    everything = [each for part in parts.values() for each in part]
    horizon = _horizon(parts)
    found = [
        each
        for each in everything
        if each.topic == topic
        and (horizon is None or each.store_timestamp >= horizon)
        and _place(each) not in seen
        and wanted.matches(each)
    ]
    found.sort(key=lambda each: (each.store_timestamp, each.queue_offset), reverse=True)
    return MessageList(
        items=[row_of(each) for each in found],
        next=None if horizon is None else _next(topic, everything, horizon, end, seen),
        previous=None,
        scanned=len(everything),
        remaining=0 if horizon is None else None,
        reached_ms=horizon,
        failures=[Failure(server="broker", reason=reason_of(each)) for each in errors],
    )


@read("/messages/{topic}/by-id")
async def find_by_id(cluster: Cluster, topic: str, message_id: str) -> MessageList:
    """Find the messages with an id of either kind, the newest first.

    A unique id may have several messages: sends that were retried are stored twice.

    Args:
        topic: the topic.
        message_id: the unique id that the sender was told, or an offset message id.
    """
    found, failures = await messages_of_id(cluster, topic, message_id)
    return MessageList(
        items=[row_of(each) for each in reversed(found)],
        next=None,
        previous=None,
        scanned=len(found),
        remaining=0,
        reached_ms=None,
        failures=failures,
    )


def _horizon(parts: dict[str, list[StoredMessage]]) -> int | None:
    """The store time before which a broker may have more; None if none has."""
    full = (part for part in parts.values() if len(part) >= DEFAULT_LIMIT)
    return max((min(each.store_timestamp for each in part) for part in full), default=None)


def _next(
    topic: str, everything: list[StoredMessage], horizon: int, end: int, seen: _Seen
) -> str:
    at_horizon = {_place(each) for each in everything if each.store_timestamp == horizon}
    if horizon == end and at_horizon <= seen:  # more in one millisecond than the index returns
        horizon, at_horizon = horizon - 1, set()
    spots = [
        Spot(broker=broker, queue_id=0, position=offset, low=0, high=horizon)
        for broker, offset in sorted(at_horizon) or [("", 0)]
    ]
    return cursor_text(_mark(topic), spots)


def _place_of(cursor: str, topic: str) -> tuple[int, _Seen]:
    """The store time to go on from, and what is known of it."""
    spots = Cursor.decode(cursor, _mark(topic)).spots
    if not spots:
        raise BadInput("cursor", "it is empty: leave it out")
    return spots[0].high, frozenset((each.broker, each.position) for each in spots)


def _mark(topic: str) -> str:
    """What tells these cursors from those of `search_messages`."""
    return f"{topic} by key"


def _place(message: StoredMessage) -> tuple[str, int]:
    return message.broker_name, message.physical_offset
