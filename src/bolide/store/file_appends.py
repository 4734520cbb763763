"""How a store in files appends messages: the record, the unit of its queue, its keys.

`append` and `append_batch` encode records. The fast path of a broker encodes them itself, between
`reserve` and `publish`. All of them hold the append lock.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from bolide.kernel import SCHEDULE_TOPIC, Units, describe
from bolide.kernel.units import UNIT
from bolide.protocol.record import MAX_V1_TOPIC_SIZE, RecordDraft
from bolide.store.appending import (
    NOT_QUEUED,
    ROLLBACK,
    TRANSACTION,
    Appended,
    AppendRoom,
    check_one_queue,
    delivery_time,
    is_inner_batch,
    measure,
    refuse_inner_batches,
    with_end,
    with_inner_base,
    with_seal_room,
)
from bolide.store.batch_queue import BatchQueue, BatchUnit, inner_count
from bolide.store.commit_log import CommitLog
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flusher
from bolide.store.health import DISK_SPACE, LOG_FILES, Health
from bolide.store.key_index import PendingKeys
from bolide.store.maintenance import StoreMaintenance
from bolide.store.queries import Queries
from bolide.store.queue_table import QueueTable

log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Seconds since 1970."""


class FileAppends(Queries):
    """The appends of a `MessageStore`, serialized by a lock."""

    log: CommitLog
    queues: QueueTable
    health: Health
    flusher: Flusher
    maintenance: StoreMaintenance
    _clock: Clock
    _lock: threading.Lock
    _room: AppendRoom
    """Guarded by the lock."""
    _keys: PendingKeys
    _delays: tuple[int, ...]
    _seal: bool
    _max_message_size: int
    _units: int
    refusal: StoreUnwritable | None = None
    """Why appends are refused though the disk is fine, for example because this is a replica."""
    _refusals: dict[type[StoreUnwritable], StoreUnwritable]

    def refuse(self, reason: StoreUnwritable) -> None:
        """Refuse appends until `stop_refusing` is called with the type of the reason."""
        self._refusals = {**self._refusals, type(reason): reason}
        self.refusal = next(iter(self._refusals.values()))

    def stop_refusing(self, *kinds: type[StoreUnwritable]) -> None:
        """Lift the refusals of these types; without any, all of them."""
        left = {} if not kinds else {k: r for k, r in self._refusals.items() if k not in kinds}
        self._refusals = left
        self.refusal = next(iter(left.values()), None)

    def append(self, draft: RecordDraft, *, makes_room: bool = False) -> Appended:
        """Append one message. It is readable at once, or with SYNC_FLUSH after the flush.

        With SYNC_FLUSH the caller must call `end_burst` or `wait_flushed`, which wake the flusher.

        Args:
            makes_room: the message allows a log file to be deleted, and is therefore accepted even
                if disk usage is above the warning level.

        Raises:
            RecordTooLarge: body, topic or properties are over their limits.
            StoreUnwritable: the disk is full or fails; carries the reason.
            ValueError: topic or queue id cannot name a directory, or a number does not fit its
                field.
        """
        if is_inner_batch(draft):
            return self._append_inner_batch(draft)
        draft = with_seal_room(draft) if self._seal else with_end(draft)
        size = measure(draft, self._max_message_size)
        facts = describe(draft.topic, draft.properties)
        with self._lock:
            self._refuse_if_closed(nearly_full=makes_room)
            return self._put(draft, size, facts, int(self._clock() * 1000))

    def _append_inner_batch(self, draft: RecordDraft) -> Appended:
        """Append a batch as one record, which names the queue offset of its first message."""
        count = inner_count(draft)
        measure(draft, self._max_message_size)  # before a queue is made for it
        with self._lock:
            self._refuse_if_closed()
            queue = self.queues.require(draft.topic, draft.queue_id)
            if not queue.is_batched:
                refuse_inner_batches((draft,))
            draft = with_inner_base(draft, queue.max_offset)
            draft = with_seal_room(draft) if self._seal else with_end(draft)
            size = measure(draft, self._max_message_size)
            facts = describe(draft.topic, draft.properties)
            return self._put(draft, size, facts, int(self._clock() * 1000), count)

    def append_batch(self, drafts: Sequence[RecordDraft]) -> list[Appended]:
        """Append messages of one topic and queue contiguously: all of them or none.

        Raises: as `append`.
        """
        refuse_inner_batches(drafts)
        drafts = list(map(with_seal_room if self._seal else with_end, drafts))
        sizes = [measure(draft, self._max_message_size) for draft in drafts]
        facts = [describe(draft.topic, draft.properties) for draft in drafts]
        check_one_queue(drafts)
        with self._lock:
            self._refuse_if_closed()
            self.queues.require(drafts[0].topic, drafts[0].queue_id)
            try:
                self.log.reserve(sum(sizes))
            except OSError as exc:
                raise self._unwritable(exc) from exc
            now = int(self._clock() * 1000)
            return [self._put(*each, now) for each in zip(drafts, sizes, facts, strict=True)]

    def _put(
        self,
        draft: RecordDraft,
        size: int,
        facts: tuple[int, tuple[int, ...]],
        timestamp: int,
        count: int = 1,
    ) -> Appended:
        queue = self.queues.require(draft.topic, draft.queue_id)
        kind = draft.sys_flag & TRANSACTION
        queued = kind not in NOT_QUEUED
        queue_offset = queue.max_offset if queued else 0
        if queued and queue_offset == 0 and len(draft.topic) > MAX_V1_TOPIC_SIZE:
            log.warning(
                "RocketMQ 4.9 cannot read messages of topic %r: its name is long", draft.topic
            )
        try:
            position = self.log.put(draft, size, queue_offset, timestamp, seal=self._seal)
        except OSError as exc:
            raise self._unwritable(exc) from exc
        code, hashes = facts
        if queued:
            if draft.topic == SCHEDULE_TOPIC:
                code = delivery_time(draft, timestamp, code, self._delays)
            if isinstance(queue, BatchQueue):
                queue.add(BatchUnit(position, size, code, timestamp, queue_offset, count))
            else:
                queue.append(UNIT.pack(position, size, code))
            self.queues.changed(queue)
            self._units += count
        if hashes and kind != ROLLBACK:
            self._keys.add(hashes, position, timestamp)
        self.maintenance.appended(position)
        return Appended(position, size, queue_offset, timestamp, self.flusher.generation)

    @property
    def takes_raw_records(self) -> bool:
        """Whether `reserve` may be used; false if records are sealed with a checksum."""
        return not self._seal

    def reserve(self) -> AppendRoom | None:
        """Acquire the append lock and return the free room at the end of the log.

        For a caller that encodes records itself. It writes them into the room, adds their units to
        the tails of their queues and their keys to the room, and then calls `publish` exactly once,
        in every case, on the same thread. All other appends wait until then, so the caller must not
        block, call the store, or run foreign code.

        Returns:
            None, without the lock, if the store is closed or refuses messages.
        """
        self._lock.acquire()
        if not self._open or self.health.causes or self.refusal is not None:
            self._lock.release()
            return None
        room = self._room
        room.timestamp = int(self._clock() * 1000)
        room.keys = self._keys.items
        self.log.reserve_rest(room)
        return room

    def tail(self, topic: bytes, queue_id: int) -> Units:
        """Return the newest units of a queue, which is created if it does not exist.

        Callers of `reserve` append to it. It is closed when the queue is removed.

        Raises:
            ValueError: topic or queue id cannot name a directory, or it is a batch queue.
        """
        with self._lock:
            queue = self.queues.require(topic, queue_id)
            if queue.is_batched:
                raise ValueError(f"the units of topic {topic!r} stand for batches")
            return queue.tail

    def publish(
        self, room: AppendRoom, size: int, count: int, last_record: int, changed: Sequence[Units]
    ) -> tuple[int, int]:
        """Add the records in the room to the log, and release the append lock.

        Args:
            size: bytes of whole records from the beginning of the room; may be 0.
            count: number of records.
            last_record: physical offset of the last record.
            changed: tails that received units and were not passed to `publish` since they were
                last written to their files (`Units.is_changed`).

        Returns:
            The end of the log and its generation, for `wait_flushed`.
        """
        try:
            if size:
                self.log.publish(room, size, last_record)
                self._units += count
                if self.log.end > self.maintenance.notify_from:
                    self.maintenance.appended(last_record)
            for units in changed:
                self.queues.changed(units.owner)
            return self.log.end, self.flusher.generation
        finally:
            self._lock.release()

    def _unwritable(self, exc: OSError) -> StoreUnwritable:
        """Record in `health` that no further log file can be allocated."""
        reason = f"the next log file cannot be made: {exc}"
        self.health.refuse(LOG_FILES, reason)
        return StoreUnwritable(reason)

    def _refuse_if_closed(self, *, nearly_full: bool = False) -> None:
        self._require_open()
        if self.refusal is not None:
            raise self.refusal
        if self.health.causes and not (nearly_full and self.health.causes.keys() == {DISK_SPACE}):
            self.health.check()
