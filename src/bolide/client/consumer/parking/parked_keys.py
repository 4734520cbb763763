"""Which keys of a source queue are set aside: what the records of a park topic come to.

Plain values: the records in their order make the state, for whoever reads them.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.client.consumer.parking.records import Kind, ParkRecord

NONE = -1


class ParkedMessage(NamedTuple):
    """One message set aside."""

    queue_offset: int
    """In the source queue."""
    park_offset: int
    """Offset of its record in the park queue."""
    stored_ms: int
    """When that was written."""


@dataclass(slots=True)
class ParkedKey:
    """A key that is set aside."""

    key: str
    since_ms: int
    error: str
    is_resuming: bool = False
    dead_through: int = NONE
    """While it resumes: messages up to this offset become dead letters."""
    entries: OrderedDict[int, ParkedMessage] = field(default_factory=OrderedDict)
    """Its messages by their offset in the source queue, in that order; a plain dict would look for
    its first one behind all that were taken from it."""

    @property
    def first(self) -> ParkedMessage:
        return next(iter(self.entries.values()))

    @property
    def last_offset(self) -> int:
        return next(reversed(self.entries))

    def put(self, entry: ParkedMessage) -> None:
        is_behind = not self.entries or entry.queue_offset > self.last_offset
        is_known = entry.queue_offset in self.entries
        self.entries[entry.queue_offset] = entry
        if not is_behind and not is_known:
            self.entries = OrderedDict(sorted(self.entries.items()))

    def drop(self, through: int) -> None:
        while self.entries and self.first.queue_offset <= through:
            del self.entries[self.first.queue_offset]


class ParkedKeys:
    """The keys of one source queue; `epoch` is the tenure whose records count now."""

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
        """Take in the next record of this source queue."""
        if record.kind is Kind.OPEN:
            self.epoch = record.epoch
        elif record.kind is Kind.RESUME:
            self._resume(record)
        elif self.epoch in {None, record.epoch}:  # None: the beginning of the log is gone
            self.epoch = record.epoch
            self._apply_own(record, ParkedMessage(record.offset, park_offset, stored_ms))

    def _apply_own(self, record: ParkRecord, entry: ParkedMessage) -> None:
        found = self._keys.get(record.key)
        if record.kind is Kind.PARK:
            if found is None:
                found = ParkedKey(record.key, record.since_ms, record.error)
                self._keys[record.key] = found
            found.put(entry)
        elif found is None:
            return
        elif record.kind is Kind.DONE:
            found.drop(record.offset)
            if not found.entries:
                del self._keys[record.key]
                self.resuming.discard(record.key)
        else:
            self.resuming.discard(record.key)
            found.is_resuming, found.dead_through = False, NONE
            found.error = record.error or found.error

    def _resume(self, record: ParkRecord) -> None:
        found = self._keys.get(record.key)
        if found is not None:
            self.resuming.add(record.key)
            found.is_resuming = True
            found.dead_through = max(found.dead_through, record.offset)
