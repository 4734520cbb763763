"""What changes the state of popped queues, as the journal has it: arrays of JSON, told apart by
their first word. All of them may come twice."""

from collections.abc import Iterable, Sequence

import msgspec

from bolide.broker.pop.ordered import OrderInfo

QueueName = tuple[str, str, int]
"""Topic, group and queue id."""


class _Event(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    group: str
    queue_id: int

    @property
    def queue(self) -> QueueName:
        return self.topic, self.group, self.queue_id


class Popped(_Event, frozen=True, tag="pop"):
    """Messages were given away; those listed are not settled. Times are in milliseconds."""

    start: int
    pop_time: int
    invisible_time: int
    next_offset: int
    """Where the next pop of the queue begins."""
    distances: list[int]
    """Of the messages from the start."""

    @property
    def offsets(self) -> list[int]:
        return [self.start + distance for distance in self.distances]


class Adopted(Popped, frozen=True, tag="adopt"):
    """Another broker gave them away: they may lie below what is committed for the group."""


class Settled(_Event, frozen=True, tag="ack"):
    """Messages of a pop were acknowledged, or have gone to the retry topic."""

    start: int
    pop_time: int
    offsets: list[int]


class Changed(_Event, frozen=True, tag="change"):
    """One message of a pop became a pop of its own."""

    start: int
    pop_time: int
    offset: int
    new_pop_time: int
    invisible_time: int
    next_offset: int


class Placed(_Event, frozen=True, tag="place"):
    """The queue goes on from here, whatever was popped before."""

    offset: int


class OrderPopped(_Event, frozen=True, tag="order"):
    """Messages were given away in order."""

    next_offset: int
    info: OrderInfo


class OrderSettled(_Event, frozen=True, tag="order-ack"):
    pop_time: int
    offset: int


class OrderChanged(_Event, frozen=True, tag="order-change"):
    pop_time: int
    offset: int
    visible_at: int


class Removed(_Event, frozen=True, tag="remove"):
    """All queues of a topic, or of a group, are gone; the other name is empty, the queue is -1."""


Event = (
    Popped
    | Adopted
    | Settled
    | Changed
    | Placed
    | OrderPopped
    | OrderSettled
    | OrderChanged
    | Removed
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Event])


def encode_events(events: Sequence[Event]) -> bytes:
    return _encoder.encode(events)


def decode_events(body: bytes) -> list[Event]:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(body)


def merged(events: Iterable[Event]) -> list[Event]:
    """The same in fewer: what is settled of one pop comes together."""
    found: list[Event] = []
    settled: dict[tuple[QueueName, int, int], Settled] = {}
    for event in events:
        if not isinstance(event, Settled):
            found.append(event)
            continue
        key = (event.queue, event.start, event.pop_time)
        if key in settled:
            settled[key].offsets.extend(event.offsets)
        else:
            settled[key] = msgspec.structs.replace(event, offsets=list(event.offsets))
            found.append(settled[key])
    return found
