"""Messages whose time is over go to the retry topic, where the next pop finds them."""

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import islice

from bolide.broker.durability import Durability
from bolide.broker.intake import Intake
from bolide.broker.pop.events import Settled
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.polling import Polling
from bolide.broker.pop.queue import Checkpoint
from bolide.broker.pop.retries import Retries, retry_draft
from bolide.broker.pop.state import PopState
from bolide.broker.statistics import Statistics
from bolide.broker.topics import TopicTable
from bolide.errors import BolideError
from bolide.kernel import read_record
from bolide.protocol.codes import ResponseCode
from bolide.protocol.pop_info import normal_topic
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import ReadLimits

log = logging.getLogger(__name__)

_AT_ONCE = 8
_AGAIN = 1000
"""Milliseconds after which what failed is tried again."""
_ONE = ReadLimits(max_count=1, max_scanned=1)


@dataclass(slots=True)
class _Load:
    """One pop whose time is over, and where its messages go."""

    checkpoint: Checkpoint
    topic: str
    records: dict[int, Record | None] = field(default_factory=dict)
    """By offset; None is one that is not there any more."""


@dataclass(slots=True, kw_only=True)
class Reviver:
    """Belongs to one event loop."""

    state: PopState
    journal: Journal
    polling: Polling
    retries: Retries
    store: Store
    intake: Intake
    durability: Durability
    topics: TopicTable
    statistics: Statistics
    store_host: bytes
    is_stuck: bool = False
    """Whether it has failed; that is told once."""

    async def revive_due(self) -> bool:
        """Look after some of what is due; says whether there may be more."""
        due = list(islice(self.state.due(), _AT_ONCE))
        checkpoints = [live for live in due if isinstance(live, Checkpoint)]
        for live in due:
            if not isinstance(live, Checkpoint):
                topic, group, queue_id = live.queue.name
                self.polling.wake(topic, group, queue_id)
        try:
            await self._revive(checkpoints)
        except Exception as exc:  # noqa: BLE001  whatever it is, it is tried again
            self._stick(exc)
        left = [checkpoint for checkpoint in checkpoints if checkpoint.left]
        for checkpoint in left:
            self.state.wait(checkpoint, _AGAIN)
        if checkpoints and not left:
            self.is_stuck = False
        return len(due) == _AT_ONCE

    def _stick(self, exc: Exception) -> None:
        if not self.is_stuck:
            self.is_stuck = True
            known = exc if not isinstance(exc, BolideError) else None
            log.error("popped messages wait to be seen again: %s", exc, exc_info=known)

    async def _revive(self, checkpoints: list[Checkpoint]) -> None:
        loads = [await self._load(checkpoint) for checkpoint in checkpoints]
        # From here on nothing waits, so nobody acknowledges what is on its way.
        settled: list[Settled] = []
        last: Appended | None = None
        try:
            for load in loads:
                last = self._put(load, settled) or last
        finally:
            if settled:
                await self._settle(settled, last)

    async def _load(self, checkpoint: Checkpoint) -> _Load:
        topic, group, queue_id = checkpoint.queue.name
        if normal_topic(topic, group) not in self.topics:
            return _Load(checkpoint, "", dict.fromkeys(checkpoint.unsettled))
        load = _Load(checkpoint, await self.retries.require(group, topic))
        for offset in checkpoint.unsettled:
            load.records[offset] = await self._read(topic, queue_id, offset)
        return load

    async def _read(self, topic: str, queue_id: int, offset: int) -> Record | None:
        try:
            found = self.store.read(topic, queue_id, offset, _ONE, may_block=False)
        except NotInMemory:
            found = await asyncio.to_thread(self.store.read, topic, queue_id, offset, _ONE)
        try:
            record = read_record(bytes(found.records[0])) if found.records else None
        except BadRecord as exc:
            log.warning("a popped message of %s is damaged and passed over: %s", topic, exc)
            return None
        return record if isinstance(record, Record) and record.queue_offset == offset else None

    def _put(self, load: _Load, settled: list[Settled]) -> Appended | None:
        """Put messages into the retry topic; `settled` gets what is done."""
        checkpoint, last = load.checkpoint, None
        name = checkpoint.queue.name
        done: list[int] = []
        try:
            for offset, record in load.records.items():
                claim = (name, checkpoint.start, checkpoint.pop_time, offset)
                if not checkpoint.has(offset) or self.journal.is_claimed(claim):
                    continue
                if record is not None:
                    last = self._put_one(load, record)
                done.append(offset)
        except ValueError as exc:  # it fitted once, and may again; others are not held up
            self._stick(exc)
        finally:
            if done:
                settled.append(Settled(*name, checkpoint.start, checkpoint.pop_time, done))
        return last

    def _put_one(self, load: _Load, record: Record) -> Appended:
        checkpoint = load.checkpoint
        group, pop_time = checkpoint.queue.name[1], checkpoint.pop_time
        draft = retry_draft(record, load.topic, group, pop_time, self.store_host)
        appended = self.intake.append(draft)
        self.statistics.sent(load.topic, 0, 1, appended.size, 0.0)
        return appended

    async def _settle(self, settled: list[Settled], last: Appended | None) -> None:
        """A message is settled when its successor is safe, not before."""
        with self.journal.leaving(settled):
            while last is not None and await self.durability.reached(last) != ResponseCode.SUCCESS:
                log.warning("the disk takes long: popped messages wait for it")
            self.journal.append(settled)
