"""The cells of the matrix: what a client does, and what must then have been seen.

Each function takes what a player told; the players in Java and in Python do the same and tell it in
the same words. The docstring is the title of the cell in the table.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import msgspec

from tests.interop.matrix.brokers import KEPT
from tests.interop.matrix.facts import Bounds, Message, Pulled, Sent
from tests.interop.matrix.witness import Witness

T = TypeVar("T")
SECOND = 1000

Check = Callable[["Seen"], None]
CELLS: dict[str, "Cell"] = {}

KNOWN = {
    ("4.9", "java5", "batch"): "clients of 5.x give a batch an id of its own, which brokers of 4.9 "
    "put in place of the ids of its messages",
    ("4.9", "java5", "lite-pull"): "lite pull of 5.x has a request of its own, which brokers of "
    "4.9 do not know",
}
"""What does not work between releases of Apache's, by broker, client and cell."""


@dataclass(frozen=True)
class Seen:
    """What a player saw in a cell, and where."""

    facts: msgspec.Raw
    topic: str
    group: str
    broker: str
    witness: Witness

    def told(self, kind: type[T]) -> T:
        return msgspec.json.decode(self.facts, type=kind)

    def committed(self, queues: int = 4, group: str | None = None) -> dict[int, int]:
        return self.witness.committed(group or self.group, self.topic, queues)


@dataclass(frozen=True)
class Cell:
    name: str
    title: str
    check: Check
    queues: int
    """Of its topic; with 0 the topic comes into being with the first send."""

    aged: bool
    """Whether the first messages of the topic are there no more."""

    def topic(self, client: str) -> str:
        return f"{client}_{self.name}"


def cell(name: str = "", *, queues: int = 4, aged: bool = False) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        key = name or check.__name__.replace("_", "-")
        title = (check.__doc__ or key).rstrip(".")
        CELLS[key] = Cell(key, title, check, queues, aged)
        return check

    return add


class Sends(msgspec.Struct):
    sent: list[Sent]
    stored: list[Message]
    failures: list[str] = []


class Batch(msgspec.Struct):
    sent: Sent
    stored: list[Message]


class Stored(msgspec.Struct):
    stored: list[Message]


class Deliveries(msgspec.Struct):
    deliveries: list[Message]


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"message {n}" for n in range(start, start + count)]


def bodies(messages: Iterable[Message]) -> list[str]:
    return [message.body for message in messages]


def in_queues(messages: Iterable[Message]) -> dict[int, list[Message]]:
    ordered = sorted(messages, key=lambda message: message.queue)
    return {queue: list(part) for queue, part in groupby(ordered, lambda message: message.queue)}


def check_places(sends: Sends) -> None:
    """Every message is where its send result says, and the queues have no gap."""
    assert {sent.status for sent in sends.sent} == {"SEND_OK"}
    assert {sent.id: (sent.queue, sent.offset) for sent in sends.sent} == {
        message.id: message.place for message in sends.stored
    }
    assert len({sent.offset_id for sent in sends.sent}) == len(sends.sent)
    for messages in in_queues(sends.stored).values():
        assert [message.offset for message in messages] == list(range(len(messages)))


@cell(queues=0)
def sync(seen: Seen) -> None:
    """Synchronous sends, to a topic that is made by the first."""
    sends = seen.told(Sends)
    check_places(sends)
    assert Counter(sent.queue for sent in sends.sent) == dict.fromkeys(range(4), 3)
    stored = {message.id: message for message in sends.stored}
    for n, sent in enumerate(sends.sent):
        message = stored[sent.id]
        assert message.body == f"message {n} Grüße" + " and so on" * (1000 if n == 3 else 0)
        assert (message.tags, message.keys) == (f"tag{n}", f"key{n} all")
        assert message.properties["number"] == str(n)
        assert message.properties["sign"] == "ü € 😀"
        assert 0 <= message.stored - message.born < 10 * SECOND


@cell("async")
def asynchronous(seen: Seen) -> None:
    """Asynchronous sends."""
    sends = seen.told(Sends)
    assert not sends.failures
    check_places(sends)
    assert sorted(bodies(sends.stored)) == sorted(numbered(12))


@cell()
def one_way(seen: Seen) -> None:
    """One-way sends."""
    stored = seen.told(Stored).stored
    assert sorted(bodies(stored)) == sorted(numbered(12))


@cell()
def batch(seen: Seen) -> None:
    """A batch."""
    told = seen.told(Batch)
    assert told.sent.status == "SEND_OK"
    assert bodies(told.stored) == numbered(12)
    assert told.sent.id.split(",") == [message.id for message in told.stored]
    assert len(set(told.sent.offset_id.split(","))) == 12
    assert [message.place for message in told.stored] == [(told.sent.queue, n) for n in range(12)]
    assert [message.tags for message in told.stored] == [f"tag{n}" for n in range(12)]


@cell()
def selector(seen: Seen) -> None:
    """Queues chosen by a selector."""
    sends = seen.told(Sends)
    check_places(sends)
    assert [sent.queue for sent in sends.sent] == [n % 4 for n in range(12)]
    for queue, messages in in_queues(sends.stored).items():
        assert bodies(messages) == [f"message {n}" for n in range(queue, 12, 4)]


@cell()
def push_concurrent(seen: Seen) -> None:
    """Push, concurrent listener."""
    deliveries = seen.told(Deliveries).deliveries
    assert sorted(bodies(deliveries)) == sorted(numbered(40))
    assert {message.reconsumed for message in deliveries} == {0}
    assert {message.topic for message in deliveries} == {seen.topic}
    assert seen.committed() == dict.fromkeys(range(4), 10)


@cell(queues=2)
def push_ordered(seen: Seen) -> None:
    """Push, ordered listener, which refuses a message twice."""
    queues = in_queues(seen.told(Deliveries).deliveries)
    expected = numbered(3) + ["message 3"] * 3 + numbered(6, 4)
    times = [0] * 3 + [0, 1, 2] + [0] * 6
    assert {queue: bodies(messages) for queue, messages in queues.items()} == {
        0: expected,
        1: expected,
    }
    for messages in queues.values():
        assert [message.reconsumed for message in messages] == times
    assert seen.committed(queues=2) == {0: 10, 1: 10}


class Broadcast(msgspec.Struct):
    first: list[Message]
    second: list[Message]


@cell()
def broadcast(seen: Seen) -> None:
    """Broadcast to two members of a group."""
    told = seen.told(Broadcast)
    assert sorted(bodies(told.first)) == sorted(bodies(told.second)) == sorted(numbered(40))


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
    assert told.committed == seen.committed() == dict.fromkeys(range(4), 3)
    assert [message.place for message in told.assigned] == [(0, 1), (0, 2)]


@cell()
def tags(seen: Seen) -> None:
    """Tags, two of them with the same hash."""
    expected = [f"{tag} {n}" for tag in ("A", "Aa") for n in range(3)]
    assert sorted(bodies(seen.told(Deliveries).deliveries)) == sorted(expected)


@cell()
def retry_success(seen: Seen) -> None:
    """Retry, then success."""
    deliveries = seen.told(Deliveries).deliveries
    first = {message.body: message for message in deliveries if not message.reconsumed}
    again = {message.body: message for message in deliveries if message.reconsumed}
    assert len(deliveries) == len(first) + len(again)
    assert sorted(first) == ["0 even", "1 odd", "2 even", "3 odd", "4 even", "5 odd"]
    assert sorted(again) == ["1 odd", "3 odd", "5 odd"]
    for body, message in again.items():
        assert message.reconsumed == 1
        assert (message.topic, message.id) == (seen.topic, first[body].id)
        assert message.tags == first[body].tags
        assert message.properties["RETRY_TOPIC"] == seen.topic
        assert message.stored - first[body].stored >= 0.9 * SECOND


class Dead(msgspec.Struct):
    deliveries: list[Message]
    dead: list[Message]


@cell()
def dead_letter(seen: Seen) -> None:
    """Retry, then dead letter."""
    told = seen.told(Dead)
    tries = [message for message in told.deliveries if message.body == "bad"]
    assert [message.reconsumed for message in tries] == [0, 1, 2]
    assert bodies(told.deliveries).count("good") == 1
    (dead,) = told.dead
    assert (dead.body, dead.tags) == ("bad", "tag")
    assert {message.id for message in tries} == {dead.id}
    assert dead.topic == f"%DLQ%{seen.group}"
    assert dead.properties["RETRY_TOPIC"] == seen.topic
    assert dead.properties["ORIGIN_MESSAGE_ID"]
    assert dead.properties["colour"] == "red"
    assert dead.reconsumed == 3


class Delayed(msgspec.Struct):
    ids: list[str]
    deliveries: list[Message]


@cell()
def delay_level(seen: Seen) -> None:
    """Delay levels."""
    told = seen.told(Delayed)
    deliveries = sorted(told.deliveries, key=lambda message: message.body)
    assert bodies(deliveries) == ["level 0", "level 1", "level 2"]
    assert {message.id for message in deliveries} == set(told.ids)
    late = [message.stored - message.born for message in deliveries]
    assert late == sorted(late)
    assert late[1] >= 1 * SECOND - 10
    assert late[2] >= 2 * SECOND - 10
    for level, message in enumerate(deliveries):
        assert message.topic == seen.topic
        assert message.properties.get("DELAY", "0") == str(level)


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


def around(*words: str) -> list[str]:
    return [f"{word} {n}" for word in words for n in range(3)]


@cell(queues=1, aged=True)
def from_first(seen: Seen) -> None:
    """Consume from the first offset."""
    deliveries = sorted(seen.told(Deliveries).deliveries, key=lambda message: message.offset)
    kept = [f"kept {n}" for n in range(KEPT)]
    assert bodies(deliveries) == kept + around("before", "after")


@cell(queues=1, aged=True)
def from_last(seen: Seen) -> None:
    """Consume from the last offset."""
    assert sorted(bodies(seen.told(Deliveries).deliveries)) == around("after")


@cell(queues=1, aged=True)
def from_timestamp(seen: Seen) -> None:
    """Consume from a timestamp."""
    assert sorted(bodies(seen.told(Deliveries).deliveries)) == around("after")


class Reset(msgspec.Struct):
    first: list[Message]
    told: dict[int, int]
    again: list[Message]


@cell(queues=2)
def offset_reset(seen: Seen) -> None:
    """Reset of the offsets of a running group."""
    told = seen.told(Reset)
    before, after = ([f"{word} {n}" for n in range(4)] for word in ("before", "after"))
    assert sorted(bodies(told.first)) == after + before
    assert told.told == {0: 2, 1: 2}
    again = Counter(bodies(told.again))
    # What was sent after the reset may be there before it takes effect, and once more after.
    assert again.keys() == {*after, "wake 0", "wake 1"}
    assert [again[body] for body in after] == [1] * 4


class Shared(msgspec.Struct):
    held_when_shared: int
    held_alone: int
    here: list[Message]
    there: list[str]


@cell()
def sharing(seen: Seen) -> None:
    """Two consumers share the queues, then one is killed."""
    told = seen.told(Shared)
    here = Counter(bodies(told.here))
    shared, alone = ({f"{word} {n}" for n in range(16)} for word in ("shared", "alone"))
    assert (told.held_when_shared, told.held_alone) == (2, 4)
    assert len(told.there) == len(set(told.there)) == 8
    assert set(told.there) | (here.keys() & shared) == shared
    assert here.keys() >= (shared - set(told.there)) | alone
    assert {here[body] for body in alone} == {1}
