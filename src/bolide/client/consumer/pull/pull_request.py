"""One pull: the request, the replica it is sent to, and the interpretation of the reply."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from msgspec import structs

from bolide.client.consumer.received import read_messages, without_expired
from bolide.client.consumer.subscription import Filter
from bolide.client.errors import BrokerUnknown
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.routes import BrokerAddress
from bolide.kernel import joined_flags
from bolide.model.message import StoredMessage, SysFlag
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.refusals import NotLeaderForQueue, Refusal
from bolide.remoting.errors import RemotingError

log = logging.getLogger(__name__)

MAX_COUNT = 2**31 - 1
MASTER = 0

_COMMIT, _SUSPEND, _SUBSCRIPTION, _LITE = 0x1, 0x2, 0x4, 0x10

# Larger replies are decoded in a thread; compressed bodies may grow a thousandfold.
_LARGE_REPLY = 256 * 1024
_LARGE_COMPRESSED = 8 * 1024

_COMPRESSED = int(SysFlag.COMPRESSED)

FilterHook = Callable[[StoredMessage], bool]
"""Returns whether to keep a message that matched its subscription."""


class PullStatus(Enum):
    """The result of a pull, with RocketMQ's names."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_RESET = "OFFSET_RESET"
_ACCEPTED = frozenset(status.value for status in PullStatus)


@dataclass(frozen=True, slots=True)
class PullResult:
    """The messages found and the offset to continue at; `next_offset` is valid for every status."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage] = ()
    is_reset: bool = False
    """Whether `next_offset` differs because the offset was reset at the broker."""


@dataclass(frozen=True, slots=True)
class RawPull:
    """The reply to a pull with undecoded records; tags and hooks are not applied."""

    status: PullStatus
    header: PullReply
    body: bytes
    remark: str | None
    """The status of the broker's store."""
    from_slave: bool

    @property
    def is_reset(self) -> bool:
        return self.remark == _RESET


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """A pull request. The broker may suspend it for `suspend` seconds (long polling)."""

    queue: MessageQueue
    filter: Filter
    queue_offset: int
    max_count: int
    max_bytes: int | None = None
    suspend: float = 0.0
    within: float = 30.0
    commit_offset: int = 0
    """The offset to commit with the pull; 0 commits nothing."""
    with_subscription: bool = False
    """Whether the broker uses the filter of the request rather than of the last heartbeat."""
    is_lite: bool = False

    def header(self, group: str, *, to_slave: bool) -> PullHeader:
        carries = self.commit_offset > 0 and not to_slave  # slaves do not store offsets
        flag = _COMMIT * carries | _SUSPEND * (self.suspend > 0)
        flag |= _SUBSCRIPTION * self.with_subscription | _LITE * self.is_lite
        return PullHeader(
            consumer_group=group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self.queue_offset,
            max_msg_nums=self.max_count,
            sys_flag=flag,
            commit_offset=self.commit_offset,
            suspend_timeout_millis=int(self.suspend * 1000),
            subscription=self.filter.expression if self.with_subscription else None,
            sub_version=self.filter.version,
            expression_type=self.filter.expression_type,
            max_msg_bytes=self.max_bytes,
        )


class Puller:
    """Pulls for one group, from the replica that the broker suggested for each queue."""

    def __init__(
        self, instance: ClientInstance, group: str, filter_hooks: Sequence[FilterHook] = ()
    ) -> None:
        self._instance = instance
        self._group = group
        self._hooks = tuple(filter_hooks)
        self._suggested: dict[MessageQueue, int] = {}

    async def pull(self, pull: Pull) -> PullResult:
        """Raises RemotingError, Refusal or BrokerUnknown."""
        return await self._result(pull, await self.pull_raw(pull))

    async def pull_raw(self, pull: Pull) -> RawPull:
        """Pull without decoding the records. Raises like `pull`."""
        broker = await self._broker(pull.queue)
        try:
            reply = await self._call(broker, pull)
        except (NotLeaderForQueue, RemotingError) as exc:
            if isinstance(exc, NotLeaderForQueue):
                await self._instance.routes.refresh(pull.queue.topic)
            moved = await self._broker(pull.queue)
            if moved == broker:
                raise
            broker, reply = moved, await self._call(moved, pull)
        header = PullReply.from_fields(reply.fields)
        self._suggested[pull.queue] = header.suggest_which_broker_id
        status = PullStatus(reply.code)
        if broker.is_slave and status is PullStatus.OFFSET_ILLEGAL:
            # A slave may lack the newest messages of its master: its bounds move nobody.
            status = PullStatus.NO_NEW_MSG
            header = structs.replace(header, next_begin_offset=pull.queue_offset)
        return RawPull(status, header, reply.body, reply.remark, broker.is_slave)

    async def _call(self, broker: BrokerAddress, pull: Pull) -> Frame:
        # Also for lite pulls: 4.9 brokers do not know LITE_PULL_MESSAGE.
        try:
            return await self._instance.call(
                broker.address,
                RequestCode.PULL_MESSAGE,
                pull.header(self._group, to_slave=broker.is_slave),
                within=pull.within,
                accept=_ACCEPTED,
            )
        except RemotingError:
            self._instance.broker_failed(broker.address, pull.queue.topic)
            raise
        except Refusal:
            if broker.is_slave:  # such as one without slaveReadEnable
                self._suggested.pop(pull.queue, None)
            raise

    async def _broker(self, queue: MessageQueue) -> BrokerAddress:
        routes = self._instance.routes
        suggested = self._suggested.get(queue, MASTER)
        broker = routes.find_broker(routes.broker_of(queue), suggested)
        if broker is None:
            await routes.refresh(queue.topic)
            broker = routes.find_broker(routes.broker_of(queue), suggested)
        if broker is None:
            raise BrokerUnknown(routes.broker_of(queue))
        return broker

    async def _result(self, pull: Pull, raw: RawPull) -> PullResult:
        messages: Sequence[StoredMessage] = ()
        if raw.status is PullStatus.FOUND:
            messages = await self._messages(pull, raw.header, raw.body)
        return PullResult(
            raw.status,
            raw.header.next_begin_offset,
            raw.header.min_offset,
            raw.header.max_offset,
            messages,
            is_reset=raw.is_reset,
        )

    async def _messages(
        self, pull: Pull, header: PullReply, body: bytes
    ) -> Sequence[StoredMessage]:
        def read() -> list[StoredMessage]:
            return read_messages(
                body,
                pull.queue.broker_name,
                min_offset=header.min_offset,
                max_offset=header.max_offset,
                namespace=self._instance.settings.namespace,
                tags=pull.filter.tags,
                first_offset=pull.queue_offset - (header.offset_delta or 0),
            )

        messages = await asyncio.to_thread(read) if is_slow_to_read(body) else read()
        if header.offset_delta is not None:  # records have the offsets of a physical queue
            queue_id, delta = pull.queue.queue_id, header.offset_delta
            messages = [
                structs.replace(m, queue_id=queue_id, queue_offset=m.queue_offset + delta)
                for m in messages
            ]
        messages = without_expired(messages, body)
        return [m for m in messages if is_wanted(self._hooks, m)] if self._hooks else messages


def is_wanted(hooks: Sequence[FilterHook], message: StoredMessage) -> bool:
    """Apply the hooks; a message is kept if a hook fails."""
    try:
        return all(hook(message) for hook in hooks)
    except Exception:
        log.exception("a filter hook failed; the message is kept")
        return True


def is_slow_to_read(body: bytes) -> bool:
    """Whether the records of a reply should be decoded in a thread."""
    if len(body) <= _LARGE_COMPRESSED or len(body) > _LARGE_REPLY:
        return len(body) > _LARGE_REPLY
    return bool(joined_flags(body) & _COMPRESSED)
