"""What a RocketMQ 5.x broker left of popped messages (`PopReviveService`).

There every pop is a message "ck" in the revive log, and every acknowledgement one "ack" or "bAck";
they get there through the timer, the first a second before the pop is over. So a store that is
taken over has some in the log and some still in the timer. Whatever arrives is read at once: a
"ck" becomes a pop like our own, the others settle it. A consumer may acknowledge to us what it got
from the other broker, before the "ck" is there: that is written into the revive log, too, and kept
in mind until the "ck" comes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.checkpointing import PopCheckpointer
from bolide.broker.pop.delivery import FROM_START, Positions
from bolide.broker.pop.events import Adopted, Event, QueueName, Settled
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.state import PopState
from bolide.broker.produce.intake import Intake
from bolide.kernel import read_record
from bolide.model.names import REVIVE_GROUP, TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.pop_info import Receipt
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.record_errors import BadRecord
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.reading import ReadLimits

log = logging.getLogger(__name__)

_CHECKPOINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"
_CHUNK = ReadLimits(max_count=256, max_size=1024 * 1024, max_scanned=256)
_GRACE = 2000
"""Milliseconds that its acknowledgements may be later than a "ck"."""
_PATIENCE = 600_000
"""Milliseconds after the end of a pop for which its "ck" is waited for."""
_TIDY = 10_000
_MOST_MESSAGES = 64
_INVISIBLE = "it"
"""Ours: RocketMQ's acknowledgements do not say how long the pop was for."""

Key = tuple[QueueName, int, int]
"""Queue, start and pop time."""


class _Early(NamedTuple):
    """An acknowledgement that came before what it is of."""

    offset: int
    place: tuple[int, int]
    """Queue and offset in the revive log."""
    forget_at: int


@dataclass(slots=True, kw_only=True)
class JavaReviveLog:
    """Reads the revive log; belongs to one event loop."""

    topic: str
    queues: int
    state: PopState
    journal: Journal
    keeper: PopCheckpointer
    positions: Positions
    offsets: OffsetTable
    store: Store
    intake: Intake
    store_host: bytes
    exists: Callable[[QueueName], bool]
    began: int = 0
    """When this broker began to serve (ms): older pops may be of another one."""
    _next: dict[int, int] = field(default_factory=dict)
    _early: dict[Key, list[_Early]] = field(default_factory=dict)
    _tidied: int = 0

    def start(self) -> None:
        self.began = self.state.now
        for queue_id in range(self.queues):
            read = self.offsets.find(REVIVE_GROUP, self.topic, queue_id)
            self._next[queue_id] = 0 if read is None else read + 1

    def may_know(self, receipt: Receipt) -> bool:
        """Whether a pop that is not known here may be one of another broker."""
        if receipt.is_ordered or receipt.pop_time >= self.began:
            return False
        if self.state.now > receipt.due + _PATIENCE:
            return False
        return self.store.max_offset(TIMER_TOPIC, 0) > 0 or any(
            self.store.max_offset(self.topic, queue_id) for queue_id in range(self.queues)
        )

    def acknowledge(self, name: QueueName, receipts: Iterable[Receipt]) -> Appended | None:
        """Write down acknowledgements of pops that are to come.

        Raises:
            StoreUnwritable, StoreClosed: they are not kept.
        """
        topic, group, queue_id = name
        last: Appended | None = None
        for receipt in receipts:
            body = {
                "ao": receipt.offset, "bn": receipt.broker_name, "c": group,
                "pt": receipt.pop_time, "q": queue_id, "so": receipt.start_offset, "t": topic,
                _INVISIBLE: receipt.invisible_time,
            }  # fmt: skip
            last = self.intake.append(self._draft(receipt.revive_queue % self.queues, body))
        return last

    async def read(self) -> bool:
        """Read some of what has arrived; says whether there is more."""
        more = False
        for queue_id, first in list(self._next.items()):
            if first < self.store.max_offset(self.topic, queue_id):
                more |= await self._read_queue(queue_id, first)
        self._forget_old()
        return more

    # ---- inside

    async def _read_queue(self, queue_id: int, first: int) -> bool:
        found = await asyncio.to_thread(self.store.read, self.topic, queue_id, first, _CHUNK)
        settled: list[Event] = []
        for data in found.records:
            try:
                record = read_record(bytes(data))
                assert isinstance(record, Record)
                self._take(record, settled)
            except (BadRecord, ValueError, KeyError, TypeError, msgspec.DecodeError) as exc:
                log.warning("a record of %s is passed over: %s", self.topic, exc)
        if settled:
            self.journal.append(settled)
        self._next[queue_id] = max(found.next_offset, first)
        self._publish(queue_id)
        return found.next_offset < found.max_offset

    def _publish(self, queue_id: int) -> None:
        """RocketMQ keeps the offset of the last one that it needs no more."""
        every = (early.place for found in self._early.values() for early in found)
        held = [offset for queue, offset in every if queue == queue_id]
        last = min([self._next[queue_id], *held]) - 1
        if last >= 0:
            self.keeper.further[self.topic, REVIVE_GROUP, queue_id] = last

    def _take(self, record: Record, settled: list[Event]) -> None:
        tag = record.decode_properties().get(PropertyName.TAGS)
        body: dict[str, Any] = msgspec.json.decode(bytes(record.body))
        if tag == _CHECKPOINT:
            self._adopt(body)
        elif tag in {_ACK, _BATCH_ACK}:
            name = _name(body, "consumerGroup")
            start, pop_time = _number(body, "so", "startOffset"), _number(body, "pt", "popTime")
            offsets = _acked(body) if tag == _BATCH_ACK else [_number(body, "ao", "ackOffset")]
            if self.state.find(name, start, pop_time) is not None:
                settled.append(Settled(*name, start, pop_time, offsets))
            elif _INVISIBLE in body:
                until = pop_time + _number(body, _INVISIBLE) + _PATIENCE
                place = (record.queue_id, record.queue_offset)
                key = (name, start, pop_time)
                early = [_Early(each, place, until) for each in offsets]
                self._early.setdefault(key, []).extend(early)

    def _adopt(self, body: dict[str, Any]) -> None:
        """Make a pop of another broker one of ours."""
        name = _name(body, "cid")
        start, pop_time = _number(body, "so"), _number(body, "pt")
        distances = _unsettled(body)
        known = self.state.find(name, start, pop_time) is not None
        acked = self._take_early((name, start, pop_time))
        distances = [each for each in distances if start + each not in acked]
        if known or not distances or not self.exists(name):
            return
        queue, _ = self.positions.require(name, FROM_START)
        invisible = _number(body, "it")
        event = Adopted(*name, start, pop_time, invisible, queue.next_offset, distances)
        self.journal.append([event])
        checkpoint = self.state.find(name, start, pop_time)
        assert checkpoint is not None
        self.state.wait(checkpoint, max(checkpoint.due - self.state.now, 0) + _GRACE)

    def _take_early(self, key: Key) -> set[int]:
        return {early.offset for early in self._early.pop(key, ())}

    def _forget_old(self) -> None:
        now = self.state.now
        if not self._early or now - self._tidied < _TIDY:
            return
        self._tidied = now
        old = [key for key, found in self._early.items() if found[-1].forget_at <= now]
        queues = {early.place[0] for key in old for early in self._early.pop(key)}
        for queue_id in queues:
            self._publish(queue_id)

    def _draft(self, queue_id: int, body: dict[str, Any]) -> RecordDraft:
        properties = encode_properties({PropertyName.TAGS: _ACK}).encode()
        host = self.store_host
        return RecordDraft(
            self.topic.encode(), msgspec.json.encode(body), properties, queue_id,
            self.state.now, host, host,
        )  # fmt: skip


def _name(body: dict[str, Any], group: str) -> QueueName:
    topic = body.get("t", body.get("topic"))
    owner = body.get("c", body.get(group))
    if not (isinstance(topic, str) and isinstance(owner, str)):
        raise TypeError("it names no topic and group")
    return topic, owner, _number(body, "q", "queueId")


def _number(body: dict[str, Any], *names: str) -> int:
    found = next(body[name] for name in names if name in body)
    if not isinstance(found, int):
        raise TypeError(f"{names[0]} is no number")
    return found


def _acked(body: dict[str, Any]) -> list[int]:
    found = body.get("aol", body.get("ackOffsetList")) or []
    return [offset for offset in found if isinstance(offset, int)]


def _unsettled(body: dict[str, Any]) -> list[int]:
    """The distances that are not settled; old versions do not list them."""
    listed = body.get("d")
    count = min(_number(body, "n"), _MOST_MESSAGES)
    distances = [int(each) for each in listed] if listed else list(range(count))
    bits = _number(body, "bm")
    return [each for at, each in enumerate(distances) if not bits >> at & 1]
