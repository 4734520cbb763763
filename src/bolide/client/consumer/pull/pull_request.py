"""One pull: the request, which broker gets it, and what its answer means."""

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
from bolide.protocol.headers.pull import PullHeader, PullReply

log = logging.getLogger(__name__)

MAX_COUNT = 2**31 - 1
MASTER = 0

_COMMIT, _SUSPEND, _SUBSCRIPTION, _LITE = 0x1, 0x2, 0x4, 0x10

# Records of a reply this large are read in a thread; compressed bodies may grow a thousandfold.
_LARGE_REPLY = 256 * 1024
_LARGE_COMPRESSED = 8 * 1024

_COMPRESSED = int(SysFlag.COMPRESSED)

FilterHook = Callable[[StoredMessage], bool]
"""Says whether a message that matched its subscription is wanted after all."""


class PullStatus(Enum):
    """What a pull came to, in RocketMQ's words."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_RESET = "OFFSET_RESET"
_ACCEPTED = frozenset(status.value for status in PullStatus)


@dataclass(frozen=True, slots=True)
class PullResult:
    """What was found, and where to go on: `next_offset` is right for every status."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage] = ()
    is_reset: bool = False
    """Whether the offset is another one because somebody reset it at the broker."""


@dataclass(frozen=True, slots=True)
class RawPull:
    """A broker's answer to a pull, its records as bytes and without regard to tags or hooks."""

    status: PullStatus
    header: PullReply
    body: bytes
    remark: str | None
    """The store's own word for the status."""
    from_slave: bool

    @property
    def is_reset(self) -> bool:
        return self.remark == _RESET


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """A pull to make. `suspend` is how many seconds the broker may hold it open."""

    queue: MessageQueue
    filter: Filter
    offset: int
    max_count: int
    max_bytes: int | None = None
    suspend: float = 0.0
    within: float = 30.0
    commit_offset: int = 0
    """Progress that rides along; 0 is none."""
    with_subscription: bool = False
    """The broker takes the filter from the request, not from the last heartbeat."""
    is_lite: bool = False

    def header(self, group: str, *, to_slave: bool) -> PullHeader:
        carries = self.commit_offset > 0 and not to_slave  # a slave keeps no offsets
        flag = _COMMIT * carries | _SUSPEND * (self.suspend > 0)
        flag |= _SUBSCRIPTION * self.with_subscription | _LITE * self.is_lite
        return PullHeader(
            consumer_group=group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self.offset,
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
    """Pulls for one group; remembers which replica each queue is best read from."""

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
        """Leave the records as they come, for readers in bulk. Raises as `pull` does."""
        broker = await self._broker(pull.queue)
        # Lite pulls too: 4.9 brokers do not know the code that 5.x gave them.
        reply = await self._instance.call(
            broker.address,
            RequestCode.PULL_MESSAGE,
            pull.header(self._group, to_slave=broker.is_slave),
            within=pull.within,
            accept=_ACCEPTED,
        )
        header = PullReply.from_fields(reply.fields)
        self._suggested[pull.queue] = header.suggest_which_broker_id
        status = PullStatus(reply.code)
        return RawPull(status, header, reply.body, reply.remark, broker.is_slave)

    async def _broker(self, queue: MessageQueue) -> BrokerAddress:
        routes = self._instance.routes
        suggested = self._suggested.get(queue, MASTER)
        found = routes.find_broker(queue.broker_name, suggested)
        if found is None:
            await routes.refresh(queue.topic)
            found = routes.find_broker(queue.broker_name, suggested)
        if found is None:
            raise BrokerUnknown(queue.broker_name)
        return found

    async def _result(self, pull: Pull, found: RawPull) -> PullResult:
        messages: Sequence[StoredMessage] = ()
        if found.status is PullStatus.FOUND:
            messages = await self._messages(pull, found.header, found.body)
        return PullResult(
            found.status,
            found.header.next_begin_offset,
            found.header.min_offset,
            found.header.max_offset,
            messages,
            is_reset=found.is_reset,
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
            )

        found = await asyncio.to_thread(read) if is_long_to_read(body) else read()
        if delta := header.offset_delta:
            found = [structs.replace(m, queue_offset=m.queue_offset + delta) for m in found]
        found = without_expired(found, body)
        return [m for m in found if is_wanted(self._hooks, m)] if self._hooks else found


def is_wanted(hooks: Sequence[FilterHook], message: StoredMessage) -> bool:
    """Ask the hooks; one that fails keeps the message in."""
    try:
        return all(hook(message) for hook in hooks)
    except Exception:
        log.exception("a filter hook failed; the message stays in")
        return True


def is_long_to_read(body: bytes) -> bool:
    """Whether the records of a reply belong into a thread."""
    if len(body) <= _LARGE_COMPRESSED or len(body) > _LARGE_REPLY:
        return len(body) > _LARGE_REPLY
    return bool(joined_flags(body) & _COMPRESSED)
