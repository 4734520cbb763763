"""Revival: messages not acknowledged in time are appended to the POP retry topics.

The name of a retry topic is made of group and topic. The old naming rule may yield the name of
another group's own retry topic, the new rule (V2) cannot; the old name is not used where it would
collide.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from bolide.broker.background import REVIVAL, on_thread
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.pop.events import Acknowledged
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
from bolide.protocol.inner_batch import INNER_FLAGS, unwrap
from bolide.protocol.message_id import OffsetId
from bolide.protocol.pop_info import Receipt, normal_topic
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import (
    MAX_PROPERTIES_SIZE,
    Placement,
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

log = logging.getLogger(__name__)

_RETRY_QUEUES = 1
_BATCH_SIZE = 8
_RETRY_DELAY = 1000
"""Milliseconds until a failed revival is retried."""
_ONE = ReadLimits(max_count=1, max_scanned=1)


class RetryTopics:
    """Finds and creates retry topics.

    Args:
        has_more: returns whether a queue of a group has messages to pop.
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
        """Return the retry topic to pop from now, if any: a response has room for one."""
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
        """Return the possible retry topics of a group for a topic, existing or not."""
        old, new = pop_retry_topics(group, topic)
        return [new] if group_of_retry_topic(old) in self._groups else [old, new]

    async def require(self, group: str, topic: str) -> str:
        """Return the retry topic for a topic or for its retry topic, creating it if needed.

        Raises:
            ServerError: the topic cannot be created now.
        """
        if is_retry_topic(topic):
            return topic
        names = self.names(group, topic)
        name = names[-1] if self._cell.value.enable_retry_topic_v2 else names[0]
        await self._topics.create_retry(name, _RETRY_QUEUES)
        return name

    def _is_filled(self, group: str, config: TopicConfig) -> bool:
        return any(
            self._has_more(config.topic_name, group, queue_id)
            for queue_id in range(config.read_queue_nums)
        )


def retry_draft(
    record: Record, topic: str, group: str, pop_time: int, store_host: bytes
) -> RecordDraft:
    """Build the copy of a message for the retry topic."""
    properties = record.decode_properties()
    properties.pop(PropertyName.POP_CHECKPOINT, None)
    if record.reconsume_times == 0 or PropertyName.FIRST_POP_TIME not in properties:
        properties[PropertyName.FIRST_POP_TIME] = str(pop_time)
    # Dead-lettering by pull consumers reads these two properties; RocketMQ omits them.
    whole = properties | {
        PropertyName.RETRY_TOPIC: normal_topic(record.topic, group),
        PropertyName.ORIGIN_MESSAGE_ID: properties.get(
            PropertyName.ORIGIN_MESSAGE_ID, _offset_id(record)
        ),
    }
    encoded = encode_properties(whole).encode()
    if len(encoded) > MAX_PROPERTIES_SIZE:
        encoded = bytes(record.properties)
    return RecordDraft(
        topic.encode(), record.body, encoded, 0, record.born_timestamp, record.born_host,
        store_host, record.flag, record.sys_flag & ~INNER_FLAGS, record.reconsume_times + 1,
    )  # fmt: skip


def with_original_topic(record: Record, topic: str, receipt: Receipt) -> bytes:
    """Re-encode a message of a retry topic under the topic name that the consumer knows."""
    properties = record.decode_properties()
    properties[PropertyName.POP_CHECKPOINT] = receipt.encode()
    encoded = encode_properties(properties).encode()
    if len(encoded) > MAX_PROPERTIES_SIZE:
        encoded = bytes(record.properties)
    draft = RecordDraft(
        topic.encode(), record.body, encoded, record.queue_id, record.born_timestamp,
        record.born_host, record.store_host, record.flag, record.sys_flag,
        record.reconsume_times, record.prepared_transaction_offset,
    )  # fmt: skip
    data = encode_record(draft, max_body_size=len(record.body))
    place = Placement(record.queue_offset, record.physical_offset, record.store_timestamp)
    place_record(data, 0, place)
    return bytes(data)


def _offset_id(record: Record) -> str:
    return OffsetId(unpack_host(record.store_host), record.physical_offset).encode()


@dataclass(slots=True)
class _ExpiredPop:
    """An expired pop and the retry topic of its messages."""

    checkpoint: Checkpoint
    topic: str
    records: dict[int, Record | None] = field(default_factory=dict)
    """By queue offset; None if the message no longer exists."""


@dataclass(slots=True, kw_only=True)
class Reviver:
    """Appends expired messages to retry topics; belongs to one event loop."""

    state: PopState
    journal: Journal
    polling: Polling
    retry_topics: RetryTopics
    store: Store
    intake: Intake
    durability: Durability
    topics: TopicTable
    statistics: Statistics
    store_host: bytes
    is_stuck: bool = False
    """Whether the last attempt failed; a failure is logged once."""

    async def revive_due(self) -> bool:
        """Revive a batch of expired leases; return whether there may be more."""
        due = list(islice(self.state.due_leases(), _BATCH_SIZE))
        checkpoints = [lease for lease in due if isinstance(lease, Checkpoint)]
        for lease in due:
            if not isinstance(lease, Checkpoint):
                topic, group, queue_id = lease.queue.name
                self.polling.wake(topic, group, queue_id)
        try:
            await self._revive(checkpoints)
        except Exception as exc:  # noqa: BLE001  logged; the batch is retried
            self._report_failure(exc)
        remaining = [checkpoint for checkpoint in checkpoints if checkpoint.pending_bits]
        for checkpoint in remaining:
            self.state.schedule(checkpoint, _RETRY_DELAY)
        if checkpoints and not remaining:
            self.is_stuck = False
        return len(due) == _BATCH_SIZE

    def _report_failure(self, exc: Exception) -> None:
        if not self.is_stuck:
            self.is_stuck = True
            unexpected = exc if not isinstance(exc, BolideError) else None
            log.error("expired pops cannot be revived, retrying: %s", exc, exc_info=unexpected)

    async def _revive(self, checkpoints: list[Checkpoint]) -> None:
        batch = [await self._read_expired(checkpoint) for checkpoint in checkpoints]
        # No await from here on, so no acknowledgement can interleave.
        acknowledged: list[Acknowledged] = []
        last: Appended | None = None
        try:
            for expired in batch:
                last = self._append_retries(expired, acknowledged) or last
        finally:
            if acknowledged:
                await self._acknowledge_when_durable(acknowledged, last)

    async def _read_expired(self, checkpoint: Checkpoint) -> _ExpiredPop:
        topic, group, _ = checkpoint.queue.name
        if normal_topic(topic, group) not in self.topics:
            return _ExpiredPop(checkpoint, "", dict.fromkeys(checkpoint.unacknowledged))
        retry_topic = await self.retry_topics.require(group, topic)
        return _ExpiredPop(checkpoint, retry_topic, await self.read_messages(checkpoint))

    async def read_messages(self, checkpoint: Checkpoint) -> dict[int, Record | None]:
        """The unacknowledged messages of a pop by queue offset; None if one no longer exists."""
        topic, _, queue_id = checkpoint.queue.name
        messages: dict[int, Record | None] = {}
        for offset in checkpoint.unacknowledged:
            record = await self._read(topic, queue_id, offset)
            is_whole = checkpoint.is_adopted  # RocketMQ pops an inner batch as one message
            found = () if record is None else [record] if is_whole else unwrap(record)
            messages[offset] = next((r for r in found if r.queue_offset == offset), None)
        return messages

    async def _read(self, topic: str, queue_id: int, offset: int) -> Record | None:
        try:
            found = self.store.read(topic, queue_id, offset, _ONE, may_block=False)
        except NotInMemory:
            found = await on_thread(REVIVAL, self.store.read, topic, queue_id, offset, _ONE)
        try:
            record = read_record(bytes(found.records[0])) if found.records else None
        except BadRecord as exc:
            log.warning("skipping a damaged popped message of %s: %s", topic, exc)
            return None
        return record if isinstance(record, Record) else None

    def _append_retries(
        self, expired: _ExpiredPop, acknowledged: list[Acknowledged]
    ) -> Appended | None:
        """Append the messages of a pop to the retry topic; add their acknowledgements to
        `acknowledged`."""
        checkpoint, last = expired.checkpoint, None
        name = checkpoint.queue.name
        done: list[int] = []
        try:
            for offset, record in expired.records.items():
                claim = (name, checkpoint.start, checkpoint.pop_time, offset)
                if not checkpoint.has(offset) or self.journal.is_claimed(claim):
                    continue
                if record is not None:
                    last = self._append_retry(expired, record)
                done.append(offset)
        except ValueError as exc:  # too large for now; other pops are not held up
            self._report_failure(exc)
        finally:
            if done:
                acknowledged.append(
                    Acknowledged(*name, checkpoint.start, checkpoint.pop_time, done)
                )
        return last

    def _append_retry(self, expired: _ExpiredPop, record: Record) -> Appended:
        checkpoint = expired.checkpoint
        group, pop_time = checkpoint.queue.name[1], checkpoint.pop_time
        for message in unwrap(record):
            draft = retry_draft(message, expired.topic, group, pop_time, self.store_host)
            appended = self.intake.append(draft)
            self.statistics.stored(expired.topic, 0, appended.size)
            self.statistics.traffic.message_revived(group, expired.topic)
        return appended

    async def _acknowledge_when_durable(
        self, acknowledged: list[Acknowledged], last: Appended | None
    ) -> None:
        """Acknowledge messages once their copies are durable."""
        with self.journal.moving_to_retry(acknowledged):
            while (
                last is not None
                and await self.durability.wait_durable(last) != ResponseCode.SUCCESS
            ):
                log.warning("reviving popped messages waits for a slow flush")
            self.journal.append(acknowledged)
