"""Reads messages of a queue from an offset on, through a filter and up to limits."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from bolide.kernel import Sieve, Units, gather, is_resident
from bolide.kernel.units import BLANK_SIZE, UNIT, UNIT_SIZE
from bolide.protocol.record import RECORD_HEAD, is_record_magic
from bolide.store.consume_queue import Unit

log = logging.getLogger(__name__)

_BLOCK = 64 * 1024
_WHOLE = 2**62


class MappedPart(Protocol):
    """The part of `LogFile` that reading uses."""

    start: int
    end: int
    view: memoryview


class ReadableLog(Protocol):
    """The part of `CommitLog` that reading uses."""

    @property
    def written(self) -> int: ...

    @property
    def readable(self) -> int: ...

    @property
    def min_offset(self) -> int: ...

    def is_hot(self, physical_offset: int) -> bool: ...

    def find_file(self, physical_offset: int) -> MappedPart | None: ...

    def read(
        self, physical_offset: int, size: int, *, may_block: bool = True
    ) -> memoryview | None: ...

    def read_block(
        self, physical_offset: int, least: int, most: int, *, may_block: bool
    ) -> memoryview | None: ...


class ReadableQueue(Protocol):
    """The part of `ConsumeQueue` that reading uses."""

    tail: Units

    @property
    def is_batched(self) -> bool: ...

    @property
    def min_offset(self) -> int: ...

    def end_below(self, physical_offset: int, *, may_block: bool = True) -> int: ...

    def read(self, queue_offset: int, count: int, *, may_block: bool = True) -> Iterator[Unit]: ...

    def units(self, queue_offset: int, count: int, may_block: bool = True) -> bytes | bytearray: ...


class ReadStatus(Enum):
    """RocketMQ's `GetMessageStatus`."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadLimits(NamedTuple):
    """Limits of a read. The first message is returned whatever its size."""

    max_count: int = 32
    max_size: int = 1024 * 1024
    max_scanned: int = 800
    """Queue units examined, for filters that match few messages."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter in two steps: on the tags code of a queue unit, then on the record itself."""

    code: Callable[[int], bool] | None = None
    record: Callable[[memoryview], bool] | None = None
    """A `Sieve` is the fastest kind."""
    weight: int = 1
    """Relative cost of examining a message; a read examines that many times fewer."""
    codes: frozenset[int] | None = None
    """The codes that `code` accepts, if they are known."""


EVERYTHING = MessageFilter()


@dataclass(slots=True)
class ReadResult:
    status: ReadStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: list[memoryview] = field(default_factory=list)
    """Whole records. Near the log's end they are views of its mapping: copy to retain them."""
    size: int = 0
    """Total bytes of the records."""
    inner_count: int | None = None
    """Messages in the records, if a record of the queue may hold several."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.records) if self.inner_count is None else self.inner_count


def read_queue(
    commit_log: ReadableLog,
    queue: ReadableQueue | None,
    queue_offset: int,
    limits: ReadLimits,
    wanted: MessageFilter,
    *,
    may_block: bool,
) -> ReadResult:
    """Raises NotInMemory if the read needs the disk and may not block."""
    if queue is None:
        return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    low, high = queue.min_offset, queue.end_below(commit_log.readable, may_block=may_block)
    outside = status_outside(queue_offset, low, high)
    if outside:
        status, next_offset = outside
        return ReadResult(status, next_offset, low, high)
    count = min(high - queue_offset, max(limits.max_scanned // wanted.weight, limits.max_count))
    found = ReadResult(ReadStatus.NO_MATCHED_MESSAGE, queue_offset, low, high)
    units = queue.units(queue_offset, count, may_block)
    _filter_units(units, found, limits, wanted, Window(commit_log, may_block=may_block))
    if found.next_offset == queue_offset and not found.records:
        # Retention removed the unit meanwhile: continue where the queue begins now.
        found.status = ReadStatus.OFFSET_FOUND_NULL
        found.next_offset = max(queue.min_offset, queue_offset + 1)
    return found


def status_outside(queue_offset: int, low: int, high: int) -> tuple[ReadStatus, int] | None:
    """Return the status of an offset that is not in a queue, and the next offset to read."""
    if high == 0:
        return ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    if queue_offset < low:
        return ReadStatus.OFFSET_TOO_SMALL, low
    if queue_offset == high:
        return ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset
    if queue_offset > high:
        return ReadStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def _filter_units(
    units: bytes | bytearray,
    found: ReadResult,
    limits: ReadLimits,
    wanted: MessageFilter,
    window: "Window",
) -> None:
    """Add matching records to `found`.

    The kernel handles runs of units with no filter or a `Sieve`; others are examined singly.
    """
    at, end = 0, len(units) // UNIT_SIZE
    sieve = wanted.record
    while at < end:
        if wanted.code is None and (sieve is None or isinstance(sieve, Sieve)):
            examined = _gather_run(units, at, found, limits, sieve, window)
            if examined:
                at += examined
                continue
        unit = Unit._make(UNIT.unpack_from(units, at * UNIT_SIZE))
        if unit.size <= 0 or not _examine(unit, found, limits, wanted, window):
            break
        found.next_offset += 1
        at += 1


def _gather_run(
    units: bytes | bytearray,
    at: int,
    found: ReadResult,
    limits: ReadLimits,
    sieve: Sieve | None,
    window: "Window",
) -> int:
    """Examine as many units as the kernel can; returns their number."""
    count, size = limits.max_count - len(found.records), limits.max_size - found.size
    block, start = window.block, window.start
    records, added, examined = gather(units, at, block, start, count, size, sieve)
    found.next_offset += examined
    if records:
        found.records += records
        found.size += added
        found.status = ReadStatus.FOUND
    return examined


def _examine(
    unit: Unit, found: ReadResult, limits: ReadLimits, wanted: MessageFilter, window: "Window"
) -> bool:
    """Examine one unit; returns False if the limits end the read before it."""
    if unit.size == BLANK_SIZE:
        return True
    if found.records and (
        len(found.records) >= limits.max_count or found.size + unit.size > limits.max_size
    ):
        return False
    add_if_wanted(unit, found, wanted, window)
    return True


class Located(Protocol):
    """A unit of either kind of queue."""

    @property
    def physical_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def tags_code(self) -> int: ...


def add_if_wanted(
    unit: Located, found: ReadResult, wanted: MessageFilter, window: "Window"
) -> bool:
    """Add the record of a unit to the result if it is there, sound and wanted."""
    if wanted.code and not wanted.code(unit.tags_code):
        return False
    record = window.read(unit.physical_offset, unit.size)
    if record is None:
        if not found.records:
            found.status = ReadStatus.MESSAGE_WAS_REMOVING
        return False
    if not _is_sound(record, unit.physical_offset, unit.size):
        return False
    if wanted.record is not None and not wanted.record(record):
        return False
    found.records.append(record)
    found.size += unit.size
    found.status = ReadStatus.FOUND
    return True


def _is_sound(record: memoryview, physical_offset: int, wanted_size: int) -> bool:
    """Whether the bytes at a log position are the record that a unit points to."""
    if len(record) >= RECORD_HEAD.size:
        size, magic, place = RECORD_HEAD.unpack_from(record)
        if size == wanted_size and place == physical_offset and is_record_magic(magic):
            return True
    log.error("the record at %s is damaged and skipped", physical_offset)
    return False


class Window:
    """Reads the log in blocks: the next record usually follows closely."""

    def __init__(self, commit_log: ReadableLog, *, may_block: bool) -> None:
        self._log = commit_log
        self._may_block = may_block
        self.start = 0
        self.block = memoryview(b"")

    def read(self, physical_offset: int, size: int) -> memoryview | None:
        at = physical_offset - self.start
        if not 0 <= at <= len(self.block) - size:
            block = nearby(self._log, physical_offset, size, _BLOCK, may_block=self._may_block)
            if block is None:
                return None
            self.start, self.block, at = physical_offset, block, 0
        return self.block[at : at + size]


def nearby(
    commit_log: ReadableLog, physical_offset: int, least: int, wished: int, may_block: bool = False
) -> memoryview | None:
    """Return at least `least` bytes of the log from a position on, and more if they are cached.

    Bytes in memory are returned as a view of the mapping. The system could evict their pages
    before they are read, but callers read them at once.

    Raises:
        NotInMemory: the bytes are not cached, and the call may not block.
    """
    is_hot = commit_log.is_hot(physical_offset)
    if is_hot or not may_block:  # a blocking read uses preadv, which releases the GIL
        most = _WHOLE if is_hot else wished
        found = _mapped(commit_log, physical_offset, least, most, is_hot=is_hot)
        if found is not None:
            return found
    return commit_log.read_block(physical_offset, least, max(least, _BLOCK), may_block=may_block)


def _mapped(
    commit_log: ReadableLog, physical_offset: int, least: int, wished: int, *, is_hot: bool
) -> memoryview | None:
    """Return a view of the mapping if all its pages are in memory."""
    file = commit_log.find_file(physical_offset)
    if file is None:
        return None
    start, end, written = file.start, file.end, commit_log.written
    at, stop = physical_offset - start, (written if written < end else end) - start
    if stop - at < least or least < 0:
        return None
    wished = least if wished < least else wished
    if stop - at > wished:
        stop = at + wished
    try:
        if is_hot or is_resident(file.view, at, stop - at):
            return file.view[at:stop].toreadonly()
    except ValueError:
        pass  # the file was closed meanwhile
    return None
