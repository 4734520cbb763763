"""Send-back of messages that a consumer failed to process: to the retry or dead-letter topic."""

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bolide.auth.access import FoundMessageCheck
from bolide.broker.background import COLD_READS, message_at, on_thread
from bolide.broker.consume.expiry import has_expired
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topic_attributes import is_compacted
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.produce.addressing import delayed
from bolide.broker.produce.batches import message_of
from bolide.broker.produce.durability import Durability, unavailable
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.kernel import read_record
from bolide.model.message import Host
from bolide.model.names import WRITE, dead_letter_topic, retry_topic
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.send import SendBackHeader
from bolide.protocol.hosts import pack_host, unpack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.pop_info import normal_topic
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.refusals import NoPermission, ServerError
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.contract import Store
from bolide.store.errors import StoreClosed, StoreUnwritable

log = logging.getLogger(__name__)

_FIRST_RETRY_LEVEL = 3
_DEAD_LETTER_QUEUES = 1


FindCompacted = Callable[[str, int, str | None], bytes | None]
"""Finds a message of a compaction topic by its position there and its unique id. Blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackParts:
    """Components that send-backs use."""

    cell: ConfigCell[BrokerConfig]
    store: Store
    topics: TopicTable
    groups: GroupTable
    intake: Intake
    durability: Durability
    statistics: Statistics
    store_host: Host
    max_level: int
    now: Callable[[], float] = time.time
    find_compacted: FindCompacted = lambda *_: None
    check_found: FoundMessageCheck = field(default_factory=FoundMessageCheck)


class SendBackHandlers:
    """Stores failed messages for redelivery, or as dead letters after too many attempts."""

    def __init__(self, parts: SendBackParts) -> None:
        self._parts = parts
        self._store_host = pack_host(parts.store_host)

    @handles(SendBackHeader, RequestCode.CONSUMER_SEND_MSG_BACK)
    async def send_back(self, request: Request[SendBackHeader]) -> Reply:
        header, parts = request.header, self._parts
        config = parts.cell.value
        group = parts.groups.require(header.group)
        if not config.broker_permission & WRITE:
            raise NoPermission(f"the broker[{config.broker_ip1}] sending message is forbidden")
        if group.retry_queue_nums <= 0:  # the group has retries disabled
            return Reply()
        record = await self._message_at(header)
        parts.check_found(request, record)
        if has_expired(record, parts.now()):  # an expired message is not delivered again
            return Reply()
        dead = is_dead(header, group, record.reconsume_times)
        topic = await self._topic_for(header, group, dead=dead)
        draft = self._draft(header, record, topic, dead=dead)
        try:
            appended = parts.intake.append(draft)
            code = await parts.durability.wait_durable(appended)
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        if (
            code != ResponseCode.SUCCESS
        ):  # on success the client commits; a crash could lose the retry
            raise ServerError(f"{ResponseCode(code).name}: the disk is slow; send it back again")
        self._count(header.group, record, draft, appended.size, dead=dead)
        return Reply()

    async def _message_at(self, header: SendBackHeader) -> Record:
        found = message_of(await self._record_of(header), header.origin_msg_id)
        if found is None:  # clients then send a copy themselves
            raise ServerError(
                f"MESSAGE_ILLEGAL: the batch at {header.offset} has no message"
                f" {header.origin_msg_id}; send a copy of it to the retry topic"
            )
        return found

    async def _record_of(self, header: SendBackHeader) -> Record:
        topic = self._parts.topics.find(header.origin_topic or "")
        if topic is not None and is_compacted(topic):
            data = await self._compacted(topic.topic_name, header)
        else:
            data = await message_at(self._parts.store, header.offset)
        if data is None:
            raise ServerError(f"look message by offset failed, {header.offset}: no message there")
        record = read_record(data)
        assert isinstance(record, Record)
        return record

    async def _compacted(self, topic: str, header: SendBackHeader) -> bytes | None:
        """Find a message of a compaction topic.

        The offset is one in the compaction log, or in the commit log if the message was delivered
        before it was copied.
        """
        find, unique_id = self._parts.find_compacted, header.origin_msg_id
        found = await on_thread(COLD_READS, find, topic, header.offset, unique_id)
        if found is not None:
            return found
        data = await message_at(self._parts.store, header.offset)
        record = None if data is None else read_record(data)
        if not isinstance(record, Record) or record.topic != topic:
            return None
        is_it = unique_id in (None, record.decode_properties().get(PropertyName.UNIQUE_ID))
        return data if is_it else None

    async def _topic_for(
        self, header: SendBackHeader, group: GroupConfig, *, dead: bool
    ) -> TopicConfig:
        topics = self._parts.topics
        if dead:
            return await topics.create_retry(dead_letter_topic(header.group), _DEAD_LETTER_QUEUES)
        name, queues = retry_topic(header.group), group.retry_queue_nums
        topic = await topics.create_retry(name, queues, unit=header.unit_mode)
        if not topic.perm & WRITE:
            raise NoPermission(f"the topic[{name}] sending message is forbidden")
        return topic

    def _draft(
        self, header: SendBackHeader, record: Record, topic: TopicConfig, *, dead: bool
    ) -> RecordDraft:
        properties = record.decode_properties()
        properties[PropertyName.RETRY_TOPIC] = _origin(record, properties, header.group)
        properties.setdefault(PropertyName.ORIGIN_MESSAGE_ID, _offset_id(record))
        properties[PropertyName.WAIT_STORED] = "false"
        properties.pop(PropertyName.DELAY_LEVEL, None)
        draft = RecordDraft(
            topic.topic_name.encode(), record.body, b"",
            random.randrange(max(topic.write_queue_nums, 1)),  # noqa: S311
            record.born_timestamp, record.born_host, self._store_host, record.flag,
            record.sys_flag, record.reconsume_times + 1,
        )  # fmt: skip
        if dead:
            return draft._replace(properties=encode_properties(properties).encode())
        level = header.delay_level or _FIRST_RETRY_LEVEL + record.reconsume_times
        return delayed(draft, properties, min(level, self._parts.max_level))

    def _count(
        self, group: str, record: Record, draft: RecordDraft, size: int, *, dead: bool
    ) -> None:
        origin = _origin(record, record.decode_properties(), group)
        self._parts.statistics.sent_back(group, origin, size, None if dead else draft.queue_id)
        if dead:
            self._parts.statistics.dead_lettered(group, origin, by_broker=True)
            log.info(
                "message of %s moved to the dead letters of %s after %s attempts: %s",
                origin, group, record.reconsume_times, _offset_id(record),
            )  # fmt: skip


def _origin(record: Record, properties: Mapping[str, str], group: str) -> str:
    """The topic that a message was sent to; a popped one may come from a retry topic."""
    return properties.get(PropertyName.RETRY_TOPIC) or normal_topic(record.topic, group)


def is_dead(header: SendBackHeader, group: GroupConfig, reconsume_times: int) -> bool:
    """Whether a message has used up its attempts; the client's limit overrides the group's."""
    limit = group.retry_max_times
    if header.max_reconsume_times is not None:
        limit = header.max_reconsume_times
    return header.delay_level < 0 or reconsume_times >= limit


def _offset_id(record: Record) -> str:
    return OffsetId(unpack_host(record.store_host), record.physical_offset).encode()
