"""How transactions end: the message goes where it belongs, or nowhere."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.background import record_at
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.produce.addressing import address
from bolide.broker.produce.durability import Durability, unavailable
from bolide.broker.produce.intake import Intake
from bolide.broker.statistics import Statistics
from bolide.broker.timers.timetable import Timetable
from bolide.broker.transactions.half_messages import Half
from bolide.broker.transactions.half_queue import Act, HalfQueue
from bolide.model.message import TransactionType
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
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

_TRIES = 5
"""A half may be moved while it is looked for."""
_ENDS = {TransactionType.COMMIT: "committed", TransactionType.ROLLBACK: "rolled back"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingParts:
    """What the end of a transaction needs of the broker."""

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
class Ending:
    """What somebody wants: by the half message that he knows of.

    `group` is None for an administrator, who may end all of them; `by` is his name then.
    """

    physical_offset: int
    queue_offset: int | None
    state: TransactionType
    group: str | None
    from_check: bool = False
    by: str = ""


class Wait(Exception):
    """It cannot be ended at once."""


class Endings:
    """Ends transactions; belongs to one event loop."""

    def __init__(self, parts: EndingParts, queue: HalfQueue) -> None:
        self._parts = parts
        self._queue = queue

    def end_now(self, ending: Ending) -> Appended | None:
        """End a transaction whose half is open and in memory.

        Returns:
            What must be safe for that, None if nothing must.

        Raises:
            Wait: call `end` instead.
            Refusal: as `end`.
        """
        if not self._queue.is_loaded:
            raise Wait
        try:
            half = Half.find(self._parts.store.record_at(ending.physical_offset, may_block=False))
        except NotInMemory:
            raise Wait from None
        half = self._checked(half, ending)
        if not self._is_open(half) or self._must_wait(half):
            raise Wait
        return self._end(half, ending)

    async def end(self, ending: Ending) -> None:
        """End a transaction and wait until that is safe.

        Raises:
            ServerError: there is no such half, or it is another group's.
            IllegalOperation: the producer had to be faster; it will be asked.
            TransactionFailed: it has ended already, and not so, or nobody knows how.
            TopicNotFound: the topic of the message is gone.
            MessageIllegal: the message is too large now.
            ServiceNotAvailable: the store takes no messages now.
        """
        await self._queue.loaded()
        data = await record_at(self._parts.store, ending.physical_offset)
        half = self._checked(Half.find(data), ending)
        for _ in range(_TRIES):
            if not self._is_open(half):
                newest = await self._queue.find_newest(half)
                if newest is None:
                    return await self._ended_before(half, ending)
                half = self.resume(newest)[0] if newest.is_aside else newest
            elif self._must_wait(half):
                await self._parts.duplicates.windows.ready(half.topic)
            else:
                return await self.safe(self._end(half, ending))
        raise ServerError(f"transaction {half.unique_id} is being moved: try again")

    def resume(self, half: Half) -> tuple[Half, Appended]:
        """Have the producer of a half that was set aside asked again; it is open from now on.

        Raises:
            ServiceNotAvailable: the store takes no messages now.
        """
        try:
            return self._queue.move(half, times=0)
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc

    # ---- checks

    def _checked(self, half: Half | None, ending: Ending) -> Half:
        if (
            half is None
            or not self._is_stored(half)
            or (half.is_aside and ending.group is not None)
        ):
            raise ServerError("Find prepared transaction message failed")
        if ending.group is not None and half.group != ending.group:
            raise ServerError(
                f"The producer group wrong: transaction {half.unique_id} is of {half.group!r}"
            )
        if ending.queue_offset not in (None, half.queue_offset):
            raise ServerError("The transaction state table offset wrong")
        if ending.group is not None and not ending.from_check and self._is_late(half):
            raise IllegalOperation(
                f"transaction {half.unique_id} is older than its {half.immunity} s: its producer is"
                " asked, and may answer that"
            )
        return half

    def _is_stored(self, half: Half) -> bool:
        """The body of a message may look like a half with a number that none has."""
        return half.queue_offset < self._parts.store.max_offset(half.record.topic, 0)

    def _is_late(self, half: Half) -> bool:
        return half.immunity is not None and self._parts.now() - half.began > half.immunity

    def _is_open(self, half: Half) -> bool:
        return not half.is_aside and self._queue.open.is_open(half.queue_offset)

    def _must_wait(self, half: Half) -> bool:
        return PropertyName.DEDUP_KEY in half.properties and (
            self._parts.duplicates.windows.is_reading(half.topic)
        )

    # ---- ending

    def _end(self, half: Half, ending: Ending) -> Appended | None:
        after = self._deliver(half) if ending.state is TransactionType.COMMIT else None
        if ending.by:
            log.warning(
                "transaction %s of %s is %s by %s",
                half.unique_id, half.group, _ENDS[ending.state], ending.by,
            )  # fmt: skip
        try:
            return self._queue.close(Act(half, ending.state, after, ending.by))
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc

    def _deliver(self, half: Half) -> Appended | None:
        """Where the message is now; None if it is a repeat."""
        topic = self._parts.topics.find(half.topic)
        if topic is None:
            raise TopicNotFound(
                f"topic {half.topic!r} of transaction {half.unique_id} does not exist: create it"
                " again, or roll back"
            )
        started = self._parts.now()
        try:
            stored = self._put(half, topic)
        except RecordTooLarge as exc:
            raise MessageIllegal(f"{exc}: raise maxMessageSize, or roll back") from exc
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        except ValueError as exc:
            raise MessageIllegal(str(exc)) from exc
        for each in stored:
            took, name = self._parts.now() - started, topic.topic_name
            self._parts.statistics.sent(name, half.queue_id, 1, each.size, took)
        return stored[-1] if stored else None

    def _put(self, half: Half, topic: TopicConfig) -> list[Appended]:
        """Append the message unless it is a repeat; what is new."""
        parts, queue_id = self._parts, _queue_of(half, topic)
        draft = half.committed(parts.store_host, queue_id)
        draft = address(draft, dict(half.properties), parts.max_level, parts.timetable)
        keyed = PropertyName.DEDUP_KEY in half.properties
        if keyed and parts.duplicates.windows.covers(half.topic):
            return parts.duplicates.append(half.topic, queue_id, [draft]).fresh
        return [parts.intake.append(draft)]

    async def _ended_before(self, half: Half, ending: Ending) -> None:
        ended = self._queue.find_end(half)
        if ended is None:
            raise TransactionFailed(f"transaction {half.unique_id} has ended before")
        if ended.state is not ending.state:
            raise TransactionFailed(f"transaction {half.unique_id} was {_ENDS[ended.state]} before")
        await self.safe(ended.op)

    async def safe(self, stored: Appended | None) -> None:
        """Wait until a message is on the disk, if that is wanted.

        Raises:
            ServiceNotAvailable: it was taken back.
        """
        if stored is None:
            return
        try:
            await self._parts.durability.reached(stored)
        except StoreUnwritable as exc:
            raise unavailable(exc) from exc


def _queue_of(half: Half, topic: TopicConfig) -> int:
    """Its queue, or another one if the topic has fewer now: nobody would read it there."""
    most = max(topic.write_queue_nums, topic.read_queue_nums)
    if half.queue_id < most:
        return half.queue_id
    return half.queue_id % max(topic.write_queue_nums, 1)
