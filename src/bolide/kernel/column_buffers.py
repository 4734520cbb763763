"""What `Columns` is told and what it gives: buffers as Arrow lays columns out."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bolide.kernel.results import Stop

FIRST_LONG, END_LONG = -(1 << 63), 1 << 63

Buffer = Any
"""An object with the buffer protocol, which Python 3.11 has no type for."""


class Wanted(NamedTuple):
    """Which records become rows."""

    first_offset: int = FIRST_LONG
    end_offset: int = END_LONG
    """Of the queue; the first one that is not wanted any more."""
    since: int = FIRST_LONG
    until: int = END_LONG
    """Store times in ms; `until` itself is not wanted."""
    undelivered: bool = True
    """Whether half and rolled-back messages are wanted, which no consumer gets."""
    topic: Callable[[bytes], bool] | None = None
    """Asked once a topic, which may be no UTF-8; None: all."""


EVERYTHING = Wanted()


class Walk(NamedTuple):
    """How far records were taken, and why no further."""

    end: int
    """The position behind the last one, wanted or not."""
    stop: Stop
    reason: str
    """What is wrong with the record at `end`, where `stop` is DAMAGED."""


class Strings(NamedTuple):
    """Texts or bytes: those of row n from offset n up to offset n + 1."""

    offsets: Buffer
    """int32, one more than there are rows."""
    data: Buffer
    valid: Buffer | None = None
    """A bit a row, the lowest first, 0 where there is none; None: there is one in all rows."""


class Pairs(NamedTuple):
    """Properties: those of row n from offset n up to offset n + 1 of names and values."""

    offsets: Buffer
    total: int
    names: Strings
    values: Strings


class ColumnBuffers(NamedTuple):
    """One buffer or set of buffers a column, numbers in the machine's byte order."""

    rows: int
    topic: Strings
    queue_id: Buffer
    queue_offset: Buffer
    physical_offset: Buffer
    message_id: Strings
    offset_message_id: Strings
    keys: Strings
    tags: Strings
    body: Strings
    born_timestamp: Buffer
    store_timestamp: Buffer
    """Microseconds, as the other time."""
    born_host: Strings
    store_host: Strings
    reconsume_times: Buffer
    sys_flag: Buffer
    flag: Buffer
    properties: Pairs | None
