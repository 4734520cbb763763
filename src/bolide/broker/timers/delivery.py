"""Delivers due timer messages to their topics, and re-appends distant ones to the timer."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from bolide.broker.background import TIMERS, on_thread
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.timers.checkpointing import DeliveryIdentity
from bolide.broker.timers.due_queue import LEAD_MS, DueQueue, DueTimer, recalled_by
from bolide.broker.timers.inspection import TimerCounts
from bolide.broker.timers.timetable import due_of
from bolide.kernel import read_record
from bolide.model.names import HALF_TOPIC, TIMER_TOPIC
from bolide.model.properties import INT_DIGITS, PropertyName, parse_number
from bolide.protocol.codes import ResponseCode
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import MAX_PROPERTIES_SIZE, Record, RecordDraft
from bolide.protocol.record_errors import BadRecord, RecordTooLarge
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory, StoreUnwritable
from bolide.store.timers import TimerFiles

log = logging.getLogger(__name__)

_MAX_TURN = 0.002
"""Seconds of deliveries after which the event loop serves others."""
_TOO_LARGE_RETRY_MS = 10_000
_REMEMBERED_SLOTS = 600

Continuation = Callable[[RecordDraft, dict[str, str]], Sequence[RecordDraft] | None]
"""Called with a message about to be delivered to its topic, and its properties; returns the drafts
to append in its place, in that order, or None to deliver the message unchanged."""


OnStored = Callable[[str, int, int], None]
"""Called with the topic, queue and size of each message that is stored."""


class TimerDelivery:
    """Delivers from the due queue; belongs to one event loop."""

    def __init__(  # noqa: PLR0913
        self,
        store: Store,
        intake: Intake,
        durability: Durability,
        *,
        files: TimerFiles,
        due_queue: DueQueue,
        counts: TimerCounts,
        store_host: bytes,
        continuations: Sequence[Continuation],
        on_stored: OnStored,
        delivered: set[DeliveryIdentity],
        delivered_from: int | None,
        first_deliveries: Mapping[int, int],
    ) -> None:
        self._store = store
        self._intake = intake
        self._durability = durability
        self._files = files
        self._due_queue = due_queue
        self._counts = counts
        self._store_host = store_host
        self._continuations = continuations
        self._on_stored = on_stored
        self._delivered = delivered
        self._delivered_from = delivered_from
        self._first_of_slot = dict(first_deliveries)
        """Physical offset of the first delivery from each open slot."""
        self._passed: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED_SLOTS)
        """The same of the slots that the cursor passed last."""
        self.is_carried: Callable[[int], bool] = lambda _: False
        """Returns whether the message at a physical offset was re-appended meanwhile."""

    def delivered_from(self, end: int) -> int:
        """Return a physical offset before which nothing of the open slots was delivered."""
        cursor = self._due_queue.cursor
        for slot in [slot for slot in self._first_of_slot if slot < cursor]:
            self._passed.append((slot, self._first_of_slot.pop(slot)))
        known = [] if self._delivered_from is None else [self._delivered_from]
        return min([*self._first_of_slot.values(), *known], default=end)

    @property
    def first_deliveries(self) -> dict[int, int]:
        """Physical offset of the first delivery from each slot, also from some that are done: they
        are open again if the clock is set back."""
        return {**dict(self._passed), **self._first_of_slot}

    def forget_delivered(self) -> None:
        """Drop the deliveries found in the log after the last crash."""
        self._delivered.clear()
        self._delivered_from = None

    async def step(self, clock: Callable[[], int]) -> bool:
        """Deliver due messages for one turn; return whether more are due."""
        until = time.monotonic() + _MAX_TURN
        while (timer := self._due_queue.pop_due(now_ms := clock())) is not None:
            try:
                self._process(timer, await self._record(timer), now_ms)
            except RecordTooLarge as exc:
                self._postpone(timer, exc, now_ms)
            except BaseException:
                self._due_queue.put_back(timer)
                raise
            if time.monotonic() > until:
                return True
        return False

    async def _record(self, timer: DueTimer) -> Record | None:
        physical_offset = timer.physical_offset
        if self.is_carried(physical_offset):
            return None
        try:
            data = self._store.record_at(physical_offset, may_block=False)
        except NotInMemory:
            data = await on_thread(TIMERS, self._store.record_at, physical_offset)
        try:
            record = None if data is None else read_record(bytes(data))
        except BadRecord as exc:
            log.warning("dropping the damaged timer message at %s: %s", physical_offset, exc.reason)
            return None
        if isinstance(record, Record) and record.topic == TIMER_TOPIC:
            return record
        log.warning("the timer message at %s no longer exists", physical_offset)
        return None

    def _process(self, timer: DueTimer, record: Record | None, now_ms: int) -> None:
        if record is None:
            self._due_queue.complete(timer)
            return
        properties = record.decode_properties()
        due = due_of(properties, self._files.precision_ms) or 0
        recalls = recalled_by(properties)
        if due > now_ms + 2 * LEAD_MS:
            self._append(timer, properties, [self._rolled(timer, record, properties, now_ms)])
        elif recalls is not None:
            # A recall that was re-appended may precede its message by far.
            self._due_queue.recall(recalls, max(timer.slot + 1, self._files.number(due)))
            self._drop(timer, properties)
        elif due > timer.due:  # its entry has the slot time (RocketMQ) or the roll time
            self._due_queue.put_back(timer, due)
        elif self._is_recalled(properties):
            self._drop(timer, properties)
        else:
            self._deliver(timer, record, properties, now_ms)

    def _is_recalled(self, properties: dict[str, str]) -> bool:
        topic = properties.get(PropertyName.REAL_TOPIC, "")
        return self._due_queue.is_recalled(topic, properties.get(PropertyName.UNIQUE_ID))

    def _rolled(
        self, timer: DueTimer, record: Record, properties: dict[str, str], now_ms: int
    ) -> RecordDraft:
        return rolled_draft(record, properties | _times(timer, now_ms), self._store_host)

    def _deliver(
        self, timer: DueTimer, record: Record, properties: dict[str, str], now_ms: int
    ) -> None:
        draft = delivered_draft(record, properties, self._store_host)
        if draft is None:
            log.error("the timer message at %s names no valid topic", record.physical_offset)
            self._drop(timer, properties)
            return
        for continuation in self._continuations:
            if (drafts := continuation(draft, properties)) is not None:
                self._append(timer, properties, drafts)
                return
        try:
            self._append(
                timer, properties, [with_properties(draft, properties | _times(timer, now_ms))]
            )
        except RecordTooLarge:
            self._append(timer, properties, [draft])

    def _append(
        self, timer: DueTimer, properties: dict[str, str], drafts: Sequence[RecordDraft]
    ) -> None:
        appended = []
        for draft in drafts:
            if not self._is_delivered(draft):
                try:
                    appended.append((draft, stored := self._intake.append(draft)))
                    self._on_stored(draft.topic.decode(), draft.queue_id, stored.size)
                except RecordTooLarge:
                    raise
                except ValueError as exc:
                    log.warning("a timer message cannot be stored: %s", exc)
        self._counts.record_delivery(properties.get(PropertyName.REAL_TOPIC))
        if appended:
            self._first_of_slot.setdefault(timer.slot, appended[0][1].physical_offset)
            self._complete_when_durable(timer, appended)
        else:
            self._due_queue.complete(timer)

    def _is_delivered(self, draft: RecordDraft) -> bool:
        """Whether the message was delivered before a crash."""
        if not self._delivered or (identity := _identity(draft)) not in self._delivered:
            return False
        self._delivered.discard(identity)
        return True

    def _complete_when_durable(
        self, timer: DueTimer, appended: list[tuple[RecordDraft, Appended]]
    ) -> None:
        """Complete the timer once its delivery is durable; deliver again if the delivery is
        lost."""
        last = appended[-1][1]

        def on_durable(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._remember_delivered(
                    [draft for draft, at in appended if at.end <= self._store.flushed]
                )
                self._due_queue.put_back(timer)
            elif outcome == ResponseCode.SUCCESS:
                self._due_queue.complete(timer)
            else:
                self._durability.when_durable(last, on_durable)

        self._durability.when_durable(last, on_durable)

    def _remember_delivered(self, drafts: Sequence[RecordDraft]) -> None:
        """Remember which messages of a lost delivery survived, so they are not appended again."""
        self._delivered |= {identity for each in drafts if (identity := _identity(each))}

    def _drop(self, timer: DueTimer, properties: dict[str, str]) -> None:
        """Complete a timer without delivering it."""
        self._counts.record_departure(properties.get(PropertyName.REAL_TOPIC))
        self._due_queue.complete(timer)

    def _postpone(self, timer: DueTimer, exc: RecordTooLarge, now_ms: int) -> None:
        """Retry later: `maxMessageSize` was lowered, and other messages do not wait for this
        one."""
        log.error(
            "the timer message at %s is postponed: %s; raise maxMessageSize again",
            timer.physical_offset, exc,
        )  # fmt: skip
        self._due_queue.put_back(timer, now_ms + _TOO_LARGE_RETRY_MS)


def _identity(draft: RecordDraft) -> DeliveryIdentity | None:
    properties = decode_properties(str(draft.properties, "utf-8", "replace"))
    return DeliveryIdentity.of(draft.topic.decode(), properties)


def _times(timer: DueTimer, now_ms: int) -> dict[str, str]:
    return {
        PropertyName.TIMER_ENQUEUE_MS: str(timer.entry.written),
        PropertyName.TIMER_DEQUEUE_MS: str(now_ms),
    }


def delivered_draft(
    record: Record, properties: dict[str, str], store_host: bytes
) -> RecordDraft | None:
    """Build the message for its real topic, with all properties; None if it names no valid
    topic."""
    topic = properties.get(PropertyName.REAL_TOPIC)
    queue_id = parse_number(properties.get(PropertyName.REAL_QUEUE_ID), INT_DIGITS)
    if topic is None or queue_id is None or topic in {HALF_TOPIC, TIMER_TOPIC}:
        return None
    return _draft(record, topic, queue_id, bytes(record.properties), store_host)


def rolled_draft(record: Record, properties: dict[str, str], store_host: bytes) -> RecordDraft:
    """Build the copy of a message that is appended to the timer topic again."""
    times = parse_number(properties.get(PropertyName.TIMER_ROLL_TIMES), INT_DIGITS) or 0
    updated = properties | {PropertyName.TIMER_ROLL_TIMES: str(times + 1)}
    text = encode_properties(updated).encode()
    if len(text) > MAX_PROPERTIES_SIZE:  # deliver it even without the count
        text = bytes(record.properties)
    return _draft(record, TIMER_TOPIC, 0, text, store_host)


def with_properties(draft: RecordDraft, properties: dict[str, str]) -> RecordDraft:
    return draft._replace(properties=encode_properties(properties).encode())


def _draft(
    record: Record, topic: str, queue_id: int, properties: bytes, store_host: bytes
) -> RecordDraft:
    return RecordDraft(
        topic.encode(), bytes(record.body), properties, queue_id, record.born_timestamp,
        record.born_host, store_host, record.flag, record.sys_flag, record.reconsume_times,
        record.prepared_transaction_offset,
    )  # fmt: skip
