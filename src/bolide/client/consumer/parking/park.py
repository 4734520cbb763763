"""What one tenure of a source queue sets aside, and how it hears what became of it.

Everything is written first and counts only when it is read back: the log's order decides, not who
believes to hold the lock. Whoever finds that another tenure began writes no more.
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
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

AFTER_FAILURE = 1.0
WAIT = 15.0
"""Seconds for which a broker holds a read that finds nothing new."""

_REFRESH_BY = 3
"""A record is written again after this part of the time for which the broker keeps it."""
_LOOK_EVERY = 60.0
_QUICK = 0.05


class Superseded(BolideError):
    """Another tenure of the source queue began: this one has nothing to say any more."""

    def __init__(self, source: MessageQueue) -> None:
        super().__init__(f"{source} is another member's now")


class Park:
    """The park queue as one tenure sees it; `run` reads it.

    Args:
        park_log: the park queue.
        source: the source queue, by its name on the wire.
        on_change: called when something was read.
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
        self._opened = self._looked = now()
        self._refresh_after = 0.0
        self._next_park_offset = 0
        self._superseded_at: int | None = None
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._read_back: dict[int, ParkRecord] = {}  # ours that nobody has asked after yet
        self._throttled = ThrottledLog(log)

    @property
    def is_superseded(self) -> bool:
        return self._superseded_at is not None

    async def open(self) -> None:
        """Begin the tenure: after this `keys` is what those before left.

        Raises:
            BolideError: it cannot be written or read now.
        """
        self._refresh_after = max(await self._log.retention() / _REFRESH_BY, _LOOK_EVERY)
        opened = await self._log.append(self._record(Kind.OPEN))
        self._next_park_offset = await self._log.first_park_offset()
        while self._next_park_offset <= opened and not self.is_superseded:
            await self._read(0.0, opened=opened)
        self._require_own(opened)
        self._read_back.clear()

    async def run(self) -> None:
        """Read on until another tenure begins."""
        while not self.is_superseded:
            try:
                await self._read(WAIT)
                await self._reopen_if_old()
            except BolideError as exc:
                self._throttled.warning("read", "%s cannot be read now: %s", self._log.queue, exc)
                await asyncio.sleep(AFTER_FAILURE)
            except Exception:
                log.exception("reading %s failed; it is tried again", self._log.queue)
                await asyncio.sleep(AFTER_FAILURE)

    # What is written raises BolideError, and Superseded if it does not count.

    async def put(self, key: str, message: StoredMessage, error: str, since_ms: int) -> None:
        """Set a message of a key aside."""
        record = self._record(
            Kind.PARK,
            key,
            message.queue_offset,
            error=error,
            since_ms=since_ms,
            origin=origin_of(message),
        )
        await self._write(record, message.body, message.flag)

    async def done(self, key: str, offset: int) -> None:
        """What was set aside of a key up to this offset is handled."""
        await self._write(self._record(Kind.DONE, key, offset))

    async def block(self, key: str, error: str) -> None:
        """A key that resumed has failed."""
        await self._write(self._record(Kind.BLOCK, key, error=error))

    async def resume(self, key: str, dead_through: int = NONE) -> None:
        await self._write(self._record(Kind.RESUME, key, dead_through))

    async def rewrite(self, entry: ParkedMessage) -> None:
        """Write again what was set aside, before the broker deletes it."""
        if found := await self._log.find(entry.park_offset):
            record = structs.replace(found.record, epoch=self._epoch)
            await self._write(record, body_of(found.carrier), found.carrier.flag)

    async def find(self, entry: ParkedMessage, topic: str) -> StoredMessage | None:
        """The message that was set aside, of a topic as users call it; None if it is gone."""
        found = await self._log.find(entry.park_offset)
        try:
            return restored(found.record, found.carrier, topic) if found else None
        except ValueError as exc:
            log.warning("%s: %s", self._log.queue, exc)
            return None

    def aged(self) -> list[str]:
        """The keys of which a record is so old that all are to be written again; now and then."""
        now = self._now()
        if now - self._looked < _LOOK_EVERY:
            return []
        self._looked = now
        oldest = (now - self._refresh_after) * 1000
        return [
            parked.key
            for parked in self.keys
            if any(entry.stored_ms < oldest for entry in parked.entries.values())
        ]

    async def _write(self, record: ParkRecord, body: bytes = b"", flag: int = 0) -> None:
        park_offset = await self._log.append(record, body, flag)
        if park_offset >= self._next_park_offset and not self.is_superseded:
            seen = self._waiting[park_offset] = asyncio.get_running_loop().create_future()
            try:
                await seen
            finally:
                self._waiting.pop(park_offset, None)
        self._require_own(park_offset)
        if self._read_back.pop(park_offset, None) != record:  # the topic was made anew
            self._superseded_at = NONE
            raise Superseded(self._source)

    async def _read(self, wait: float, *, opened: int = NONE) -> None:
        """Read once; up to where the tenure began, other tenures are those before it."""
        begun = asyncio.get_running_loop().time()
        found = await self._log.read(self._next_park_offset, wait=wait)
        self._throttled.forget("read")
        if found.next_park_offset < self._next_park_offset:  # the topic was made anew
            self._superseded_at = NONE
        elif found.next_park_offset == self._next_park_offset:
            await _breathe(begun, AFTER_FAILURE if wait else _QUICK)
        for parked in found.records:
            self._take(parked, opened)
        self._next_park_offset = max(self._next_park_offset, found.next_park_offset)
        self._tell()
        self._on_change()

    def _take(self, parked: CarriedRecord, opened: int) -> None:
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

    def _tell(self) -> None:
        for park_offset, seen in self._waiting.items():
            if (park_offset < self._next_park_offset or self.is_superseded) and not seen.done():
                seen.set_result(None)

    def _require_own(self, park_offset: int) -> None:
        if self._superseded_at is not None and park_offset > self._superseded_at:
            raise Superseded(self._source)

    async def _reopen_if_old(self) -> None:
        """The record that begins the tenure must outlive all that it makes count."""
        if self._now() - self._opened > self._refresh_after:
            await self._log.append(self._record(Kind.OPEN))
            self._opened = self._now()

    def _record(self, kind: Kind, key: str = "", offset: int = NONE, **more: object) -> ParkRecord:
        values = {"epoch": self._epoch, "key": key, "offset": offset} | more
        source = {"topic": self._source.topic, "queue_id": self._source.queue_id}
        return ParkRecord(kind=kind, **source, **values)  # type: ignore[arg-type]


async def _breathe(begun: float, pause: float) -> None:
    """A broker that does not hold reads must not be asked without a pause."""
    if asyncio.get_running_loop().time() - begun < _QUICK:
        await asyncio.sleep(pause)
