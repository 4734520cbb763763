"""Ends transactions: a commit delivers the message to its topic, a rollback drops it."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.background import message_at
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.produce.addressing import address
from bolide.broker.produce.durability import Durability, unavailable
from bolide.broker.produce.intake import Intake
from bolide.broker.statistics import Statistics
from bolide.broker.timers.timetable import Timetable
from bolide.broker.transactions.half_messages import Half
from bolide.broker.transactions.half_queue import HalfClosing, HalfQueue
from bolide.model.message import TransactionType
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.record import Record
from bolide.protocol.record_errors import RecordTooLarge
from bolide.protocol.refusals import (
    IllegalOperation,
    MessageIllegal,
    ServerError,
    TopicNotFound,
    TransactionFailed,
)
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory, StoreClosed, StoreUnwritable

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 5
"""Attempts, since a half may be moved during the lookup."""
_ENDS = {TransactionType.COMMIT: "committed", TransactionType.ROLLBACK: "rolled back"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingParts:
    """Collaborators of `TransactionEnder`."""

    store: Store
    topics: TopicTable
    intake: Intake
    duplicates: Duplicates
    durability: Durability
    statistics: Statistics
    store_host: bytes
    max_level: int
    timetable: Timetable
    now: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class EndRequest:
    """A request to end a transaction, identified by one of its half messages.

    `group` is None for an administrator, who may end any transaction; `by` is then their name.
    `check_half` raises NoPermission if the sender may not send to the topic of the half.
    """

    physical_offset: int
    queue_offset: int | None
    state: TransactionType
    group: str | None
    from_check: bool = False
    by: str = ""
    check_half: Callable[[Record], None] = lambda record: None


class MustWait(Exception):
    """The transaction cannot be ended without waiting."""


class TransactionEnder:
    """Ends transactions; belongs to one event loop."""

    def __init__(self, parts: EndingParts, queue: HalfQueue) -> None:
        self._parts = parts
        self._queue = queue

    def end_now(self, request: EndRequest) -> Appended | None:
        """End a transaction whose half is open and in memory.

        Returns:
            The append that must become durable, or None.

        Raises:
            Wait: call `end` instead.
            Refusal: as `end`.
        """
        if not self._queue.is_loaded:
            raise MustWait
        try:
            half = Half.find(self._parts.store.message_at(request.physical_offset, may_block=False))
        except NotInMemory:
            raise MustWait from None
        half = self._check(half, request)
        if not self._is_open(half) or self._awaits_dedup_window(half):
            raise MustWait
        return self._end(half, request)

    async def end(self, request: EndRequest) -> None:
        """End a transaction and wait until its end is durable.

        Raises:
            ServerError: there is no such half, or it belongs to another group.
            NoPermission: its sender may not send to the topic of the half.
            IllegalOperation: the producer is too late; the check-back will ask it.
            TransactionFailed: the transaction has ended in another state, or in an unknown one.
            TopicNotFound: the topic of the message was deleted.
            MessageIllegal: the message exceeds the current size limit.
            ServiceNotAvailable: the store accepts no messages now.
        """
        await self._queue.loaded()
        data = await message_at(self._parts.store, request.physical_offset)
        half = self._check(Half.find(data), request)
        for _ in range(_MAX_ATTEMPTS):
            if not self._is_open(half):
                newest = await self._queue.find_newest(half)
                if newest is None:
                    return await self._check_previous_end(half, request)
                request.check_half(newest.record)
                half = self.resume(newest)[0] if newest.is_set_aside else newest
            elif self._awaits_dedup_window(half):
                await self._parts.duplicates.windows.ready(half.topic)
            else:
                return await self.wait_durable(self._end(half, request))
        raise ServerError(f"transaction {half.unique_id} is being moved: try again")

    def resume(self, half: Half) -> tuple[Half, Appended]:
        """Reopen a half that was set aside, so that its producer is asked again.

        Raises:
            ServiceNotAvailable: the store accepts no messages now.
        """
        try:
            return self._queue.move(half, check_times=0)
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc

    # ---- checks

    def _check(self, half: Half | None, request: EndRequest) -> Half:
        if half is None or (half.is_set_aside and request.group is not None):
            raise ServerError("Find prepared transaction message failed")
        request.check_half(half.record)
        if request.group is not None and half.group != request.group:
            raise ServerError(
                f"The producer group wrong: transaction {half.unique_id} is of {half.group!r}"
            )
        if request.queue_offset not in (None, half.queue_offset):
            raise ServerError("The transaction state table offset wrong")
        if request.group is not None and not request.from_check and self._is_late(half):
            raise IllegalOperation(
                f"transaction {half.unique_id} is older than its {half.immunity} s: its producer is"
                " asked, and may answer then"
            )
        return half

    def _is_late(self, half: Half) -> bool:
        return half.immunity is not None and self._parts.now() - half.began > half.immunity

    def _is_open(self, half: Half) -> bool:
        return not half.is_set_aside and self._queue.open.is_open(half.queue_offset)

    def _awaits_dedup_window(self, half: Half) -> bool:
        return PropertyName.DEDUP_KEY in half.properties and (
            self._parts.duplicates.windows.is_reading(half.topic)
        )

    # ---- ending

    def _end(self, half: Half, request: EndRequest) -> Appended | None:
        delivered = self._deliver(half) if request.state is TransactionType.COMMIT else None
        if request.by:
            log.warning(
                "transaction %s of %s is %s by %s",
                half.unique_id, half.group, _ENDS[request.state], request.by,
            )  # fmt: skip
        try:
            closed = self._queue.close(HalfClosing(half, request.state, delivered, request.by))
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        traffic = self._parts.statistics.traffic
        if request.state is TransactionType.COMMIT:
            age = self._parts.now() - half.record.born_timestamp / 1000
            traffic.transaction_committed(half.topic, age)
        else:
            traffic.transaction_rolled_back(half.topic)
        return closed

    def _deliver(self, half: Half) -> Appended | None:
        """Append the message to its topic; return None for a duplicate."""
        topic = self._parts.topics.find(half.topic)
        if topic is None:
            raise TopicNotFound(
                f"topic {half.topic!r} of transaction {half.unique_id} does not exist: create it"
                " again, or roll back"
            )
        try:
            stored = self._append(half, topic)
        except RecordTooLarge as exc:
            raise MessageIllegal(f"{exc}: raise maxMessageSize, or roll back") from exc
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        except ValueError as exc:
            raise MessageIllegal(str(exc)) from exc
        return stored[-1] if stored else None

    def _append(self, half: Half, topic: TopicConfig) -> list[Appended]:
        """Append the message unless it is a duplicate, and count it; return the new records."""
        parts, queue_id = self._parts, _queue_of(half, topic)
        draft = half.committed_draft(parts.store_host, queue_id)
        draft = address(draft, dict(half.properties), parts.max_level, parts.timetable)
        keyed = PropertyName.DEDUP_KEY in half.properties
        if keyed and parts.duplicates.windows.covers(half.topic):
            stored = parts.duplicates.append(half.topic, queue_id, [draft]).fresh
        else:
            stored = [parts.intake.append(draft)]
        for each in stored:
            parts.statistics.stored(draft.topic.decode(), draft.queue_id, each.size)
        return stored

    async def _check_previous_end(self, half: Half, request: EndRequest) -> None:
        ended = self._queue.find_end(half)
        if ended is None:
            raise TransactionFailed(f"transaction {half.unique_id} has ended before")
        if ended.state is not request.state:
            raise TransactionFailed(f"transaction {half.unique_id} was {_ENDS[ended.state]} before")
        await self.wait_durable(ended.op)

    async def wait_durable(self, stored: Appended | None) -> None:
        """Wait until a message is durable, if the flush mode requires it.

        Raises:
            ServiceNotAvailable: the message was lost.
        """
        if stored is None:
            return
        try:
            await self._parts.durability.wait_durable(stored)
        except StoreUnwritable as exc:
            raise unavailable(exc) from exc


def _queue_of(half: Half, topic: TopicConfig) -> int:
    """Return the queue of the message, or another one if the topic has fewer queues now."""
    queue_count = max(topic.write_queue_nums, topic.read_queue_nums)
    if half.queue_id < queue_count:
        return half.queue_id
    return half.queue_id % max(topic.write_queue_nums, 1)
