"""Cells of messages that are brought to listeners, at once or later."""

import msgspec

from tests.interop.matrix.cell import SECOND, Seen, bodies, cell, in_queues, numbered
from tests.interop.matrix.facts import Deliveries, Message


@cell()
def push_concurrent(seen: Seen) -> None:
    """Push, concurrent listener."""
    deliveries = seen.told(Deliveries).deliveries
    assert sorted(bodies(deliveries)) == sorted(numbered(40))
    assert {message.reconsumed for message in deliveries} == {0}
    assert {message.topic for message in deliveries} == {seen.topic}
    committed = dict.fromkeys(range(4), 10)
    assert seen.committed(committed) == committed


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
    assert seen.committed({0: 10, 1: 10}) == {0: 10, 1: 10}


class Broadcast(msgspec.Struct):
    first: list[Message]
    second: list[Message]


@cell()
def broadcast(seen: Seen) -> None:
    """Broadcast to two members of a group."""
    told = seen.told(Broadcast)
    assert sorted(bodies(told.first)) == sorted(bodies(told.second)) == sorted(numbered(40))


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
