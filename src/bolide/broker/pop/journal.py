"""The pop journal: events of popped queues as records of an internal topic.

A pop is written before it is answered. Acknowledgements wait for the end of the burst they arrived
in, all events of a burst are one record, and each caller is notified once that record is as durable
as a sent message. The state applies an event once its record is in the log, so the state never runs
ahead of the journal. Records lost to a failed flush are written again, before any later event.

A restart replays the journal from the record that holds the oldest lease. `rewrite` moves old
leases to the end of the journal, which bounds the replay and keeps retention from deleting records
that are still needed.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

import msgspec

from bolide.broker.pop.events import (
    Acknowledged,
    Event,
    QueueName,
    decode_events,
    encode_events,
    merge_acknowledgements,
)
from bolide.broker.pop.pop_queue import Lease
from bolide.broker.pop.state import PopState
from bolide.broker.produce.durability import Durability, OnDurable
from bolide.kernel import read_record
from bolide.model.names import POP_JOURNAL_TOPIC
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.record_errors import BadRecord, RecordTooLarge
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import StoreClosed, StoreUnwritable
from bolide.store.reading import ReadLimits

log = logging.getLogger(__name__)

_TOPIC = POP_JOURNAL_TOPIC.encode()
_READ_LIMITS = ReadLimits(max_count=1024, max_size=4 * 1024 * 1024, max_scanned=1024)
_MAX_EVENTS_PER_RECORD = 128
_MIN_SPLIT = 2
_SAMPLE_INTERVAL = 600.0

Claim = tuple[QueueName, int, int, int]
"""A message of a pop: queue, start, pop time, queue offset."""


class JournalDamaged(Exception):
    """A part of the journal was deleted by retention, or a record is damaged."""


class JournalIntake(Protocol):
    """Takes the records of the journal: the intake of the broker, or none at a slave."""

    def append(self, draft: RecordDraft) -> Appended: ...


class NoIntake:
    """Drops the records, at a slave: its log must stay a copy of its master's."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(self, draft: RecordDraft) -> Appended:
        end = self._store.max_offset(POP_JOURNAL_TOPIC, 0)
        return Appended(0, 0, end, draft.born_timestamp, 0)


class Journal:
    """The only writer of the journal; belongs to one event loop, except `replay`."""

    def __init__(
        self,
        state: PopState,
        *,
        store: Store,
        intake: JournalIntake,
        durability: Durability,
        store_host: bytes,
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._store = store
        self._intake = intake
        self._durability = durability
        self._store_host = store_host
        self._now = now
        self._burst: list[tuple[Event | None, OnDurable]] = []
        self._claimed: set[Claim] = set()
        self._moving: set[Claim] = set()
        self._to_rewrite: list[Event] = []
        self._last: Appended | None = None
        self._ages = RecordAges()
        self._burst_end: asyncio.Handle | None = None

    @property
    def end(self) -> int:
        """Queue offset of the next record."""
        return self._store.max_offset(POP_JOURNAL_TOPIC, 0)

    @property
    def is_complete(self) -> bool:
        """Whether the log holds every event that the state has applied."""
        return not self._to_rewrite

    # ---- writing

    def append(self, events: Sequence[Event]) -> Appended:
        """Write events immediately and apply them to the state.

        Raises:
            StoreUnwritable, StoreClosed: none or only some of the events were written.
        """
        self.end_burst()  # enqueued events keep their order
        self._append_unwritten()
        if not events and self._last is not None:
            return self._last
        return self._append(events)

    def _append_unwritten(self) -> None:
        while unwritten := self._to_rewrite:
            appended, count = self._append_prefix(unwritten)
            self._to_rewrite = unwritten[count:]
            for event in unwritten[:count]:
                if lease := self._state.lease_of(event):
                    self._state.record_rewrite(lease, appended.queue_offset)

    def _append(self, events: Sequence[Event]) -> Appended:
        try:
            appended = self._append_record(list(events))
        except RecordTooLarge:
            if len(events) < _MIN_SPLIT:
                raise
            half = len(events) // 2
            self._append(events[:half])
            return self._append(events[half:])
        for event in events:
            self._state.apply(event, appended.queue_offset)
        return appended

    def append_or_defer(self, event: Event) -> None:
        """Append an event; if the store refuses, apply the event anyway and write it with the
        next one."""
        try:
            self.append([event])
        except (StoreUnwritable, StoreClosed) as exc:
            log.warning("the pop journal does not hold %s yet: %s", event, exc)
            self._state.apply(event, self.end)
            self._to_rewrite.append(event)

    def enqueue(self, event: Event, on_durable: OnDurable, claims: Sequence[Claim] = ()) -> None:
        """Write an event at the end of the burst; `on_durable` is called as by
        `Durability.when_durable`.

        Args:
            claims: the messages that the event acknowledges, claimed until the event is written.
        """
        self._claimed.update(claims)
        self._burst.append((event, on_durable))
        if self._burst_end is None:
            self._burst_end = asyncio.get_running_loop().call_soon(self._end_burst)

    def is_claimed(self, claim: Claim) -> bool:
        return claim in self._claimed or claim in self._moving

    @contextmanager
    def moving_to_retry(self, events: Sequence[Acknowledged]) -> Iterator[None]:
        """Claim messages on their way to a retry topic until their copies are durable."""
        claims = {
            (event.queue, event.start, event.pop_time, offset)
            for event in events
            for offset in event.offsets
        }
        self._moving |= claims
        try:
            yield
        finally:
            self._moving -= claims

    def when_durable(self, on_durable: OnDurable) -> None:
        """Call `on_durable` once everything written so far is durable.

        A repeated acknowledgement waits for the same record as the first.
        """
        if self._burst:  # the first acknowledgement may be part of it
            self._burst.append((None, on_durable))
        elif self._last is None and not self._to_rewrite:
            on_durable(ResponseCode.SUCCESS)
        elif self._to_rewrite:
            self._append_and_notify([], [on_durable])
        elif self._last is not None:
            self._durability.when_durable(self._last, on_durable)

    def end_burst(self) -> None:
        """Write the events of the current burst now."""
        if self._burst_end is not None:
            self._burst_end.cancel()
            self._end_burst()

    def _end_burst(self) -> None:
        burst, self._burst = self._burst, []
        self._burst_end = None
        self._claimed.clear()
        events = merge_acknowledgements(event for event, _ in burst if event is not None)
        self._append_and_notify(events, [on_durable for _, on_durable in burst])

    def _append_and_notify(self, events: Sequence[Event], callbacks: Sequence[OnDurable]) -> None:
        try:
            appended = self.append(events)
        except (StoreUnwritable, StoreClosed, RecordTooLarge) as exc:
            refused = exc if isinstance(exc, StoreUnwritable) else StoreUnwritable(str(exc))
            for on_durable in callbacks:
                on_durable(refused)
            return
        for on_durable in callbacks:
            self._durability.when_durable(appended, on_durable)

    def _append_record(self, events: list[Event]) -> Appended:
        appended = self._last = self._intake.append(self._draft(encode_events(events)))
        self._ages.record(appended.queue_offset, self._now())
        if self._durability.waits:
            self._rewrite_if_lost(appended, events)
        return appended

    def _append_prefix(self, events: Sequence[Event]) -> tuple[Appended, int]:
        """Write as many leading events as fit into one record; return their count."""
        count = min(len(events), _MAX_EVENTS_PER_RECORD)
        while True:
            try:
                return self._append_record(list(events[:count])), count
            except RecordTooLarge:
                if count < _MIN_SPLIT:
                    raise
                count //= 2

    def _rewrite_if_lost(self, appended: Appended, events: list[Event]) -> None:
        """Write the events again if their record is lost, however late that is known."""

        def on_durable(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._to_rewrite += events
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_durable(appended, on_durable)

        self._durability.when_durable(appended, on_durable)

    def _draft(self, body: bytes) -> RecordDraft:
        born = int(self._now() * 1000)
        return RecordDraft(_TOPIC, body, b"", 0, born, self._store_host, self._store_host)

    # ---- compaction

    def rewrite(self, max_backlog: int, max_age: float = math.inf) -> bool:
        """Rewrite some of the oldest leases if they lie more than `max_backlog` records back or are
        older than `max_age` seconds; return whether more may remain.

        Raises:
            StoreUnwritable, StoreClosed: nothing has changed.
        """
        min_fresh = self._ages.written_before(self._now() - max_age)
        oldest = self._state.oldest
        if oldest is None or oldest.journal_offset >= max(self.end - max_backlog, min_fresh):
            return False
        # Fill the record whatever the age: rewritten one by one, each record would make others old.
        chosen: list[Lease] = list(islice(self._state.by_age(), _MAX_EVENTS_PER_RECORD))
        appended, count = self._append_prefix([lease.event() for lease in chosen])
        for lease in chosen[:count]:
            self._state.record_rewrite(lease, appended.queue_offset)
        return True

    # ---- replay

    def replay(self, first: int) -> int:
        """Apply all events from a record on to the state; return the number of records. Blocks.

        Raises:
            JournalDamaged: records are missing or damaged.
        """
        if self._store.min_offset(POP_JOURNAL_TOPIC, 0) > first or first > self.end:
            raise JournalDamaged(f"record {first} is outside the journal")
        for record in self._records(first):
            try:
                events = decode_events(bytes(record.body))
            except msgspec.DecodeError as exc:
                raise JournalDamaged(f"record {record.queue_offset}: {exc}") from exc
            self._ages.record(record.queue_offset, record.store_timestamp / 1000)
            for event in events:
                self._state.apply(event, record.queue_offset)
        return self.end - first

    def _records(self, first: int) -> Iterator[Record]:
        end = self.end
        while first < end:
            found = self._store.read(POP_JOURNAL_TOPIC, 0, first, _READ_LIMITS)
            if len(found.records) != found.next_offset - first:
                raise JournalDamaged(
                    f"records from {first} on cannot be read: {found.status.value}"
                )
            for data in found.records:
                try:
                    record = read_record(data, check_crc=True)
                except BadRecord as exc:
                    raise JournalDamaged(f"a record at or after {first}: {exc}") from exc
                assert isinstance(record, Record)
                yield record
            first = found.next_offset


class RecordAges:
    """Maps times to journal offsets, sampled every ten minutes. Times are Unix seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def record(self, journal_offset: int, at: float) -> None:
        """Add the record written at `at`; calls come in journal order."""
        if self._samples and at < self._samples[-1][0]:  # the clock was set back
            self._samples.clear()
        if not self._samples or at - self._samples[-1][0] >= _SAMPLE_INTERVAL:
            self._samples.append((at, journal_offset))

    def written_before(self, moment: float) -> int:
        """Return an offset below which every record is older than `moment`.

        Older samples are evicted, so `moment` must not decrease between calls.
        """
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= moment:
            samples.popleft()
        return samples[0][1] + 1 if samples and samples[0][0] <= moment else 0
