"""Input and output types of `Columns`: row filter, result, and buffers in Arrow's layout."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bolide.kernel.results import Stop

FIRST_LONG, END_LONG = -(1 << 63), 1 << 63

Buffer = Any
"""An object with the buffer protocol, for which Python 3.11 has no type."""


class Wanted(NamedTuple):
    """Filter for the records that become rows."""

    first_offset: int = FIRST_LONG
    end_offset: int = END_LONG
    """Queue offsets; `end_offset` is exclusive."""
    since: int = FIRST_LONG
    until: int = END_LONG
    """Store timestamps in ms; `until` is exclusive."""
    undelivered: bool = True
    """Whether to include half and rolled-back messages, which consumers do not receive."""
    topic: Callable[[bytes], bool] | None = None
    """Called once per topic, which may not be valid UTF-8; None accepts all topics."""


EVERYTHING = Wanted()


class Walk(NamedTuple):
    """The result of `Columns.add`: where it stopped, and why."""

    end: int
    """Position behind the last record read, whether wanted or not."""
    stop: Stop
    reason: str
    """The defect of the record at `end` if `stop` is DAMAGED."""


class Strings(NamedTuple):
    """A column of texts or bytes: row n extends from offset n to offset n + 1."""

    offsets: Buffer
    """int32, one more than the number of rows."""
    data: Buffer
    valid: Buffer | None = None
    """Validity bitmap, lowest bit first, 0 for null; None if no row is null."""


class Pairs(NamedTuple):
    """A column of properties: row n has the names and values from offset n to offset n + 1."""

    offsets: Buffer
    total: int
    names: Strings
    values: Strings


class ColumnBuffers(NamedTuple):
    """The buffers of each column; numbers are in native byte order."""

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
    """Microseconds, like `born_timestamp`."""
    born_host: Strings
    store_host: Strings
    reconsume_times: Buffer
    sys_flag: Buffer
    flag: Buffer
    properties: Pairs | None
