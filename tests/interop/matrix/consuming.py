"""Cells of choosing, of order, and of how messages come to listeners."""

from collections import Counter

import msgspec

from tests.interop.matrix.cell import Seen, bodies, cell, in_queues, numbered
from tests.interop.matrix.facts import Deliveries, Message
from tests.interop.matrix.pushing import Broadcast

ORDERED_QUEUES = 2
LOCKING = "clients of 4.x lock queues to broadcast, too, so that one member alone gets a queue"


@cell()
def sql(seen: Seen) -> None:
    """SQL92 filter over properties."""
    deliveries = seen.told(Deliveries).deliveries
    assert sorted(bodies(deliveries)) == ["message 2", "message 4", "message 6"]


@cell(queues=2, lacking=dict.fromkeys(("java49", "java47", "java42"), LOCKING))
def broadcast_ordered(seen: Seen) -> None:
    """Broadcast in order to two members of a group."""
    told = seen.told(Broadcast)
    for deliveries in (told.first, told.second):
        queues = in_queues(deliveries)
        assert {queue: bodies(messages) for queue, messages in queues.items()} == {
            0: numbered(12),
            1: numbered(12),
        }


class Ordered(msgspec.Struct):
    queues: int
    deliveries: list[Message]


@cell(ordered_queues=ORDERED_QUEUES)
def order_config(seen: Seen) -> None:
    """Order laid down at the name server: two of four queues."""
    told = seen.told(Ordered)
    assert told.queues == ORDERED_QUEUES
    assert {queue: bodies(messages) for queue, messages in in_queues(told.deliveries).items()} == {
        queue: numbered(12)[queue::ORDERED_QUEUES] for queue in range(ORDERED_QUEUES)
    }


class Batches(msgspec.Struct):
    batches: list[list[str]]


@cell(queues=1)
def batch_consume(seen: Seen) -> None:
    """Batches to the listener, one of them taken in part."""
    batches = seen.told(Batches).batches
    first, *rest = sorted(batches, key=lambda batch: "message 0" not in batch)
    times = Counter(body for batch in batches for body in batch)
    assert first == numbered(4)
    assert max(map(len, rest)) == 4
    assert times == dict.fromkeys(numbered(24), 1) | dict.fromkeys(numbered(3, 1), 2)


class Direct(msgspec.Struct):
    result: str
    id: str
    deliveries: list[Message]


@cell()
def consume_directly(seen: Seen) -> None:
    """One message consumed by order of an administrator."""
    told = seen.told(Direct)
    assert told.result == "CR_SUCCESS"
    # To clients of 4.x the second one has its place in the log as its id.
    ids = [message.properties["UNIQ_KEY"] for message in told.deliveries]
    assert ids == [told.id, told.id]
    assert bodies(told.deliveries) == ["message"] * 2


@cell(lacking={"4.9": "brokers of 4.9 know no pop mode"})
def pop(seen: Seen) -> None:
    """Push consumer in pop mode, by order of the broker."""
    deliveries = seen.told(Deliveries).deliveries
    assert sorted(bodies(deliveries)) == sorted(numbered(24))
    assert {message.topic for message in deliveries} == {seen.topic}
    assert all("POP_CK" in message.properties for message in deliveries)
