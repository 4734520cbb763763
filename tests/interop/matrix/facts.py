"""What players tell of sends, messages and pulls, as they print it."""

import msgspec


class Sent(msgspec.Struct, frozen=True):
    """The result of a send; a batch has its ids joined by commas."""

    status: str
    id: str
    offset_id: str
    queue: int
    offset: int


class Message(msgspec.Struct, frozen=True):
    body: str
    topic: str
    id: str
    queue: int
    offset: int
    tags: str | None
    keys: str | None
    reconsumed: int
    born: int
    stored: int
    properties: dict[str, str]

    @property
    def place(self) -> tuple[int, int]:
        return self.queue, self.offset


class Deliveries(msgspec.Struct, frozen=True):
    deliveries: list[Message]


class Pulled(msgspec.Struct, frozen=True):
    status: str
    next: int
    min: int
    max: int
    bodies: list[str]
    took: int = 0
    """Milliseconds from the send to the end of the pull that waited for it."""


class Bounds(msgspec.Struct, frozen=True):
    min: int
    max: int


class Line(msgspec.Struct, frozen=True):
    """One line of a player: how a cell went."""

    cell: str
    seconds: float
    facts: msgspec.Raw = msgspec.Raw()
    failure: str = ""
