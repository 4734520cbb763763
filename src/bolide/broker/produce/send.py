"""Send handlers (`SendMessageProcessor`): single messages, batches and client-side retries.

A send is checked, its topic is created if allowed, its drafts are appended, and the reply is given
once the messages are durable. Most sends are stored synchronously; sends that create a topic or
wait for a deduplication window run in the background.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from bolide.broker.background import Background
from bolide.broker.consume.expiry import Expiring, check_expiry
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.gate import Hooks
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.topic_attributes import is_compacted
from bolide.broker.metadata.topics import TopicTable, validate_topic
from bolide.broker.metrics.traffic import message_type
from bolide.broker.produce.addressing import (
    BrokerProperties,
    address,
    any_queue,
    is_half,
    is_stored_as_is,
    kept_in,
    packed_peer,
    without_transaction,
)
from bolide.broker.produce.batches import check_inner_batch, inner_draft, split_batch
from bolide.broker.produce.compacted import check_compacted, deletes_key
from bolide.broker.produce.durability import Durability, unavailable
from bolide.broker.produce.intake import Intake
from bolide.broker.produce.priority import placed_by_priority
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.broker.timers.recurring import begin_series
from bolide.broker.timers.timetable import Timetable, refuse_foreign_recall
from bolide.broker.transactions.half_messages import half_draft
from bolide.config import ConfigCell
from bolide.events import Listeners
from bolide.model.message import Host, SysFlag
from bolide.model.names import (
    HALF_TOPIC,
    WRITE,
    dead_letter_topic,
    is_retry_topic,
    is_sendable,
    retrying_group,
)
from bolide.model.properties import PropertyName
from bolide.protocol.batch import BadBatch
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import OffsetId, UniqueIdMaker
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import MAX_BODY_SIZE, RecordDraft
from bolide.protocol.record_errors import RecordTooLarge
from bolide.protocol.refusals import (
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    Refusal,
    ServerError,
)
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.appending import Appended
from bolide.store.errors import StoreClosed, StoreUnwritable

_MULTI_TAGS = int(SysFlag.MULTI_TAGS)
_HALF = HALF_TOPIC.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendParts:
    """Collaborators of the send handlers."""

    cell: ConfigCell[BrokerConfig]
    topics: TopicTable
    groups: GroupTable
    locks: QueueLocks
    intake: Intake
    duplicates: Duplicates
    durability: Durability
    statistics: Statistics
    background: Background
    expiring: Expiring
    unique_ids: UniqueIdMaker
    store_host: Host
    max_level: int
    max_message_size: Callable[[], int]
    hooks: Hooks
    now: Callable[[], float] = time.time
    max_compacted_size: Callable[[], int] = lambda: MAX_BODY_SIZE
    """Size in bytes of the largest record for a compaction topic."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One send request before it is stored."""

    header: SendHeader
    body: bytes
    born_host: bytes
    peer: str
    started: float
    check_queue: Callable[[], None] | None = None
    """Set if the sender named a logical queue: raises Refusal if the queue id of the header is no
    longer the right one."""


class StoredSend(NamedTuple):
    """The outcome of appending the messages of a send."""

    queue_id: int
    unique_id: str | None
    appended: list[Appended]
    """Positions of all messages, in the order of the request."""
    fresh: list[Appended]
    """Positions of the messages that are not duplicates."""
    kept_in: tuple[str, int] | None = None
    """The system topic and queue that hold a half, delayed or timer message for now."""
    recall_handle: str | None = None
    """Handle by which a timer message can be recalled."""
    batch_id: str | None = None
    """Unique id of a batch that was stored as one record."""
    inner_count: int = 0
    """Messages in that record."""

    @property
    def last(self) -> Appended:
        """The message with the highest physical offset; once it is durable, all are."""
        return max(self.appended)


class SendHandlers:
    """Accepts messages from producers."""

    def __init__(self, parts: SendParts) -> None:
        self._parts = parts
        self._store_host = pack_host(parts.store_host)
        self.broker_properties = BrokerProperties.of(parts.cell.value)
        self._timetable = Timetable(parts.cell, parts.now)
        self.on_admitted: Listeners[Request[Any], SendHeader, TopicConfig] = Listeners()
        """Emitted after a send to an existing topic was admitted and stored."""
        parts.cell.on_change(self._settings_changed)

    def _settings_changed(self, config: BrokerConfig) -> None:
        self.broker_properties = BrokerProperties.of(config)

    @handles(SendHeader, RequestCode.SEND_MESSAGE)
    def send(self, request: Request[SendHeader]) -> Reply | DeferredReply:
        return self.receive(request, request.header)

    @handles(NoHeader, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    def send_short(self, request: Request[NoHeader]) -> Reply | DeferredReply:
        return self.receive(request, SendHeader.from_short(request.frame.fields))

    def receive(
        self,
        request: Request[SendHeader] | Request[NoHeader],
        header: SendHeader,
        check_queue: Callable[[], None] | None = None,
    ) -> Reply | DeferredReply:
        """Store the messages of a send; `header` is its header, however it was written."""
        peer, now = request.connection.peer, self._parts.now()
        incoming = Incoming(header, request.body, packed_peer(peer), peer, now, check_queue)
        try:
            self._check(incoming)
            topic = self._parts.topics.find(header.topic)
            if topic is None or is_retry_topic(header.topic) or self._must_wait(incoming):
                deferred = self._parts.background.defer(self._store_in_background(incoming))
                deferred.on_lost = None  # store the message even if its sender disconnects
                return deferred
            reply = self._store(incoming, topic)
            self.on_admitted(request, header, topic)
        except Refusal as exc:
            return self._refusal_reply(incoming, exc)
        return reply

    def _must_wait(self, incoming: Incoming) -> bool:
        """Whether the topic's deduplication window or expiry table is not ready yet."""
        header = incoming.header
        if self._expires_here_first(incoming):
            return True
        return self._parts.duplicates.windows.is_reading(header.topic) and (
            header.batch or PropertyName.DEDUP_KEY in header.properties
        )

    def _expires_here_first(self, incoming: Incoming) -> bool:
        """Whether this is the first message of its topic with an expiry time."""
        header = incoming.header
        batch = incoming.body if header.batch else b""
        return self._parts.expiring.is_new(header.topic, header.properties, batch)

    # ---- reply messages (request-reply), checked and stored like sends

    async def admit(self, incoming: Incoming) -> None:
        """Check a message and its topic, which is created if missing. Raises Refusal."""
        self._check(incoming)
        self._check_topic(incoming.header, await self._ready_topic(incoming.header))

    async def store(self, incoming: Incoming) -> Reply:
        """Store an admitted message; returns the reply that a send would get."""
        return await self._store_in_background(incoming)

    def refuse(self, incoming: Incoming, exc: Refusal) -> Reply:
        return self._refusal_reply(incoming, exc)

    def conclude(self, incoming: Incoming, reply: Reply) -> Reply:
        """Pass a reply to the hooks and return it."""
        return self._conclude(incoming, reply)

    # ---- checks

    def _check(self, incoming: Incoming) -> None:
        header, config = incoming.header, self._parts.cell.value
        begin = config.start_accept_send_request_time_stamp
        if incoming.started < begin:
            raise ServerError(
                f"broker unable to service, until {int(begin * 1000)} (milliseconds since 1970)"
            )
        validate_topic(header.topic)
        if not is_sendable(header.topic):
            raise NoPermission(f"Sending message to topic[{header.topic}] is forbidden.")
        if not incoming.body and not deletes_key(header, self._parts.topics.find(header.topic)):
            raise MessageIllegal(f"a message for topic {header.topic!r} has no body")
        for hook in self._parts.hooks.send:
            hook.before_send(incoming.peer, header, incoming.body)

    def _check_topic(self, header: SendHeader, topic: TopicConfig) -> None:
        config = self._parts.cell.value
        if not config.broker_permission & WRITE and topic.order:
            raise NoPermission(f"the broker[{config.broker_ip1}] sending message is forbidden")
        if not topic.perm & WRITE:
            raise NoPermission(f"the topic[{topic.topic_name}] sending message is forbidden")
        most = max(topic.write_queue_nums, topic.read_queue_nums)
        if header.queue_id >= most:
            raise InvalidParameter(
                f"request queueId[{header.queue_id}] is illegal: topic {topic.topic_name!r}"
                f" has {most} queues"
            )

    def _check_transactions(self) -> None:
        config = self._parts.cell.value
        if config.reject_transaction_message:
            raise NoPermission(
                f"the broker[{config.broker_ip1}] sending transaction message is forbidden"
            )

    # ---- storing

    def _store(self, incoming: Incoming, topic: TopicConfig) -> Reply | DeferredReply:
        """Append synchronously; the reply may have to wait for the disk or for replicas."""
        stored = self._append(incoming, topic)
        if not self._parts.durability.answers_wait:
            return self._stored_reply(incoming, stored, ResponseCode.SUCCESS)
        deferred = DeferredReply()

        def on_durable(outcome: int | StoreUnwritable) -> None:
            try:
                deferred.answer(self._reply_for(incoming, stored, outcome))
            except Exception as exc:  # noqa: BLE001  from a hook; the dispatcher logs and replies
                deferred.fail(exc)

        self._parts.durability.when_answerable(stored.last, on_durable)
        return deferred

    async def _store_in_background(self, incoming: Incoming) -> Reply:
        """As `_store`, for a send whose topic must be created, loaded or redirected first."""
        try:
            if self._expires_here_first(incoming):
                await self._find_or_create(incoming.header)
                await self._parts.expiring.add(incoming.header.topic)
            topic = await self._ready_topic(incoming.header)
            if is_retry_topic(topic.topic_name):
                incoming, topic = await self._redirect_dead(incoming, topic)
            stored = self._append(incoming, topic)
            code = await self._parts.durability.wait_answerable(stored.last)
            return self._stored_reply(incoming, stored, code)
        except StoreUnwritable as exc:
            return self._reply_for(incoming, stored, exc)
        except Refusal as exc:
            return self._refusal_reply(incoming, exc)

    async def _ready_topic(self, header: SendHeader) -> TopicConfig:
        """Find or create the topic and wait until its deduplication window is loaded."""
        windows, topic = self._parts.duplicates.windows, await self._find_or_create(header)
        while windows.is_reading(header.topic):
            await windows.ready(header.topic)
            topic = await self._find_or_create(header)  # it may have been replaced or deleted
        return topic

    async def _find_or_create(self, header: SendHeader) -> TopicConfig:
        topics = self._parts.topics
        found = topics.find(header.topic)
        if found is not None:
            return found
        if is_retry_topic(header.topic):
            return await topics.create_retry(header.topic, 1, unit=header.unit_mode)
        queues = header.default_topic_queue_nums
        return await topics.create_on_send(
            header.topic, header.default_topic, queues, unit=header.unit_mode
        )

    async def _redirect_dead(
        self, incoming: Incoming, topic: TopicConfig
    ) -> tuple[Incoming, TopicConfig]:
        """Redirect a client-side retry over the retry limit to the dead letter topic."""
        header = incoming.header
        if header.batch:
            raise MessageIllegal(f"batch request does not support retry group {header.topic}")
        group = retrying_group(header.topic)
        config = self._parts.groups.require(group)
        times = config.retry_max_times
        if header.max_reconsume_times is not None:
            times = header.max_reconsume_times
        # An ordered group has used up its retries in place before it sends a message back.
        if header.reconsume_times <= times and not self._parts.locks.holds_any(group):
            return incoming, topic
        dead = await self._parts.topics.create_retry(dead_letter_topic(group), 1)
        properties = decode_properties(header.properties)
        properties.pop(PropertyName.DELAY_LEVEL, None)
        self._parts.statistics.dead_lettered(group, header.topic, by_broker=False)
        moved = msgspec.structs.replace(
            header, topic=dead.topic_name, queue_id=0, properties=encode_properties(properties)
        )
        return replace(incoming, header=moved), dead

    def _append(self, incoming: Incoming, topic: TopicConfig) -> StoredSend:
        self._check_topic(incoming.header, topic)
        if incoming.check_queue is None:
            header = placed_by_priority(incoming.header, topic)
        else:  # the queue may have moved while the send waited
            incoming.check_queue()
            header = incoming.header
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = any_queue(header, topic)
        sys_flag = header.sys_flag
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= _MULTI_TAGS
        draft = RecordDraft(
            topic.topic_name.encode(), incoming.body, b"", queue_id, header.born_timestamp,
            incoming.born_host, self._store_host, header.flag, sys_flag, header.reconsume_times,
        )  # fmt: skip
        try:
            if header.batch:
                return self._append_batch(header, draft, topic)
            return self._append_single(header, draft, topic)
        except RecordTooLarge as exc:
            raise MessageIllegal(f"{exc}: send less, or raise maxMessageSize") from exc
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        except (BadBatch, ValueError) as exc:
            raise MessageIllegal(str(exc)) from exc

    def _append_batch(
        self, header: SendHeader, draft: RecordDraft, topic: TopicConfig
    ) -> StoredSend:
        parts, own = self._parts, self.broker_properties
        batch = split_batch(
            header, draft, own,
            max_size=parts.max_message_size(), max_count=parts.cell.value.max_batch_count,
        )  # fmt: skip
        inner = inner_draft(header, draft, len(batch), topic, own)
        if inner is not None:
            stored = [parts.intake.append(inner[0])]
            sent = StoredSend(draft.queue_id, None, stored, stored)
            return sent._replace(batch_id=inner[1], inner_count=len(batch))
        parts.duplicates.check_batch(header, batch)
        if is_compacted(topic):
            check_compacted(batch, parts.max_compacted_size())
        return StoredSend(draft.queue_id, None, *self._put(topic, draft.queue_id, batch))

    def _append_single(
        self, header: SendHeader, draft: RecordDraft, topic: TopicConfig
    ) -> StoredSend:
        queue_id = draft.queue_id
        if is_compacted(topic):
            given = draft._replace(properties=header.properties.encode())
            check_compacted([given], self._parts.max_compacted_size())
        draft, unique_id = self._single(header, draft, topic)
        if draft.topic == _HALF:
            stored = [self._parts.intake.append(draft)]
            return StoredSend(queue_id, unique_id, stored, stored, kept_in=kept_in(draft))
        handle = self._timetable.recall_handle(draft)
        places = self._put(topic, queue_id, [draft])
        return StoredSend(
            queue_id, unique_id, *places, recall_handle=handle, kept_in=kept_in(draft)
        )

    def _put(
        self, topic: TopicConfig, queue_id: int, drafts: list[RecordDraft]
    ) -> tuple[list[Appended], list[Appended]]:
        """Append the drafts that are not duplicates; returns all positions and the new ones."""
        parts = self._parts
        if parts.duplicates.concerns(topic.topic_name, drafts):
            return parts.duplicates.append(topic.topic_name, queue_id, drafts)
        single = len(drafts) == 1
        appended = [parts.intake.append(drafts[0])] if single else parts.intake.append_batch(drafts)
        return appended, appended

    def _single(
        self, header: SendHeader, draft: RecordDraft, topic: TopicConfig
    ) -> tuple[RecordDraft, str]:
        """Return the draft with its final topic and properties, and its unique id."""
        properties = decode_properties(header.properties)
        check_inner_batch(draft, properties, topic, self._parts.max_message_size())
        half = is_half(draft, properties)
        if not half:
            draft = without_transaction(draft, properties)
        if is_stored_as_is(header.properties) and PropertyName.UNIQUE_ID in properties:
            # The common case: the property string is stored unchanged, as on the fast path.
            plain = draft._replace(
                properties=self.broker_properties.add_to(header.properties).encode()
            )
            return plain, properties[PropertyName.UNIQUE_ID]
        check_expiry(properties)
        refuse_foreign_recall(properties, draft.topic.decode())
        begin_series(properties, draft, int(self._parts.now() * 1000))
        properties.pop(PropertyName.POP_CHECKPOINT, None)
        properties |= self.broker_properties.properties
        if PropertyName.UNIQUE_ID not in properties:
            now = int(self._parts.now() * 1000)
            properties[PropertyName.UNIQUE_ID] = self._parts.unique_ids.make(now)
        unique_id = properties[PropertyName.UNIQUE_ID]
        if half:
            self._check_transactions()
            self._timetable.due(properties)  # refuse a bad time now, not at commit
            return half_draft(draft, properties, header.producer_group), unique_id
        return address(draft, properties, self._parts.max_level, self._timetable), unique_id

    # ---- replies

    def _reply_for(
        self, incoming: Incoming, stored: StoredSend, outcome: int | StoreUnwritable
    ) -> Reply:
        """Return the reply to a send once its durability is known."""
        if isinstance(outcome, StoreUnwritable):
            return self._refusal_reply(incoming, unavailable(outcome))
        return self._stored_reply(incoming, stored, outcome)

    def _stored_reply(self, incoming: Incoming, stored: StoredSend, code: int) -> Reply:
        parts, appended = self._parts, stored.appended
        if stored.fresh:
            size = sum(each.size for each in stored.fresh)
            took = parts.now() - incoming.started
            queue = stored.kept_in or (incoming.header.topic, stored.queue_id)
            parts.statistics.sent(*queue, stored.inner_count or len(stored.fresh), size, took)
            self._count_traffic(incoming, stored)
        ids = [OffsetId(parts.store_host, each.physical_offset).encode() for each in appended]
        properties = self.broker_properties.answer
        answer = SendReply(
            msg_id=",".join(ids),
            queue_id=stored.queue_id,
            queue_offset=appended[0].queue_offset,
            transaction_id=stored.unique_id,
            batch_uniq_id=stored.batch_id,
            recall_handle=stored.recall_handle,
            repeats=len(appended) - len(stored.fresh) or None,
            region=properties.region,
            trace_on=properties.trace_on,
        )
        return self._conclude(incoming, Reply(code=code, header=answer))

    def _count_traffic(self, incoming: Incoming, stored: StoredSend) -> None:
        traffic, properties = self._parts.statistics.traffic, incoming.header.properties
        kind = message_type(properties)
        topic = stored.kept_in[0] if stored.kept_in else incoming.header.topic
        sizes = [each.size for each in stored.fresh]
        if stored.inner_count:
            traffic.batch_in(topic, kind, stored.inner_count, sum(sizes))
        else:
            traffic.message_in(topic, kind, sizes)

    def _refusal_reply(self, incoming: Incoming, exc: Refusal) -> Reply:
        self._parts.statistics.failed()
        reply = Reply(code=exc.code, remark=exc.remark, header=self.broker_properties.answer)
        return self._conclude(incoming, reply)

    def _conclude(self, incoming: Incoming, reply: Reply) -> Reply:
        for hook in self._parts.hooks.send:
            hook.after_send(incoming.peer, incoming.header, reply)
        return reply
