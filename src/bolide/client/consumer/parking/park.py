"""The parked messages of one epoch of a source queue.

A record takes effect only when it is read back from the park queue: the order of the log decides
between members that both believe they hold the lock. A member that reads the OPEN record of a newer
epoch is superseded (fenced) and writes no more.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from uuid import uuid4

from msgspec import structs

from bolide.client.consumer.parking.park_log import CarriedRecord, ParkLog
from bolide.client.consumer.parking.parked_keys import NONE, ParkedKeys, ParkedMessage
from bolide.client.consumer.parking.records import Kind, ParkRecord, body_of, origin_of, restored
from bolide.client.errors import ClientError
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.static_topics.addressing import is_logical

log = logging.getLogger(__name__)

AFTER_FAILURE = 1.0
READ_WAIT = 15.0
"""Seconds for which a broker may suspend a read that finds no record."""

_REWRITE_FRACTION = 3
"""Records are written again after this fraction (1/3) of the broker's retention."""
_AGE_CHECK_INTERVAL = 60.0
_IMMEDIATE = 0.05


class Superseded(BolideError):
    """A newer epoch of the source queue began: this member is fenced."""

    def __init__(self, source: MessageQueue) -> None:
        super().__init__(f"{source} belongs to another member now")


class Park:
    """The park queue as seen by one epoch; `run` reads it.

    Args:
        park_log: the park queue.
        source: the source queue; its topic includes the namespace.
        on_change: called after each read.
    """

    def __init__(
        self,
        park_log: ParkLog,
        source: MessageQueue,
        on_change: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.keys = ParkedKeys()
        self._log = park_log
        self._source = source
        self._on_change = on_change
        self._now = now
        self._epoch = uuid4().hex
        self._opened = self._age_checked = now()
        self._rewrite_after = 0.0
        self._next_park_offset = 0
        self._superseded_at: int | None = None
        self._unread: dict[int, asyncio.Future[None]] = {}
        self._read_back: dict[
            int, ParkRecord
        ] = {}  # records of this epoch that `_write` has not picked up yet
        self._throttled = ThrottledLog(log)

    @property
    def is_superseded(self) -> bool:
        return self._superseded_at is not None

    async def open(self) -> None:
        """Begin an epoch and load the state left by earlier epochs into `keys`.

        Raises:
            BolideError: the park queue cannot be written or read now.
        """
        if is_logical(self._source.broker_name):
            raise ClientError(
                f"keys of static topic {self._source.topic!r} cannot be parked, since its queues"
                " move between brokers: subscribe with another on_poison"
            )
        self._rewrite_after = max(
            await self._log.retention() / _REWRITE_FRACTION, _AGE_CHECK_INTERVAL
        )
        opened = await self._log.append(self._record(Kind.OPEN))
        self._next_park_offset = await self._log.first_park_offset()
        while self._next_park_offset <= opened and not self.is_superseded:
            await self._read(0.0, opened=opened)
        self._require_not_superseded(opened)
        self._read_back.clear()

    async def run(self) -> None:
        """Read the park queue until a newer epoch begins."""
        while not self.is_superseded:
            try:
                await self._read(READ_WAIT)
                await self._reopen_if_old()
            except BolideError as exc:
                self._throttled.warning("read", "%s cannot be read now: %s", self._log.queue, exc)
                await asyncio.sleep(AFTER_FAILURE)
            except Exception:
                log.exception("reading %s failed; trying again", self._log.queue)
                await asyncio.sleep(AFTER_FAILURE)

    # The write methods raise BolideError, and Superseded if this epoch is fenced.

    async def put(self, key: str, message: StoredMessage, error: str, since_ms: int) -> None:
        """Park a message of a key."""
        record = self._record(
            Kind.PARK,
            key,
            message.queue_offset,
            error=error,
            since_ms=since_ms,
            origin=origin_of(message),
        )
        await self._write(record, message.body, message.flag)

    async def done(self, key: str, queue_offset: int) -> None:
        """Remove the parked messages of a key up to this offset of the source queue."""
        await self._write(self._record(Kind.DONE, key, queue_offset))

    async def block(self, key: str, error: str) -> None:
        """Park a resumed key again after a failure."""
        await self._write(self._record(Kind.BLOCK, key, error=error))

    async def resume(self, key: str, dead_through: int = NONE) -> None:
        await self._write(self._record(Kind.RESUME, key, dead_through))

    async def rewrite(self, entry: ParkedMessage) -> None:
        """Append a record again before the broker's retention deletes it."""
        if parked := await self._log.find(entry.park_offset):
            record = structs.replace(parked.record, epoch=self._epoch)
            await self._write(record, body_of(parked.carrier), parked.carrier.flag)

    async def find(self, entry: ParkedMessage, topic: str) -> StoredMessage | None:
        """The parked message, with `topic` as its topic; None if its record was deleted."""
        parked = await self._log.find(entry.park_offset)
        try:
            return restored(parked.record, parked.carrier, topic) if parked else None
        except ValueError as exc:
            log.warning("%s: %s", self._log.queue, exc)
            return None

    def aged(self) -> list[str]:
        """Keys with records to be written again because of their age; checked once a minute."""
        now = self._now()
        if now - self._age_checked < _AGE_CHECK_INTERVAL:
            return []
        self._age_checked = now
        oldest = (now - self._rewrite_after) * 1000
        return [
            parked.key
            for parked in self.keys
            if any(entry.stored_ms < oldest for entry in parked.entries.values())
        ]

    async def _write(self, record: ParkRecord, body: bytes = b"", flag: int = 0) -> None:
        park_offset = await self._log.append(record, body, flag)
        if park_offset >= self._next_park_offset and not self.is_superseded:
            seen = self._unread[park_offset] = asyncio.get_running_loop().create_future()
            try:
                await seen
            finally:
                self._unread.pop(park_offset, None)
        self._require_not_superseded(park_offset)
        if (
            self._read_back.pop(park_offset, None) != record
        ):  # the topic was deleted and created again
            self._superseded_at = NONE
            raise Superseded(self._source)

    async def _read(self, wait: float, *, opened: int = NONE) -> None:
        """Read once; OPEN records of other epochs up to `opened` are earlier epochs."""
        began = asyncio.get_running_loop().time()
        read = await self._log.read(self._next_park_offset, wait=wait)
        self._throttled.forget("read")
        if (
            read.next_park_offset < self._next_park_offset
        ):  # the topic was deleted and created again
            self._superseded_at = NONE
        elif read.next_park_offset == self._next_park_offset:
            await _avoid_busy_loop(began, AFTER_FAILURE if wait else _IMMEDIATE)
        for parked in read.records:
            self._apply(parked, opened)
        self._next_park_offset = max(self._next_park_offset, read.next_park_offset)
        self._wake_writers()
        self._on_change()

    def _apply(self, parked: CarriedRecord, opened: int) -> None:
        record, park_offset = parked.record, parked.carrier.queue_offset
        if (record.topic, record.queue_id) != (self._source.topic, self._source.queue_id):
            return
        if self.is_superseded:
            return
        if record.epoch == self._epoch:
            self._read_back[park_offset] = record
        if record.kind is Kind.OPEN and record.epoch != self._epoch and park_offset > opened:
            self._superseded_at = park_offset
        else:
            self.keys.apply(record, park_offset, parked.carrier.store_timestamp)

    def _wake_writers(self) -> None:
        for park_offset, seen in self._unread.items():
            if (park_offset < self._next_park_offset or self.is_superseded) and not seen.done():
                seen.set_result(None)

    def _require_not_superseded(self, park_offset: int) -> None:
        if self._superseded_at is not None and park_offset > self._superseded_at:
            raise Superseded(self._source)

    async def _reopen_if_old(self) -> None:
        """The OPEN record must outlive the records of its epoch."""
        if self._now() - self._opened > self._rewrite_after:
            await self._log.append(self._record(Kind.OPEN))
            self._opened = self._now()

    def _record(self, kind: Kind, key: str = "", offset: int = NONE, **more: object) -> ParkRecord:
        values = {"epoch": self._epoch, "key": key, "offset": offset} | more
        source = {"topic": self._source.topic, "queue_id": self._source.queue_id}
        return ParkRecord(kind=kind, **source, **values)  # type: ignore[arg-type]


async def _avoid_busy_loop(began: float, pause: float) -> None:
    """Pause after an immediate reply, for brokers that do not suspend reads."""
    if asyncio.get_running_loop().time() - began < _IMMEDIATE:
        await asyncio.sleep(pause)
