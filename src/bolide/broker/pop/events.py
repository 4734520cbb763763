"""Events of the pop journal: JSON arrays whose first element is the event kind.

Events are idempotent: applying one twice has no further effect.
"""

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
    """Messages were leased to a consumer; `distances` lists the unacknowledged ones. Times are
    in milliseconds."""

    start: int
    pop_time: int
    invisible_time: int
    next_offset: int
    """Queue offset at which the next pop begins."""
    distances: list[int]
    """Distances of the messages from `start`."""

    @property
    def offsets(self) -> list[int]:
        return [self.start + distance for distance in self.distances]


class Adopted(Popped, frozen=True, tag="adopt"):
    """A pop of another broker; its messages may lie below the committed offset of the group."""


class Acknowledged(_Event, frozen=True, tag="ack"):
    """Messages of a pop were acknowledged or moved to the retry topic."""

    start: int
    pop_time: int
    offsets: list[int]


class Changed(_Event, frozen=True, tag="change"):
    """The invisible time of one message changed: the message became a pop of its own."""

    start: int
    pop_time: int
    offset: int
    new_pop_time: int
    invisible_time: int
    next_offset: int


class Repositioned(_Event, frozen=True, tag="place"):
    """The queue continues at `offset`; earlier pops are dropped."""

    offset: int


class OrderPopped(_Event, frozen=True, tag="order"):
    """Messages were leased in order."""

    next_offset: int
    info: OrderInfo


class OrderAcknowledged(_Event, frozen=True, tag="order-ack"):
    pop_time: int
    offset: int


class OrderChanged(_Event, frozen=True, tag="order-change"):
    pop_time: int
    offset: int
    visible_at: int


class Removed(_Event, frozen=True, tag="remove"):
    """All queues of a topic or of a group are removed; the other name is empty and the queue id
    is -1."""


Event = (
    Popped
    | Adopted
    | Acknowledged
    | Changed
    | Repositioned
    | OrderPopped
    | OrderAcknowledged
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


def merge_acknowledgements(events: Iterable[Event]) -> list[Event]:
    """Merge the acknowledgements of each pop into one event; other events keep their order."""
    result: list[Event] = []
    acknowledged: dict[tuple[QueueName, int, int], Acknowledged] = {}
    for event in events:
        if not isinstance(event, Acknowledged):
            result.append(event)
            continue
        key = (event.queue, event.start, event.pop_time)
        if key in acknowledged:
            acknowledged[key].offsets.extend(event.offsets)
        else:
            acknowledged[key] = msgspec.structs.replace(event, offsets=list(event.offsets))
            result.append(acknowledged[key])
    return result
