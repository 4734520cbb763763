"""Revival: messages not acknowledged in time go to the POP retry topics.

Their names are made of a group and a topic, by an old rule that may give the name of another
group's own retry topic, or by a new one that cannot. Where the old one would, it is not used.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.events import Settled
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.polling import Polling
from bolide.broker.pop.pop_queue import Checkpoint
from bolide.broker.pop.state import PopState
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.kernel import read_record
from bolide.model.names import (
    MAX_SYSTEM_TOPIC_LENGTH,
    group_of_retry_topic,
    is_retry_topic,
    pop_retry_topics,
)
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.hosts import unpack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.pop_info import Receipt, normal_topic
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import (
    MAX_PROPERTIES_SIZE,
    Place,
    Record,
    RecordDraft,
    encode_record,
    place_record,
)
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.refusals import InvalidParameter
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import ReadLimits

_QUEUES = 1


class Retries:
    """Finds and makes retry topics.

    Args:
        has_more: whether a queue of a group has something to pop.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        *,
        topics: TopicTable,
        groups: GroupTable,
        has_more: Callable[[str, str, int], bool],
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._groups = groups
        self._has_more = has_more

    def check(self, group: str, topic: str) -> None:
        """Raises InvalidParameter if no retry topic can be named after the two."""
        longest = max(len(name.encode()) for name in pop_retry_topics(group, topic))
        if longest > MAX_SYSTEM_TOPIC_LENGTH:
            raise InvalidParameter(
                f"group {group} cannot pop {topic}: the name of their retry topic would have"
                f" {longest} characters, at most {MAX_SYSTEM_TOPIC_LENGTH} are allowed"
            )

    def readable(self, group: str, topic: str) -> list[TopicConfig]:
        """The retry topic to look at now: a response has room for one."""
        found = [
            config
            for name in self.names(group, topic)
            if (config := self._topics.find(name)) is not None
        ]
        if len(found) > 1:
            random.shuffle(found)
            found.sort(key=lambda config: not self._is_filled(group, config))
        return found[:1]

    def names(self, group: str, topic: str) -> list[str]:
        """The retry topics of a group for a topic, whether they exist or not."""
        old, new = pop_retry_topics(group, topic)
        return [new] if group_of_retry_topic(old) in self._groups else [old, new]

    async def require(self, group: str, topic: str) -> str:
        """Where messages of a topic, or of its retry topic, go; made if it is not there.

        Raises:
            ServerError: it cannot be made now.
        """
        if is_retry_topic(topic):
            return topic
        names = self.names(group, topic)
        name = names[-1] if self._cell.value.enable_retry_topic_v2 else names[0]
        await self._topics.create_retry(name, _QUEUES)
        return name

    def _is_filled(self, group: str, config: TopicConfig) -> bool:
        return any(
            self._has_more(config.topic_name, group, queue_id)
            for queue_id in range(config.read_queue_nums)
        )


def retry_draft(
    record: Record, topic: str, group: str, pop_time: int, store_host: bytes
) -> RecordDraft:
    """A message on its way to the retry topic."""
    properties = record.decode_properties()
    properties.pop(PropertyName.POP_CHECKPOINT, None)
    if record.reconsume_times == 0 or PropertyName.FIRST_POP_TIME not in properties:
        properties[PropertyName.FIRST_POP_TIME] = str(pop_time)
    # Those who make it a dead letter look for these; RocketMQ leaves them out.
    whole = properties | {
        PropertyName.RETRY_TOPIC: normal_topic(record.topic, group),
        PropertyName.ORIGIN_MESSAGE_ID: properties.get(
            PropertyName.ORIGIN_MESSAGE_ID, _offset_id(record)
        ),
    }
    written = encode_properties(whole).encode()
    if len(written) > MAX_PROPERTIES_SIZE:
        written = bytes(record.properties)
    return RecordDraft(
        topic.encode(), record.body, written, 0, record.born_timestamp, record.born_host,
        store_host, record.flag, record.sys_flag, record.reconsume_times + 1,
    )  # fmt: skip


def shown(record: Record, topic: str, receipt: Receipt) -> bytes:
    """A message of a retry topic as consumers get it: under the name that they know."""
    properties = record.decode_properties()
    properties[PropertyName.POP_CHECKPOINT] = receipt.encode()
    written = encode_properties(properties).encode()
    if len(written) > MAX_PROPERTIES_SIZE:
        written = bytes(record.properties)
    draft = RecordDraft(
        topic.encode(), record.body, written, record.queue_id, record.born_timestamp,
        record.born_host, record.store_host, record.flag, record.sys_flag,
        record.reconsume_times, record.prepared_transaction_offset,
    )  # fmt: skip
    data = encode_record(draft, max_body_size=len(record.body))
    place = Place(record.queue_offset, record.physical_offset, record.store_timestamp)
    place_record(data, 0, place)
    return bytes(data)


def _offset_id(record: Record) -> str:
    return OffsetId(unpack_host(record.store_host), record.physical_offset).encode()


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
