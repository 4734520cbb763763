"""Cells of reading by position, by id and by key."""

import msgspec

from tests.interop.matrix.cell import SECOND, Seen, bodies, cell, numbered
from tests.interop.matrix.facts import Bounds, Message, Pulled, Sent


class Pulls(msgspec.Struct):
    all: Pulled
    some: Pulled
    tagged: Pulled
    unmatched: Pulled
    at_end: Pulled
    beyond: Pulled
    bounds: Bounds
    committed: int
    since: list[int]
    awaited: Pulled


@cell(queues=1)
def pull(seen: Seen) -> None:
    """Pull: every status, positions, and waiting for a message."""
    told = seen.told(Pulls)
    assert told.all == Pulled("FOUND", 10, 0, 10, numbered(10))
    assert told.some == Pulled("FOUND", 5, 0, 10, numbered(3, 2))
    assert (told.tagged.status, told.tagged.bodies) == ("FOUND", numbered(10)[1::2])
    assert told.unmatched == Pulled("NO_MATCHED_MSG", 10, 0, 10, [])
    assert told.at_end == Pulled("NO_NEW_MSG", 10, 0, 10, [])
    assert told.beyond == Pulled("OFFSET_ILLEGAL", 10, 0, 10, [])
    assert told.bounds == Bounds(0, 10)
    assert told.committed == 7
    # 4.9 finds the nearest message.
    assert told.since == [0, 9 if seen.broker == "4.9" else 10]
    assert (told.awaited.status, told.awaited.bodies) == ("FOUND", ["awaited"])
    assert told.awaited.took < 2 * SECOND


class Polls(msgspec.Struct):
    polled: list[Message]
    committed: dict[int, int]
    assigned: list[Message]


@cell()
def lite_pull(seen: Seen) -> None:
    """Lite pull: subscribe, poll, commit; assign, seek."""
    told = seen.told(Polls)
    assert sorted(bodies(told.polled)) == sorted(numbered(12))
    assert told.committed == dict.fromkeys(range(4), 3)
    assert seen.committed(told.committed) == told.committed
    assert [message.place for message in told.assigned] == [(0, 1), (0, 2)]


class Query(msgspec.Struct):
    sent: list[Sent]
    by_id: list[Message]
    by_unique_id: list[str]
    popular: list[str]
    number2: list[str]
    lonely: list[str]


@cell()
def query(seen: Seen) -> None:
    """Query by id, by unique id and by key."""
    told = seen.told(Query)
    assert bodies(told.by_id) == told.by_unique_id == numbered(4)
    assert [message.place for message in told.by_id] == [
        (sent.queue, sent.offset) for sent in told.sent
    ]
    assert sorted(told.popular) == numbered(3)
    assert told.number2 == ["message 2"]
    assert told.lonely == ["message 3"]
