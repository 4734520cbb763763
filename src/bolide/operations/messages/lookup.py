"""Look-up by key and by id, through the index of the brokers."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from bolide.admin.messages import DEFAULT_LIMIT
from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput
from bolide.operations.messages.cursors import (
    Spot,
    SpotTuple,
    pack,
    spot_tuples,
    spots_of,
    unpack,
)
from bolide.operations.messages.filters import (
    END_OF_TIME,
    MessageFilter,
    check_times,
    filter_of,
)
from bolide.operations.messages.finding import messages_of_id
from bolide.operations.messages.ranges import ranges_of
from bolide.operations.messages.rows import row_of
from bolide.operations.messages.scanning import QueueReader, Scan
from bolide.operations.messages.views import MessageList, MessageRow
from bolide.operations.views import Failure, reason_of

_INDEX_STEP_MS = 1000
"""The index has times in seconds: a range of times is inexact by so much."""
_WINDOW_MS = 2 * _INDEX_STEP_MS
"""What is read from the queues where the index has more of one moment than it returns."""
_SECONDS = 2.0


class _Packed(NamedTuple):
    topic: str
    end: int
    seen: list[tuple[str, int]]
    window: list[SpotTuple] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a search by key goes on."""

    end: int
    """Messages stored after this time were returned."""
    seen: frozenset[tuple[str, int]] = frozenset()
    """Brokers and physical offsets of those stored at this time that were returned, too."""
    window: tuple[Spot, ...] | None = None
    """Parts of the queues to read instead of asking the index; empty before they are known."""

    def encode(self, topic: str) -> str:
        window = None if self.window is None else spot_tuples(self.window)
        return pack(_Packed(topic, self.end, sorted(self.seen), window))

    @classmethod
    def decode(cls, text: str, topic: str) -> "_Place":
        """Raises BadInput."""
        of_topic, end, seen, window = unpack(text, _Packed)
        if of_topic != topic:
            raise BadInput("cursor", f"it belongs to topic {of_topic!r}: leave it out")
        spots = None if window is None else spots_of(window)
        return cls(end=end, seen=frozenset(seen), window=spots)

    def is_new(self, message: StoredMessage) -> bool:
        """Whether a message was not returned before."""
        at = message.store_timestamp
        return at < self.end or (at == self.end and _place(message) not in self.seen)


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
    wanted = filter_of(
        tags=tags, key=key, text=text, json_path=json_path, begin_ms=begin_ms, end_ms=end_ms
    )
    place = _Place(end=END_OF_TIME if end_ms is None else end_ms)
    if cursor:
        place = _Place.decode(cursor, topic)
    if place.window is not None:
        return await _from_queues(cluster, topic, wanted, begin_ms or 0, place)
    return await _from_index(cluster, topic, key, wanted, begin_ms or 0, place)


async def _from_index(
    cluster: Cluster, topic: str, key: str, wanted: MessageFilter, begin: int, place: _Place
) -> MessageList:
    parts, errors = await cluster.admin.messages.page_of_key(
        topic, key, begin=max(begin - _INDEX_STEP_MS, 0), end=place.end
    )
    if errors and not parts:
        raise errors[0]
    everything = [each for part in parts.values() for each in part if each.topic == topic]
    horizon = _horizon(parts)
    found = [
        each
        for each in everything
        if (horizon is None or each.store_timestamp >= horizon)
        and place.is_new(each)
        and wanted.matches(each)
    ]
    found.sort(key=lambda each: (each.store_timestamp, each.queue_offset), reverse=True)
    return MessageList(
        items=[row_of(each) for each in found],
        next=_next(topic, everything, horizon, place),
        previous=None,
        scanned=len(everything),
        remaining=0 if horizon is None else None,
        reached_ms=horizon,
        failures=[Failure(server="broker", reason=reason_of(each)) for each in errors],
    )


def _horizon(parts: dict[str, list[StoredMessage]]) -> int | None:
    """The store time before which a broker may have more; None if none has."""
    full = (part for part in parts.values() if len(part) >= DEFAULT_LIMIT)
    return max((min(each.store_timestamp for each in part) for part in full), default=None)


def _next(
    topic: str, everything: list[StoredMessage], horizon: int | None, place: _Place
) -> str | None:
    if horizon is None:
        return None
    if horizon >= place.end:  # the index returns the same ones again
        return _Place(end=place.end, seen=place.seen, window=()).encode(topic)
    seen = {_place(each) for each in everything if each.store_timestamp == horizon}
    return _Place(end=horizon, seen=frozenset(seen)).encode(topic)


async def _from_queues(
    cluster: Cluster, topic: str, wanted: MessageFilter, begin: int, place: _Place
) -> MessageList:
    """Read a short time from the queues themselves, then go on with the index."""
    low, failures = max(place.end - _WINDOW_MS, begin), list[Failure]()
    spots = list(place.window or ())
    if not spots:
        spots, failures = await ranges_of(cluster, topic, begin_ms=low, end_ms=place.end)

    def matches(message: StoredMessage) -> bool:
        return message.store_timestamp >= low and place.is_new(message)

    within = replace(wanted, tests=(matches, *wanted.tests))
    readers = [QueueReader[MessageRow](topic, each, ascending=False) for each in spots]
    scan = Scan(cluster.admin.messages, within, row_of, readers)
    items = await scan.take(DEFAULT_LIMIT, seconds=_SECONDS)
    rest = tuple(each.stop for each in readers)
    onwards: _Place | None = _Place(end=place.end, seen=place.seen, window=rest)
    if scan.is_complete:
        onwards = _Place(end=low - 1) if low > begin else None
    return MessageList(
        items=items,
        next=onwards.encode(topic) if onwards else None,
        previous=None,
        scanned=scan.scanned,
        remaining=None if onwards else 0,
        reached_ms=scan.reached_ms or low,
        failures=failures + scan.failures,
    )


def _place(message: StoredMessage) -> tuple[str, int]:
    return message.broker_name, message.physical_offset


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
