"""Pulls: who may read what, the reading, and the waiting for what is not there yet."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.arrivals import Arrivals, Waiter
from bolide.broker.background import Background
from bolide.broker.clients import ClientTable
from bolide.broker.config import BrokerConfig
from bolide.broker.expiry import Expiring
from bolide.broker.filters.filters import Filters, Judged, NotCompiled
from bolide.broker.groups import GroupTable
from bolide.broker.handlers.judged_pulls import JudgedPulls
from bolide.broker.hooks import Hooks
from bolide.broker.offsets import OffsetTable
from bolide.broker.statistics import Statistics
from bolide.broker.topics import TopicTable
from bolide.config import ConfigCell
from bolide.model.names import READ, RETRY_PREFIX
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.record import RECORD_HEAD, store_time
from bolide.protocol.refusals import (
    InvalidParameter,
    NoPermission,
    SubscriptionNotFound,
    SubscriptionOutdated,
)
from bolide.remoting.dispatch import Later, Reply, Request, handles
from bolide.store.config import QUEUE_UNIT_SIZE, StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import Found, ReadLimits, ReadStatus, Wanted

_COMMIT, _SUSPEND, _HAS_SUBSCRIPTION = 1, 2, 4
_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
_TOOLS = ("TOOLS_CONSUMER", "CID_RMQ_SYS_")

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
}
_NO_QUEUE = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)
_OFFSET_RESET = "OFFSET_RESET"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullParts:
    """What pulls need of the broker."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Store
    log_end: Callable[[], int]
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    arrivals: Arrivals
    statistics: Statistics
    background: Background
    expiring: Expiring
    filters: Filters
    hooks: Hooks
    now: Callable[[], float] = time.time


@dataclass(slots=True)
class Pull:
    """One pull that was admitted; `offset` moves on past messages that nobody wants."""

    header: PullHeader
    group: GroupConfig
    topic_sys_flag: int
    wanted: Wanted
    peer: str
    offset: int
    begun: float


class PullHandlers:
    """Hand messages to consumers, and have them wait while there are none."""

    def __init__(self, parts: PullParts) -> None:
        self._parts = parts
        self._judged = JudgedPulls(
            parts.filters.functions,
            parts.arrivals,
            read=self._read_anyhow,
            end=lambda pull: parts.store.max_offset(pull.header.topic, pull.header.queue_id),
            reset=self._reset,
            reply=self._reply,
        )

    @handles(PullHeader, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, request: Request[PullHeader]) -> Reply | Later:
        try:
            pull = self._admitted(request)
        except NotCompiled as exc:
            return self._parts.background.answer(self._compile_and_serve(request, exc.text))
        return self._reset(pull) or self._serve(pull)

    async def _compile_and_serve(self, request: Request[PullHeader], text: str) -> Reply:
        pull = None
        while pull is None:
            await self._parts.filters.compile([text])
            try:
                pull = self._admitted(request)
            except NotCompiled as exc:  # the group wants something else by now
                text = exc.text
        return self._reset(pull) or await self._judged.serve(pull, self._seconds(pull))

    def _admitted(self, request: Request[PullHeader]) -> Pull:
        """Raises Refusal, or NotCompiled."""
        header = request.header
        group, topic = self._admit(request)
        peer = request.connection.peer
        wanted = self._wanted(request, group)
        if header.topic.startswith(RETRY_PREFIX):
            wanted = self._parts.filters.of_retries(header.consumer_group, wanted)
        flag, begun = topic.topic_sys_flag, self._parts.now()
        pull = Pull(header, group, flag, wanted, peer, header.queue_offset, begun)
        if header.sys_flag & _COMMIT and header.commit_offset >= 0:
            self._parts.offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                peer=peer,
            )
        return pull

    # ---- admission

    def _admit(self, request: Request[PullHeader]) -> tuple[GroupConfig, TopicConfig]:
        header, config = request.header, self._parts.cell.value
        if not config.broker_permission & READ:
            raise NoPermission(f"the broker[{config.broker_ip1}] pulling message is forbidden")
        lite = request.frame.code == RequestCode.LITE_PULL_MESSAGE
        if lite and not config.lite_pull_message_enable:
            raise NoPermission(
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden"
            )
        group = self._parts.groups.require(header.consumer_group)
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {header.consumer_group}")
        topic = self._parts.topics.require(header.topic)
        if not topic.perm & READ:
            raise NoPermission(f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]"
                f" consumer:[{request.connection.peer}]"
            )
        return group, topic

    def _wanted(self, request: Request[PullHeader], group: GroupConfig) -> Wanted:
        header = request.header
        if self._parts.cell.value.reject_pull_consumer_enable:
            self._refuse_pull_consumer(request)
        if header.sys_flag & _HAS_SUBSCRIPTION:
            return self._parts.filters.pulled_by(header.expression_type, header.subscription)
        members = self._parts.clients.consumer_group(header.consumer_group)
        if members is None:
            raise SubscriptionNotFound(
                f"the consumer's group info not exist: no member of {header.consumer_group!r} has"
                " sent a heartbeat"
            )
        if (
            members.message_model is MessageModel.BROADCASTING
            and not group.consume_broadcast_enable
        ):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            )
        if not self._parts.groups.is_readable(header.consumer_group, header.topic):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] is forbidden for"
                f" topic[{header.topic}]"
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise SubscriptionNotFound(
                f"the consumer's subscription not exist: group {header.consumer_group!r} has not"
                f" subscribed to {header.topic!r}; all members must subscribe to the same topics"
            )
        if subscription.sub_version < header.sub_version:
            raise SubscriptionOutdated("the consumer's subscription not latest")
        return self._parts.filters.subscribed(
            header.consumer_group, subscription, header.sub_version
        )

    def _refuse_pull_consumer(self, request: Request[PullHeader]) -> None:
        group = request.header.consumer_group
        members = self._parts.clients.consumer_group(group)
        pushes = members is not None and members.consume_type is not ConsumeType.CONSUME_ACTIVELY
        known = members is not None and any(
            member.connection is request.connection for member in members.members
        )
        if not (pushes or known or group.startswith(_TOOLS)):
            raise SubscriptionNotFound(
                f"the consumer's group info not exist, or the pull consumer {group!r} is rejected"
                " by server (rejectPullConsumerEnable)"
            )

    # ---- serving

    def _reset(self, pull: Pull) -> Reply | None:
        """Where an administrator moved the group while it was consuming."""
        header, parts = pull.header, self._parts
        if not parts.cell.value.use_server_side_reset_offset:
            return None
        target = parts.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if target is None:
            return None
        low = parts.store.min_offset(header.topic, header.queue_id)
        high = parts.store.max_offset(header.topic, header.queue_id)
        found = Found(ReadStatus.OFFSET_OVERFLOW_BADLY, target, low, high)
        return self._reply(pull, found, remark=_OFFSET_RESET)

    def _serve(self, pull: Pull) -> Reply | Later:
        if isinstance(pull.wanted, Judged):
            work = self._judged.serve(pull, self._seconds(pull))
            return self._parts.background.answer(work)
        try:
            found = self._read(pull, may_block=False)
        except NotInMemory:
            return self._parts.background.answer(self._serve_cold(pull))
        if pull.header.sys_flag & _SUSPEND and _code(pull, found) == ResponseCode.PULL_NOT_FOUND:
            return self._hold(pull)
        return self._reply(pull, found)

    async def _serve_cold(self, pull: Pull) -> Reply:
        return self._reply(pull, await asyncio.to_thread(self._read, pull, may_block=True))

    async def _read_anyhow(self, pull: Pull) -> Found:
        try:
            return self._read(pull, may_block=False)
        except NotInMemory:
            return await asyncio.to_thread(self._read, pull, may_block=True)

    def _read(self, pull: Pull, *, may_block: bool) -> Found:
        header = pull.header
        limits = self._limits(header, from_disk=may_block)
        wanted = self._parts.expiring.wanted(header.topic, pull.wanted)
        return self._parts.store.read(
            header.topic, header.queue_id, pull.offset, limits, wanted, may_block=may_block
        )

    def _limits(self, header: PullHeader, *, from_disk: bool) -> ReadLimits:
        config, store = self._parts.cell.value, self._parts.store_cell.value
        if not config.transfer_limits_given:
            count, size = config.max_pull_count, config.max_pull_bytes
        elif from_disk:
            count, size = store.max_transfer_count_disk, store.max_transfer_bytes_disk
        else:
            count, size = store.max_transfer_count_memory, store.max_transfer_bytes_memory
        if header.max_msg_bytes is not None and header.max_msg_bytes > 0:
            size = min(size, header.max_msg_bytes)
        scanned = store.max_filter_bytes // QUEUE_UNIT_SIZE
        return ReadLimits(max(min(header.max_msg_nums, count), 1), size, scanned)

    # ---- waiting

    def _hold(self, pull: Pull) -> Later:
        later = Later()
        header = pull.header

        def look(is_last: bool) -> bool:
            if later.is_blocked and not is_last:
                later.on_room = lambda: arrivals.wake(waiter)
                return False
            return later.is_lost or self._look_again(pull, later, is_last=is_last)

        arrivals = self._parts.arrivals
        waiter = Waiter((header.topic, header.queue_id), look)
        later.on_lost = lambda: arrivals.drop(waiter)
        arrivals.hold(waiter, self._patience(pull))
        return later

    def _seconds(self, pull: Pull) -> float:
        return self._patience(pull) if pull.header.sys_flag & _SUSPEND else 0.0

    def _patience(self, pull: Pull) -> float:
        """Seconds that a pull may wait."""
        config = self._parts.cell.value
        if not config.long_polling_enable:
            return config.short_polling_time
        return max(pull.header.suspend_timeout_millis, 0) / 1000

    def _look_again(self, pull: Pull, later: Later, *, is_last: bool) -> bool:
        """Answer a pull that waits, if there is an answer by now or no more time."""
        pull.begun = self._parts.now()
        try:
            reply = self._reset(pull) or (
                self._answer_empty(pull)
                if later.is_blocked
                else self._answer_now(pull, is_last=is_last)
            )
        except NotInMemory:
            self._parts.background.settle(later, self._serve_cold(pull))
            return True
        except Exception as exc:  # noqa: BLE001  the dispatcher turns it into a response
            later.fail(exc)
            return True
        if reply is not None:
            later.answer(reply)
        return reply is not None

    def _answer_now(self, pull: Pull, *, is_last: bool) -> Reply | None:
        found = self._read(pull, may_block=False)
        code = _code(pull, found)
        if found.status is ReadStatus.NO_MATCHED_MESSAGE:
            pull.offset = found.next_offset  # what came is not wanted: no need to look there again
        if code == ResponseCode.PULL_NOT_FOUND and pull.offset > pull.header.queue_offset:
            # The client's position moves on past what it did not want, or its lag would grow.
            found.status = ReadStatus.NO_MATCHED_MESSAGE
        waits = code == ResponseCode.PULL_NOT_FOUND or (
            code == ResponseCode.PULL_RETRY_IMMEDIATELY and pull.offset >= found.max_offset
        )
        return None if waits and not is_last else self._reply(pull, found)

    def _answer_empty(self, pull: Pull) -> Reply:
        """Time is up for a client that does not read: it gets no messages on top of the unread."""
        store, topic, queue_id = self._parts.store, pull.header.topic, pull.header.queue_id
        moved = pull.offset > pull.header.queue_offset
        status = ReadStatus.NO_MATCHED_MESSAGE if moved else ReadStatus.OFFSET_FOUND_NULL
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        return self._reply(pull, Found(status, pull.offset, low, high))

    # ---- answers

    def _reply(self, pull: Pull, found: Found, *, remark: str | None = None) -> Reply:
        header, parts = pull.header, self._parts
        code = _code(pull, found)
        behind = self._count(pull, found)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        parts.offsets.pulled(group, topic, queue_id, found.next_offset)
        answer = PullReply(
            suggest_which_broker_id=self._suggest(pull.group, behind),
            next_begin_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            topic_sys_flag=pull.topic_sys_flag,
            group_sys_flag=pull.group.group_sys_flag,
        )
        for hook in parts.hooks.consume:
            hook.after_pull(pull.peer, header, len(found.records), found.size)
        body = b"".join(found.records) if code == ResponseCode.SUCCESS else b""
        return Reply(code=code, header=answer, body=body, remark=remark or found.status.value)

    def _count(self, pull: Pull, found: Found) -> int:
        """Note what is delivered; returns how many bytes of the log lie behind it."""
        header, statistics = pull.header, self._parts.statistics
        if not found.records:
            statistics.got_nothing()
            return 0
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        now = self._parts.now()
        took = now - pull.begun
        statistics.got(group, topic, queue_id, len(found.records), found.size, took)
        last = found.records[-1]
        place: int = RECORD_HEAD.unpack_from(last)[2]
        behind = max(self._parts.log_end() - place, 0)
        late = max(now - store_time(last) / 1000, 0.0)
        statistics.fell_behind(group, topic, queue_id, behind, late)
        return behind

    def _suggest(self, group: GroupConfig, behind: int) -> int:
        """The broker to pull from next: a replica while the group reads what memory lacks."""
        if not self._parts.cell.value.slave_read_enable:
            return 0
        if behind > _MEMORY * self._parts.store_cell.value.memory_ratio:
            return group.which_broker_when_consume_slowly
        return group.broker_id


def _code(pull: Pull, found: Found) -> ResponseCode:
    if found.status in _NO_QUEUE and pull.header.queue_offset == 0:
        return ResponseCode.PULL_NOT_FOUND
    return _CODES[found.status]
