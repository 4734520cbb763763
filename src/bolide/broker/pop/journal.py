"""The pop journal: events of popped queues as records of an internal topic.

A pop is written before it is answered. Acknowledgements wait for the end of the burst they came
in, and all of a burst is one record; whoever asked is told when that record is as safe as a sent
message. The state takes an event when its record is in the log, so it never knows more than the
journal. What the disk takes back is written again, ahead of whatever comes next.

The journal is read again from the record on that has the oldest of what is live. So that this does
not take long, and retention takes nothing that is needed, `rewrite` brings old ones forward.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import msgspec

from bolide.broker.pop.events import (
    Event,
    QueueName,
    Settled,
    decode_events,
    encode_events,
    merged,
)
from bolide.broker.pop.pop_queue import Live
from bolide.broker.pop.state import PopState
from bolide.broker.produce.durability import Durability, Told
from bolide.broker.produce.intake import Intake
from bolide.kernel import read_record
from bolide.model.names import POP_JOURNAL_TOPIC
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.record_errors import BadRecord, RecordTooLarge
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import StoreClosed, StoreUnwritable
from bolide.store.reading import ReadLimits

_STEP = 600.0


class RecordAges:
    """Keeps the number of one record in ten minutes. Times are in seconds since 1970."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def note(self, number: int, at: float) -> None:
        """Record `number` is written now, behind all that were noted."""
        if self._marks and at < self._marks[-1][0]:  # the clock was set back
            self._marks.clear()
        if not self._marks or at - self._marks[-1][0] >= _STEP:
            self._marks.append((at, number))

    def written_before(self, moment: float) -> int:
        """All records below this number were; do not ask of earlier moments later on."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= moment:
            marks.popleft()
        return marks[0][1] + 1 if marks and marks[0][0] <= moment else 0


log = logging.getLogger(__name__)

_TOPIC = POP_JOURNAL_TOPIC.encode()
_CHUNK = ReadLimits(max_count=1024, max_size=4 * 1024 * 1024, max_scanned=1024)
_MOST_AT_ONCE = 128
_LEAST_PARTED = 2

Claim = tuple[QueueName, int, int, int]
"""A message of a pop: queue, start, pop time, offset."""


class JournalTorn(Exception):
    """The journal is not whole any more: retention took a part of it, or a record is damaged."""


class Journal:
    """The one writer of the journal; belongs to one event loop, apart from `replay`."""

    def __init__(
        self,
        state: PopState,
        *,
        store: Store,
        intake: Intake,
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
        self._burst: list[tuple[Event | None, Told]] = []
        self._claimed: set[Claim] = set()
        self._leaving: set[Claim] = set()
        self._lost: list[Event] = []
        self._last: Appended | None = None
        self._ages = RecordAges()
        self._ending: asyncio.Handle | None = None

    @property
    def end(self) -> int:
        """The number of the next record."""
        return self._store.max_offset(POP_JOURNAL_TOPIC, 0)

    @property
    def is_whole(self) -> bool:
        """Whether it has all that the state knows."""
        return not self._lost

    # ---- writing

    def append(self, events: Sequence[Event]) -> Appended:
        """Write events at once and have the state take them.

        Raises:
            StoreUnwritable, StoreClosed: nothing has changed, or not all of it.
        """
        self.end_burst()  # what was said before comes first
        self._append_lost()
        if not events and self._last is not None:
            return self._last
        return self._append(events)

    def _append_lost(self) -> None:
        while lost := self._lost:
            appended, count = self._put_first(lost)
            self._lost = lost[count:]
            for event in lost[:count]:
                if live := self._state.live_of(event):
                    self._state.rewritten(live, appended.queue_offset)

    def _append(self, events: Sequence[Event]) -> Appended:
        try:
            appended = self._put(list(events))
        except RecordTooLarge:
            if len(events) < _LEAST_PARTED:
                raise
            half = len(events) // 2
            self._append(events[:half])
            return self._append(events[half:])
        for event in events:
            self._state.apply(event, appended.queue_offset)
        return appended

    def insist(self, event: Event) -> None:
        """As `append`, but the state takes it though it cannot be written: it is, with the next."""
        try:
            self.append([event])
        except (StoreUnwritable, StoreClosed) as exc:
            log.warning("%s is not in the journal yet: %s", event, exc)
            self._state.apply(event, self.end)
            self._lost.append(event)

    def write(self, event: Event, tell: Told, claims: Sequence[Claim] = ()) -> None:
        """Write an event with the burst; `tell` is called as `Durability.when_safe` does.

        Args:
            claims: the messages it settles; nobody else settles them before it is written.
        """
        self._claimed.update(claims)
        self._burst.append((event, tell))
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_soon(self._end_burst)

    def is_claimed(self, claim: Claim) -> bool:
        return claim in self._claimed or claim in self._leaving

    @contextmanager
    def leaving(self, events: Sequence[Settled]) -> Iterator[None]:
        """Claim what is on its way to a retry topic, and is settled when it is safe there."""
        claims = {
            (event.queue, event.start, event.pop_time, offset)
            for event in events
            for offset in event.offsets
        }
        self._leaving |= claims
        try:
            yield
        finally:
            self._leaving -= claims

    def when_safe(self, tell: Told) -> None:
        """Tell when all that was written is safe: who says something twice waits as at first."""
        if self._burst:  # what it is said again of may be there
            self._burst.append((None, tell))
        elif self._last is None and not self._lost:
            tell(ResponseCode.SUCCESS)
        elif self._lost:
            self._append_and_tell([], [tell])
        elif self._last is not None:
            self._durability.when_safe(self._last, tell)

    def end_burst(self) -> None:
        """Write what waits for the end of its burst."""
        if self._ending is not None:
            self._ending.cancel()
            self._end_burst()

    def _end_burst(self) -> None:
        burst, self._burst = self._burst, []
        self._ending = None
        self._claimed.clear()
        events = merged(event for event, _ in burst if event is not None)
        self._append_and_tell(events, [tell for _, tell in burst])

    def _append_and_tell(self, events: Sequence[Event], tellers: Sequence[Told]) -> None:
        try:
            appended = self.append(events)
        except (StoreUnwritable, StoreClosed, RecordTooLarge) as exc:
            refused = exc if isinstance(exc, StoreUnwritable) else StoreUnwritable(str(exc))
            for tell in tellers:
                tell(refused)
            return
        for tell in tellers:
            self._durability.when_safe(appended, tell)

    def _put(self, events: list[Event]) -> Appended:
        appended = self._last = self._intake.append(self._draft(encode_events(events)))
        self._ages.note(appended.queue_offset, self._now())
        if self._durability.waits:
            self._watch(appended, events)
        return appended

    def _put_first(self, events: Sequence[Event]) -> tuple[Appended, int]:
        """Write as many of the first ones as fit into a record; says how many."""
        count = min(len(events), _MOST_AT_ONCE)
        while True:
            try:
                return self._put(list(events[:count])), count
            except RecordTooLarge:
                if count < _LEAST_PARTED:
                    raise
                count //= 2

    def _watch(self, appended: Appended, events: list[Event]) -> None:
        """Write it again if the store takes it back, however late."""

        def tell(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._lost += events
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_safe(appended, tell)

        self._durability.when_safe(appended, tell)

    def _draft(self, body: bytes) -> RecordDraft:
        born = int(self._now() * 1000)
        return RecordDraft(_TOPIC, body, b"", 0, born, self._store_host, self._store_host)

    # ---- keeping it short

    def rewrite(self, most_behind: int, longest: float = math.inf) -> bool:
        """Bring some of the oldest forward if they lie further back, or were written more than so
        many seconds ago; says whether there may be more.

        Raises:
            StoreUnwritable, StoreClosed: nothing has changed.
        """
        aged = self._ages.written_before(self._now() - longest)
        oldest = self._state.oldest
        if oldest is None or oldest.written >= max(self.end - most_behind, aged):
            return False
        # As many as fit, old or not: one by one, each record would make others old.
        chosen: list[Live] = list(islice(self._state.by_age(), _MOST_AT_ONCE))
        appended, count = self._put_first([live.event() for live in chosen])
        for live in chosen[:count]:
            self._state.rewritten(live, appended.queue_offset)
        return True

    # ---- reading it again

    def replay(self, first: int) -> int:
        """Have the state take all events from a record on; returns how many records. Blocks.

        Raises:
            JournalTorn: something is missing.
        """
        if self._store.min_offset(POP_JOURNAL_TOPIC, 0) > first or first > self.end:
            raise JournalTorn(f"it begins behind record {first}")
        for record in self._records(first):
            try:
                events = decode_events(bytes(record.body))
            except msgspec.DecodeError as exc:
                raise JournalTorn(f"record {record.queue_offset}: {exc}") from exc
            self._ages.note(record.queue_offset, record.store_timestamp / 1000)
            for event in events:
                self._state.apply(event, record.queue_offset)
        return self.end - first

    def _records(self, first: int) -> Iterator[Record]:
        end = self.end
        while first < end:
            found = self._store.read(POP_JOURNAL_TOPIC, 0, first, _CHUNK)
            if len(found.records) != found.next_offset - first:
                raise JournalTorn(f"records behind {first} cannot be read: {found.status.value}")
            for data in found.records:
                try:
                    record = read_record(data, check_crc=True)
                except BadRecord as exc:
                    raise JournalTorn(f"a record behind {first}: {exc}") from exc
                assert isinstance(record, Record)
                yield record
            first = found.next_offset
