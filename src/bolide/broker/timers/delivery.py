"""Delivers due timers to their topics, or rolls distant ones into the timer again."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.timers.checkpointing import Identity
from bolide.broker.timers.due_queue import LEAD_MS, DueQueue, DueTimer, recalled_by
from bolide.broker.timers.inspection import TimerCounts
from bolide.broker.timers.timetable import due_of
from bolide.kernel import read_record
from bolide.model.names import HALF_TOPIC, TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.codes import ResponseCode
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import MAX_PROPERTIES_SIZE, Record, RecordDraft
from bolide.protocol.record_errors import BadRecord, RecordTooLarge
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory, StoreUnwritable
from bolide.store.timers import TimerFiles

_MOST_DIGITS = 9


def delivered_draft(
    record: Record, properties: dict[str, str], store_host: bytes
) -> RecordDraft | None:
    """The message for its real topic, None if it belongs nowhere; all its properties stay."""
    topic = properties.get(PropertyName.REAL_TOPIC)
    queue_id = _number(properties.get(PropertyName.REAL_QUEUE_ID, ""))
    if topic is None or queue_id is None or topic in {HALF_TOPIC, TIMER_TOPIC}:
        return None
    return _draft(record, topic, queue_id, bytes(record.properties), store_host)


def rolled_draft(record: Record, properties: dict[str, str], store_host: bytes) -> RecordDraft:
    """The message as it is put into the timer again."""
    times = _number(properties.get(PropertyName.TIMER_ROLL_TIMES, "")) or 0
    kept = properties | {PropertyName.TIMER_ROLL_TIMES: str(times + 1)}
    text = encode_properties(kept).encode()
    if len(text) > MAX_PROPERTIES_SIZE:  # it must go on, counted or not
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


def _number(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if plain else None


log = logging.getLogger(__name__)

_TURN = 0.002
"""Seconds of deliveries until others are served."""
_TOO_LARGE_AGAIN = 10_000

Continued = Callable[[RecordDraft, dict[str, str]], Sequence[RecordDraft] | None]
"""Asked of a message that is about to be delivered, as it goes to its topic, and its properties:
what to append in its place, in that order. None: the message, as it is."""


class TimerDelivery:
    """Belongs to one event loop."""

    def __init__(  # noqa: PLR0913  where from, where to, and how it is told
        self,
        store: Store,
        intake: Intake,
        durability: Durability,
        *,
        files: TimerFiles,
        due_queue: DueQueue,
        counts: TimerCounts,
        store_host: bytes,
        on_delivered: Sequence[Continued],
        delivered: set[Identity],
        delivered_from: int | None,
    ) -> None:
        self._store = store
        self._intake = intake
        self._durability = durability
        self._files = files
        self._due_queue = due_queue
        self._counts = counts
        self._store_host = store_host
        self._on_delivered = on_delivered
        self._delivered = delivered
        self._delivered_from = delivered_from
        self._first_of_slot: dict[int, int] = {}
        """Where in the log the first delivery of an open slot lies."""
        self.is_carried: Callable[[int], bool] = lambda _: False
        """Asked whether the message at a place was put into the timer again meanwhile."""

    def delivered_from(self, end: int) -> int:
        """Before this place of the log nothing of the open slots was delivered."""
        cursor = self._due_queue.cursor
        for slot in [slot for slot in self._first_of_slot if slot < cursor]:
            del self._first_of_slot[slot]
        known = [] if self._delivered_from is None else [self._delivered_from]
        return min([*self._first_of_slot.values(), *known], default=end)

    def forget_delivered(self) -> None:
        """Say that the deliveries before the last crash are of the past."""
        self._delivered.clear()
        self._delivered_from = None

    async def step(self, clock: Callable[[], int]) -> bool:
        """Deliver some of what is due; says whether more is."""
        until = time.monotonic() + _TURN
        while (soon := self._due_queue.take(now_ms := clock())) is not None:
            try:
                self._deal_with(soon, await self._record(soon), now_ms)
            except RecordTooLarge as exc:
                self._put_off(soon, exc, now_ms)
            except BaseException:
                self._due_queue.put_back(soon)
                raise
            if time.monotonic() > until:
                return True
        return False

    async def _record(self, soon: DueTimer) -> Record | None:
        place = soon.physical_offset
        if self.is_carried(place):
            return None
        try:
            data = self._store.record_at(place, may_block=False)
        except NotInMemory:
            data = await asyncio.to_thread(self._store.record_at, place)
        try:
            record = None if data is None else read_record(bytes(data))
        except BadRecord as exc:
            log.warning("the timer message at %s is damaged and lost: %s", place, exc.reason)
            return None
        if isinstance(record, Record) and record.topic == TIMER_TOPIC:
            return record
        log.warning("the timer message at %s is gone", place)
        return None

    def _deal_with(self, soon: DueTimer, record: Record | None, now_ms: int) -> None:
        if record is None:
            self._due_queue.done(soon)
            return
        properties = record.decode_properties()
        due = due_of(properties, self._files.precision_ms) or 0
        recalls = recalled_by(properties)
        if due > now_ms + 2 * LEAD_MS:
            self._append(soon, properties, [self._rolled(soon, record, properties, now_ms)])
        elif recalls is not None:
            # One that was to come into the timer again may stand long before its message.
            self._due_queue.recall(recalls, max(soon.slot + 1, self._files.number(due)))
            self._done(soon, properties)
        elif due > soon.due:  # its unit says the slot (RocketMQ's), or when it was to roll
            self._due_queue.put_back(soon, due)
        elif self._is_recalled(properties):
            self._done(soon, properties)
        else:
            self._deliver(soon, record, properties, now_ms)

    def _is_recalled(self, properties: dict[str, str]) -> bool:
        topic = properties.get(PropertyName.REAL_TOPIC, "")
        return self._due_queue.is_recalled(topic, properties.get(PropertyName.UNIQUE_ID))

    def _rolled(
        self, soon: DueTimer, record: Record, properties: dict[str, str], now_ms: int
    ) -> RecordDraft:
        return rolled_draft(record, properties | _times(soon, now_ms), self._store_host)

    def _deliver(
        self, soon: DueTimer, record: Record, properties: dict[str, str], now_ms: int
    ) -> None:
        draft = delivered_draft(record, properties, self._store_host)
        if draft is None:
            log.error("the timer message at %s belongs nowhere", record.physical_offset)
            self._done(soon, properties)
            return
        for continued in self._on_delivered:
            if (drafts := continued(draft, properties)) is not None:
                self._append(soon, properties, drafts)
                return
        try:
            self._append(
                soon, properties, [with_properties(draft, properties | _times(soon, now_ms))]
            )
        except RecordTooLarge:
            self._append(soon, properties, [draft])

    def _append(
        self, soon: DueTimer, properties: dict[str, str], drafts: Sequence[RecordDraft]
    ) -> None:
        done = []
        for draft in drafts:
            if not self._is_delivered(draft):
                try:
                    done.append((draft, self._intake.append(draft)))
                except RecordTooLarge:
                    raise
                except ValueError as exc:
                    log.warning("a message of the timer cannot be kept: %s", exc)
        self._counts.deliveries.add()
        self._counts.gone(properties.get(PropertyName.REAL_TOPIC))
        if done:
            self._first_of_slot.setdefault(soon.slot, done[0][1].physical_offset)
            self._watch(soon, done)
        else:
            self._due_queue.done(soon)

    def _is_delivered(self, draft: RecordDraft) -> bool:
        """Whether it went out before a crash."""
        if not self._delivered or (identity := _identity(draft)) not in self._delivered:
            return False
        self._delivered.discard(identity)
        return True

    def _watch(self, soon: DueTimer, done: list[tuple[RecordDraft, Appended]]) -> None:
        """Deliver it again if the store takes it back, however late."""
        last = done[-1][1]

        def tell(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._keep_in_mind([draft for draft, at in done if at.end <= self._store.flushed])
                self._due_queue.put_back(soon)
            elif outcome == ResponseCode.SUCCESS:
                self._due_queue.done(soon)
            else:
                self._durability.when_safe(last, tell)

        self._durability.when_safe(last, tell)

    def _keep_in_mind(self, drafts: Sequence[RecordDraft]) -> None:
        """Those of a delivery that the store did not take back need not go out again."""
        self._delivered |= {identity for each in drafts if (identity := _identity(each))}

    def _done(self, soon: DueTimer, properties: dict[str, str]) -> None:
        """It goes nowhere."""
        self._counts.gone(properties.get(PropertyName.REAL_TOPIC))
        self._due_queue.done(soon)

    def _put_off(self, soon: DueTimer, exc: RecordTooLarge, now_ms: int) -> None:
        """It fitted once, and may again: the others do not wait for it."""
        log.error(
            "the timer message at %s waits: %s; raise maxMessageSize again",
            soon.physical_offset, exc,
        )  # fmt: skip
        self._due_queue.put_back(soon, now_ms + _TOO_LARGE_AGAIN)


def _identity(draft: RecordDraft) -> Identity | None:
    properties = decode_properties(str(draft.properties, "utf-8", "replace"))
    return Identity.of(draft.topic.decode(), properties)


def _times(soon: DueTimer, now_ms: int) -> dict[str, str]:
    return {
        PropertyName.TIMER_ENQUEUE_MS: str(soon.waiting.written),
        PropertyName.TIMER_DEQUEUE_MS: str(now_ms),
    }
