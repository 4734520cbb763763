"""Timer requests: recall, listing, and the state that replicas copy."""

import logging
import time
from collections.abc import Callable

import msgspec

from bolide.broker.background import ADMIN, on_thread
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.produce.addressing import packed_peer
from bolide.broker.produce.durability import Durability, unavailable
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers import Timers
from bolide.broker.timers.delivery import OnStored
from bolide.broker.timers.due_queue import recall_key
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.timers import PendingTimer, PendingTimers
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import Header, NoHeader
from bolide.protocol.headers.send import RecallHeader, RecallReply
from bolide.protocol.headers.timers import ListTimersHeader, RecallTimersHeader
from bolide.protocol.hosts import pack_host
from bolide.protocol.property_string import encode_properties
from bolide.protocol.recall_handle import BadRecallHandle, RecallHandle
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import (
    IllegalOperation,
    InvalidParameter,
    NoPermission,
    Refusal,
    ServiceNotAvailable,
    TopicNotFound,
)
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.errors import StoreClosed, StoreUnwritable
from bolide.store.tables import TIMER_METRICS

log = logging.getLogger(__name__)

_TAG = "_RECALL_TAG_"
_BODY = b"0"
_MAX_PAGE = 1000


class _Region(Header, frozen=True, kw_only=True):
    """What every answer to a recall has, refusals too: trace hooks of Java clients need it."""

    region: str = msgspec.field(name="MSG_REGION")


class _RecallAnswer(RecallReply, frozen=True, kw_only=True):
    region: str = msgspec.field(name="MSG_REGION")


class TimerHandlers:
    """Serve recalls, listings, and the timer state for replicas."""

    def __init__(  # noqa: PLR0913
        self,
        timers: Timers,
        *,
        topics: TopicTable,
        intake: Intake,
        durability: Durability,
        cell: ConfigCell[BrokerConfig],
        store_host: Host,
        now: Callable[[], float] = time.time,
        on_stored: OnStored = lambda *_: None,
    ) -> None:
        self._timers = timers
        self._on_stored = on_stored
        self._topics = topics
        self._intake = intake
        self._durability = durability
        self._cell = cell
        self._store_host = pack_host(store_host)
        self._now = now

    @handles(RecallHeader, RequestCode.RECALL_MESSAGE)
    async def recall(self, request: Request[RecallHeader]) -> Reply:
        region = self._cell.value.region_id
        try:
            message_id = await self._recall(request)
        except Refusal as exc:
            return Reply(code=exc.code, remark=exc.remark, header=_Region(region=region))
        return Reply(header=_RecallAnswer(msg_id=message_id, region=region))

    async def _recall(self, request: Request[RecallHeader]) -> str:
        """Recall a message; returns its unique id."""
        header = request.header
        handle = self._check_recall(header)
        found = [
            PendingTimer(
                topic=handle.topic,
                deliver_ms=handle.timestamp - 1,
                message_id=handle.unique_id,
                out_ms=handle.timestamp - 1,
            )
        ]
        if handle.timestamp <= self._now_ms():  # a recurring message waits for its next time
            found = await self._find(handle.topic, handle.unique_id)
        if not found:
            raise IllegalOperation(
                f"message {handle.unique_id} cannot be recalled: its time is over"
            )
        for each in found:
            await self._append_recall(each, request.connection.peer, header.producer_group)
        return handle.unique_id

    def _check_recall(self, header: RecallHeader) -> RecallHandle:
        config = self._cell.value
        if not config.recall_message_enable:
            raise NoPermission("recalls are forbidden: recallMessageEnable is false")
        if self._now() < config.start_accept_send_request_time_stamp:
            raise ServiceNotAvailable("recall failed, the broker does not accept messages yet")
        if self._topics.find(header.topic) is None:
            raise TopicNotFound(f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except BadRecallHandle as exc:
            raise IllegalOperation(str(exc)) from exc
        if handle.topic != header.topic:
            raise IllegalOperation(f"recall failed, the handle is of topic {handle.topic!r}")
        if handle.broker_name != config.broker_name:
            raise IllegalOperation(f"recall failed, the handle is of broker {handle.broker_name!r}")
        if handle.timestamp - self._now_ms() > config.timer_max_delay_sec * 1000:
            raise IllegalOperation("recall failed, the time of the handle exceeds timerMaxDelaySec")
        return handle

    @handles(RecallTimersHeader, RequestCode.BOLIDE_RECALL_TIMERS)
    async def recall_by_key(self, request: Request[RecallTimersHeader]) -> Reply:
        header = request.header
        if not header.key:
            raise InvalidParameter("a recall names a key or a unique id")
        found = await self._find(header.topic, header.key)
        for each in found:
            await self._append_recall(each, request.connection.peer, None)
        return Reply(body=fastjson.encode(PendingTimers(timers=found)))

    @handles(ListTimersHeader, RequestCode.BOLIDE_LIST_TIMERS)
    async def page(self, request: Request[ListTimersHeader]) -> Reply:
        header = request.header
        count = min(max(header.max_num, 1), _MAX_PAGE)
        await self._timers.wait_until_enqueued()
        page = await on_thread(
            ADMIN, self._timers.listing.page, header.topic, header.begin, count, self._now_ms()
        )
        return Reply(body=fastjson.encode(PendingTimers(timers=page.timers, next=page.next)))

    @handles(NoHeader, RequestCode.GET_TIMER_CHECK_POINT)
    def checkpoint(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=self._timers.checkpoint.head)

    @handles(NoHeader, RequestCode.GET_TIMER_METRICS)
    def metrics(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=TIMER_METRICS.encode(self._timers.metrics))

    async def _find(self, topic: str, key: str) -> list[PendingTimer]:
        return await on_thread(ADMIN, self._timers.listing.by_key, topic, key, self._now_ms())

    async def _append_recall(self, timer: PendingTimer, peer: str, group: str | None) -> None:
        draft = recall_draft(
            timer.topic,
            timer.message_id,
            names_topic=self._cell.value.append_topic_for_timer_delete_key,
            out_ms=timer.out_ms,
            group=group,
            born_ms=self._now_ms(),
            born_host=packed_peer(peer),
            store_host=self._store_host,
        )
        try:
            appended = self._intake.append(draft)
            await self._durability.wait_durable(appended)
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        self._on_stored(TIMER_TOPIC, draft.queue_id, appended.size)
        log.info("%s recalled message %s of %s", peer, timer.message_id, timer.topic)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


def recall_draft(  # noqa: PLR0913
    topic: str,
    unique_id: str,
    *,
    names_topic: bool,
    out_ms: int,
    group: str | None,
    born_ms: int,
    born_host: bytes,
    store_host: bytes,
) -> RecordDraft:
    """Build the message that recalls a timer message due at `out_ms`."""
    properties = {
        PropertyName.TAGS: _TAG,
        PropertyName.TIMER_DELETE_UNIQUE_ID: (
            recall_key(topic, unique_id) if names_topic else unique_id
        ),
        PropertyName.UNIQUE_ID: unique_id,
        PropertyName.TIMER_DELIVER_MS: str(out_ms + 1),
        PropertyName.BORN_TIMESTAMP: str(born_ms),
        PropertyName.TIMER_OUT_MS: str(out_ms),
        PropertyName.REAL_TOPIC: topic,
        PropertyName.REAL_QUEUE_ID: "0",
    }
    if group:
        properties[PropertyName.PRODUCER_GROUP] = group
    text = encode_properties(properties).encode()
    return RecordDraft(TIMER_TOPIC.encode(), _BODY, text, 0, born_ms, born_host, store_host)
