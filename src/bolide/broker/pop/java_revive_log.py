"""Takes over popped messages from the revive log of a RocketMQ 5.x broker (`PopReviveService`).

RocketMQ writes every pop as a "ck" message and every acknowledgement as an "ack" or "bAck" message.
They reach the revive log through the timer, a "ck" one second before the pop ends. A store taken
over from such a broker therefore has some of them in the revive log and some still in the timer.
Each message is processed as it arrives: a "ck" becomes a pop of this broker, the others acknowledge
it.

A consumer may acknowledge a message to this broker before the "ck" has arrived. Such an
acknowledgement is appended to the revive log as well and retained in memory until the "ck" arrives.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from bolide.broker.background import REVIVAL, on_thread
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.checkpointing import PopCheckpointer
from bolide.broker.pop.delivery import FROM_START, Positions
from bolide.broker.pop.events import Acknowledged, Adopted, Event, QueueName
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
_READ_LIMITS = ReadLimits(max_count=256, max_size=1024 * 1024, max_scanned=256)
_ACK_GRACE = 2000
"""Milliseconds by which acknowledgements may arrive after their "ck"."""
_EARLY_ACK_TTL = 600_000
"""Milliseconds after the end of a pop for which an acknowledgement waits for its "ck"."""
_EVICTION_INTERVAL = 10_000
_MAX_MESSAGES = 64
_INVISIBLE = "it"
"""A field of our own: the acknowledgements of RocketMQ do not carry the invisible time."""

Key = tuple[QueueName, int, int]
"""Queue, start and pop time."""


class _EarlyAck(NamedTuple):
    """An acknowledgement that arrived before its "ck"."""

    offset: int
    revive_position: tuple[int, int]
    """Queue id and queue offset in the revive log."""
    expires_at: int


@dataclass(slots=True, kw_only=True)
class JavaReviveLog:
    """Reader of the revive log; belongs to one event loop."""

    topic: str
    queues: int
    state: PopState
    journal: Journal
    checkpointer: PopCheckpointer
    positions: Positions
    offsets: OffsetTable
    store: Store
    intake: Intake
    store_host: bytes
    exists: Callable[[QueueName], bool]
    began: int = 0
    """When this broker started to serve (ms); older pops may belong to another broker."""
    _next: dict[int, int] = field(default_factory=dict)
    _early_acks: dict[Key, list[_EarlyAck]] = field(default_factory=dict)
    _evicted_at: int = 0

    def start(self) -> None:
        self.began = self.state.now
        for queue_id in range(self.queues):
            read = self.offsets.find(REVIVE_GROUP, self.topic, queue_id)
            self._next[queue_id] = 0 if read is None else read + 1

    def may_own(self, receipt: Receipt) -> bool:
        """Whether a pop unknown to this broker may have been issued by another one."""
        if receipt.is_ordered or receipt.pop_time >= self.began:
            return False
        if self.state.now > receipt.due + _EARLY_ACK_TTL:
            return False
        return self.store.max_offset(TIMER_TOPIC, 0) > 0 or any(
            self.store.max_offset(self.topic, queue_id) for queue_id in range(self.queues)
        )

    def acknowledge(self, name: QueueName, receipts: Iterable[Receipt]) -> Appended | None:
        """Append acknowledgements of pops whose "ck" has not arrived.

        Raises:
            StoreUnwritable, StoreClosed: the acknowledgements are not stored.
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
        """Process a batch of arrived records; return whether there are more."""
        more = False
        for queue_id, first in list(self._next.items()):
            if first < self.store.max_offset(self.topic, queue_id):
                more |= await self._read_queue(queue_id, first)
        self._evict_expired_acks()
        return more

    # ---- inside

    async def _read_queue(self, queue_id: int, first: int) -> bool:
        found = await on_thread(REVIVAL, self.store.read, self.topic, queue_id, first, _READ_LIMITS)
        acknowledged: list[Event] = []
        for data in found.records:
            try:
                record = read_record(bytes(data))
                assert isinstance(record, Record)
                self._apply_record(record, acknowledged)
            except (BadRecord, ValueError, KeyError, TypeError, msgspec.DecodeError) as exc:
                log.warning("skipping a record of %s: %s", self.topic, exc)
        if acknowledged:
            self.journal.append(acknowledged)
        self._next[queue_id] = max(found.next_offset, first)
        self._publish(queue_id)
        return found.next_offset < found.max_offset

    def _publish(self, queue_id: int) -> None:
        """Commit progress as RocketMQ does: the offset of the last record no longer needed."""
        every = (early.revive_position for found in self._early_acks.values() for early in found)
        retained = [offset for queue, offset in every if queue == queue_id]
        last = min([self._next[queue_id], *retained]) - 1
        if last >= 0:
            self.checkpointer.extra_offsets[self.topic, REVIVE_GROUP, queue_id] = last

    def _apply_record(self, record: Record, acknowledged: list[Event]) -> None:
        tag = record.decode_properties().get(PropertyName.TAGS)
        body: dict[str, Any] = msgspec.json.decode(bytes(record.body))
        if tag == _CHECKPOINT:
            self._adopt(body)
        elif tag in {_ACK, _BATCH_ACK}:
            name = _name(body, "consumerGroup")
            start, pop_time = _number(body, "so", "startOffset"), _number(body, "pt", "popTime")
            offsets = _acked(body) if tag == _BATCH_ACK else [_number(body, "ao", "ackOffset")]
            if self.state.find(name, start, pop_time) is not None:
                acknowledged.append(Acknowledged(*name, start, pop_time, offsets))
            elif _INVISIBLE in body:
                until = pop_time + _number(body, _INVISIBLE) + _EARLY_ACK_TTL
                revive_position = (record.queue_id, record.queue_offset)
                key = (name, start, pop_time)
                early = [_EarlyAck(each, revive_position, until) for each in offsets]
                self._early_acks.setdefault(key, []).extend(early)

    def _adopt(self, body: dict[str, Any]) -> None:
        """Turn a pop of another broker into one of this broker."""
        name = _name(body, "cid")
        start, pop_time = _number(body, "so"), _number(body, "pt")
        distances = _unacknowledged(body)
        known = self.state.find(name, start, pop_time) is not None
        acked = self._pop_early_acks((name, start, pop_time))
        distances = [each for each in distances if start + each not in acked]
        if known or not distances or not self.exists(name):
            return
        queue, _ = self.positions.require(name, FROM_START)
        invisible = _number(body, "it")
        event = Adopted(*name, start, pop_time, invisible, queue.next_offset, distances)
        self.journal.append([event])
        checkpoint = self.state.find(name, start, pop_time)
        assert checkpoint is not None
        self.state.schedule(checkpoint, max(checkpoint.due - self.state.now, 0) + _ACK_GRACE)

    def _pop_early_acks(self, key: Key) -> set[int]:
        return {early.offset for early in self._early_acks.pop(key, ())}

    def _evict_expired_acks(self) -> None:
        now = self.state.now
        if not self._early_acks or now - self._evicted_at < _EVICTION_INTERVAL:
            return
        self._evicted_at = now
        old = [key for key, found in self._early_acks.items() if found[-1].expires_at <= now]
        queues = {early.revive_position[0] for key in old for early in self._early_acks.pop(key)}
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
        raise TypeError("topic or group is missing")
    return topic, owner, _number(body, "q", "queueId")


def _number(body: dict[str, Any], *names: str) -> int:
    found = next(body[name] for name in names if name in body)
    if not isinstance(found, int):
        raise TypeError(f"{names[0]} is not a number")
    return found


def _acked(body: dict[str, Any]) -> list[int]:
    found = body.get("aol", body.get("ackOffsetList")) or []
    return [offset for offset in found if isinstance(offset, int)]


def _unacknowledged(body: dict[str, Any]) -> list[int]:
    """Return the distances of unacknowledged messages; old versions list only their count."""
    listed = body.get("d")
    count = min(_number(body, "n"), _MAX_MESSAGES)
    distances = [int(each) for each in listed] if listed else list(range(count))
    bits = _number(body, "bm")
    return [each for at, each in enumerate(distances) if not bits >> at & 1]
