"""The parked keys of a source queue, computed by applying the records of a park topic in order."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.client.consumer.parking.records import Kind, ParkRecord

NONE = -1


class ParkedMessage(NamedTuple):
    """A parked message."""

    queue_offset: int
    """Its offset in the source queue."""
    park_offset: int
    """The offset of its record in the park queue."""
    stored_ms: int
    """When the record was written, in milliseconds."""


@dataclass(slots=True)
class ParkedKey:
    """A parked key and its messages."""

    key: str
    since_ms: int
    error: str
    is_resuming: bool = False
    dead_through: int = NONE
    """While the key resumes, messages up to this offset become dead letters."""
    entries: OrderedDict[int, ParkedMessage] = field(default_factory=OrderedDict)
    """Parked messages by offset in the source queue, ordered. An OrderedDict, because finding the
    first entry of a plain dict takes time proportional to the entries removed before it."""

    @property
    def first(self) -> ParkedMessage:
        return next(iter(self.entries.values()))

    @property
    def last_offset(self) -> int:
        return next(reversed(self.entries))

    def put(self, entry: ParkedMessage) -> None:
        is_last = not self.entries or entry.queue_offset > self.last_offset
        is_known = entry.queue_offset in self.entries
        self.entries[entry.queue_offset] = entry
        if not is_last and not is_known:
            self.entries = OrderedDict(sorted(self.entries.items()))

    def drop(self, through: int) -> None:
        while self.entries and self.first.queue_offset <= through:
            del self.entries[self.first.queue_offset]


class ParkedKeys:
    """The parked keys of one source queue; records of epochs other than `epoch` are ignored."""

    def __init__(self) -> None:
        self.epoch: str | None = None
        self.resuming: set[str] = set()
        self._keys: dict[str, ParkedKey] = {}

    def __iter__(self) -> Iterator[ParkedKey]:
        return iter(list(self._keys.values()))

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key: str) -> ParkedKey | None:
        return self._keys.get(key)

    def apply(self, record: ParkRecord, park_offset: int, stored_ms: int) -> None:
        """Apply the next record of this source queue."""
        if record.kind is Kind.OPEN:
            self.epoch = record.epoch
        elif record.kind is Kind.RESUME:
            self._resume(record)
        elif self.epoch in {None, record.epoch}:  # None: the OPEN record was deleted
            self.epoch = record.epoch
            self._apply_own(record, ParkedMessage(record.offset, park_offset, stored_ms))

    def _apply_own(self, record: ParkRecord, entry: ParkedMessage) -> None:
        parked = self._keys.get(record.key)
        if record.kind is Kind.PARK:
            if parked is None:
                parked = ParkedKey(record.key, record.since_ms, record.error)
                self._keys[record.key] = parked
            parked.put(entry)
        elif parked is None:
            return
        elif record.kind is Kind.DONE:
            parked.drop(record.offset)
            if not parked.entries:
                del self._keys[record.key]
                self.resuming.discard(record.key)
        else:
            self.resuming.discard(record.key)
            parked.is_resuming, parked.dead_through = False, NONE
            parked.error = record.error or parked.error

    def _resume(self, record: ParkRecord) -> None:
        parked = self._keys.get(record.key)
        if parked is not None:
            self.resuming.add(record.key)
            parked.is_resuming = True
            parked.dead_through = max(parked.dead_through, record.offset)
