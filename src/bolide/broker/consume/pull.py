"""Pull requests (`PullMessageProcessor`): admission, read, long polling and reply.

`PullHandlers` serves the requests. `Pulls` reads and replies on the event loop as long as the
messages are in memory; cold reads run on a thread. `FunctionFilteredPulls` serves pulls whose
filter is a user function, evaluated outside the event loop.
"""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.background import COLD_READS, Background, on_thread
from bolide.broker.consume import slave_reads
from bolide.broker.consume.admission import Admitted, PullAdmission
from bolide.broker.consume.cold_reads import ColdReads
from bolide.broker.consume.expiry import Expiring
from bolide.broker.consume.long_polling import CallbackWaiter, LongPolling
from bolide.broker.filters.filters import Filters, FunctionFilter, NotCompiled
from bolide.broker.gate import Hooks
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig, BrokerRole
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.events import Listeners
from bolide.kernel.units import UNIT_SIZE
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.record import RECORD_HEAD, store_time
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.config import StoreConfig
from bolide.store.errors import NotInMemory
from bolide.store.queries import Queries
from bolide.store.reading import MessageFilter, ReadLimits, ReadResult, ReadStatus

COMMIT, SUSPEND = 1, 2
"""Bits of the system flag of a pull (`PullSysFlag`)."""

_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

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

MAX_WAIT = 300.0
"""Seconds for which a pull is held at most; clients of RocketMQ ask for 20."""
_MAX_REJECTED = 800
"""Messages that a filter may reject before the pull returns its progress to the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullParts:
    """Collaborators of the pull handlers."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Queries
    log_end: Callable[[], int]
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    long_polling: LongPolling
    statistics: Statistics
    background: Background
    expiring: Expiring
    filters: Filters
    cold_reads: ColdReads
    hooks: Hooks
    now: Callable[[], float] = time.time
    is_slave: Callable[[], bool] | None = None
    """Whether the broker is a slave now; by default as its brokerRole says."""
    master_is_up: Callable[[], bool] = lambda: True
    """For a slave: whether its group has a master now."""
    is_acting: Callable[[], bool] = lambda: False
    """For a slave: whether it stands in for the master."""


@dataclass(slots=True)
class Pull:
    """An admitted pull; `next_offset` advances past messages that the filter rejects."""

    header: PullHeader
    group: GroupConfig
    topic_sys_flag: int
    wanted: MessageFilter
    peer: str
    next_offset: int
    begun: float
    revocations: int
    """`LongPolling.revocations` when the gate let the request through."""


class Pulls:
    """Delivers messages to consumers and holds pulls while there are none."""

    def __init__(self, parts: PullParts) -> None:
        self.parts = parts
        self.on_admitted: Listeners[Request[PullHeader], Admitted] = Listeners()
        """Emitted for each admitted pull."""
        cell = parts.cell
        self.is_slave: Callable[[], bool] = parts.is_slave or (
            lambda: cell.value.broker_role is BrokerRole.SLAVE
        )
        self.admission = PullAdmission(
            cell=parts.cell,
            topics=parts.topics,
            groups=parts.groups,
            clients=parts.clients,
            filters=parts.filters,
        )

    def admitted(self, request: Request[PullHeader]) -> Pull:
        """Admit a pull and commit the offset it carries.

        Raises:
            Refusal: the pull is not allowed.
            NotCompiled: the filter expression must be compiled first.
        """
        header, peer = request.header, request.connection.peer
        is_slave = self.is_slave() and not self.parts.is_acting()
        slave_reads.refuse_slave_reads(
            is_slave=is_slave, slave_read_enable=self.parts.cell.value.slave_read_enable
        )
        admitted = self.admission.admit(request)
        self.on_admitted(request, admitted)
        pull = self.pull_of(header, admitted, peer)
        if slave_reads.commits(
            is_slave=is_slave,
            has_flag=bool(header.sys_flag & COMMIT),
            commit_offset=header.commit_offset,
            is_frozen=self.parts.offsets.is_frozen,
        ):
            self.parts.offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                peer=peer,
            )
        return pull

    def pull_of(self, header: PullHeader, admitted: Admitted, peer: str) -> Pull:
        """Return an admitted pull that begins now."""
        group, topic = admitted.group, admitted.topic
        flag, begun = topic.topic_sys_flag, self.parts.now()
        revocations = self.parts.long_polling.revocations
        return Pull(
            header, group, flag, admitted.wanted, peer, header.queue_offset, begun, revocations
        )

    # ---- serving

    def reset(self, pull: Pull) -> Reply | None:
        """Return the reply that moves the client to a reset offset; None if there is no reset."""
        header, parts = pull.header, self.parts
        if not parts.cell.value.use_server_side_reset_offset:
            return None
        target = parts.offsets.claim_reset(header.consumer_group, header.topic, header.queue_id)
        if target is None:
            return None
        low = parts.store.min_offset(header.topic, header.queue_id)
        high = parts.store.max_offset(header.topic, header.queue_id)
        result = ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, target, low, high)
        return self.reply(pull, result, remark=_OFFSET_RESET)

    def serve(self, pull: Pull) -> Reply | DeferredReply:
        try:
            result = self._read(pull, may_block=False)
        except NotInMemory:
            return self.parts.background.defer(self._serve_cold(pull))
        if (
            pull.header.sys_flag & SUSPEND
            and self._code(pull, result) == ResponseCode.PULL_NOT_FOUND
        ):
            return self._hold(pull)
        return self.reply(pull, result)

    async def _serve_cold(self, pull: Pull) -> Reply:
        return self.reply(pull, await self._read_cold(pull))

    async def read(self, pull: Pull) -> ReadResult:
        try:
            return self._read(pull, may_block=False)
        except NotInMemory:
            return await self._read_cold(pull)

    async def _read_cold(self, pull: Pull) -> ReadResult:
        """Read from the disk; raises SystemBusy if the group has read too much from there."""
        cold_reads = self.parts.cold_reads
        pull.header = await cold_reads.admit(pull.header)
        result = await on_thread(COLD_READS, self._read, pull, may_block=True)
        cold_reads.add(pull.header.consumer_group, result.size)
        return result

    def _read(self, pull: Pull, *, may_block: bool) -> ReadResult:
        header = pull.header
        limits = self.limits(header, from_disk=may_block)
        wanted = self.parts.expiring.wanted(header.topic, pull.wanted)
        return self.parts.store.read(
            header.topic, header.queue_id, pull.next_offset, limits, wanted, may_block=may_block
        )

    def limits(self, header: PullHeader, *, from_disk: bool) -> ReadLimits:
        config, store = self.parts.cell.value, self.parts.store_cell.value
        if not config.transfer_limits_given:
            count, size = config.max_pull_count, config.max_pull_bytes
        elif from_disk:
            count, size = store.max_transfer_count_disk, store.max_transfer_bytes_disk
        else:
            count, size = store.max_transfer_count_memory, store.max_transfer_bytes_memory
        if header.max_msg_bytes is not None and header.max_msg_bytes > 0:
            size = min(size, header.max_msg_bytes)
        scanned = store.max_filter_bytes // UNIT_SIZE
        return ReadLimits(max(min(header.max_msg_nums, count), 1), size, scanned)

    # ---- waiting

    def _hold(self, pull: Pull) -> DeferredReply:
        deferred = DeferredReply()
        deferred.is_long_polling = True
        header = pull.header

        def retry(is_last: bool) -> bool:
            if deferred.is_blocked and not is_last:
                deferred.on_room = lambda: long_polling.wake(waiter)
                return False
            return deferred.is_lost or self.retry(pull, deferred, is_last=is_last)

        long_polling = self.parts.long_polling
        waiter = CallbackWaiter((header.topic, header.queue_id), retry)
        deferred.on_lost = lambda: long_polling.drop(waiter)
        long_polling.hold(waiter, self.max_wait(header))
        return deferred

    def seconds(self, pull: Pull) -> float:
        return self.max_wait(pull.header) if pull.header.sys_flag & SUSPEND else 0.0

    def max_wait(self, header: PullHeader) -> float:
        """Seconds for which a pull with the suspend flag may wait."""
        config = self.parts.cell.value
        if not config.long_polling_enable:
            return config.short_polling_time
        return min(max(header.suspend_timeout_millis / 1000, 0), MAX_WAIT)

    def retry(self, pull: Pull, deferred: DeferredReply, *, is_last: bool) -> bool:
        """Answer a waiting pull if messages have arrived or with `is_last`; whether it did."""
        pull.begun = self.parts.now()
        try:
            reply = self.reset(pull) or (
                self.answer_empty(pull)
                if deferred.is_blocked or self.parts.long_polling.withholds
                else self._answer_now(pull, is_last=is_last)
            )
        except NotInMemory:
            self.parts.background.complete(deferred, self._serve_cold(pull))
            return True
        except Exception as exc:  # noqa: BLE001  the dispatcher logs it and replies
            deferred.fail(exc)
            return True
        if reply is not None:
            deferred.answer(reply)
        return reply is not None

    def _answer_now(self, pull: Pull, *, is_last: bool) -> Reply | None:
        result = self._read(pull, may_block=False)
        code = self._code(pull, result)
        if result.status is ReadStatus.NO_MATCHED_MESSAGE:
            pull.next_offset = result.next_offset  # skip the rejected messages next time
        if code == ResponseCode.PULL_NOT_FOUND and pull.next_offset > pull.header.queue_offset:
            # Advance the client past the rejected messages, or its lag would grow.
            result.status = ReadStatus.NO_MATCHED_MESSAGE
        waits = code == ResponseCode.PULL_NOT_FOUND or (
            code == ResponseCode.PULL_RETRY_IMMEDIATELY and pull.next_offset >= result.max_offset
        )
        return None if waits and not is_last else self.reply(pull, result)

    def answer_empty(self, pull: Pull) -> Reply:
        """Reply without messages: the client has not read its earlier replies, or may get none."""
        store, topic, queue_id = self.parts.store, pull.header.topic, pull.header.queue_id
        moved = pull.next_offset > pull.header.queue_offset
        status = ReadStatus.NO_MATCHED_MESSAGE if moved else ReadStatus.OFFSET_FOUND_NULL
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        return self.reply(pull, ReadResult(status, pull.next_offset, low, high))

    # ---- replies

    def reply(self, pull: Pull, result: ReadResult, *, remark: str | None = None) -> Reply:
        header, parts = pull.header, self.parts
        code = self._code(pull, result)
        behind = self._count(pull, result)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        next_offset = slave_reads.next_offset(
            result, pull.next_offset, is_slave=remark is None and self.is_slave()
        )
        parts.offsets.pulled(group, topic, queue_id, next_offset)
        answer = PullReply(
            suggest_which_broker_id=self._suggest(pull.group, behind),
            next_begin_offset=next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=pull.topic_sys_flag,
            group_sys_flag=pull.group.group_sys_flag,
        )
        for hook in parts.hooks.consume:
            hook.after_pull(pull.peer, header, result.count, result.size)
        body = b"".join(result.records) if code == ResponseCode.SUCCESS else b""
        return Reply(code=code, header=answer, body=body, remark=remark or result.status.value)

    def _count(self, pull: Pull, result: ReadResult) -> int:
        """Count the delivered messages; returns how many bytes the group is behind the log end."""
        header, statistics = pull.header, self.parts.statistics
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if not result.records:
            statistics.got_nothing()
            if result.status is ReadStatus.OFFSET_OVERFLOW_ONE:
                statistics.caught_up(group, topic, queue_id)
            return 0
        now = self.parts.now()
        took = now - pull.begun
        statistics.got(group, topic, queue_id, result.count, result.size, took)
        statistics.traffic.pulled(group, topic, result.count, result.size)
        last = result.records[-1]
        place: int = RECORD_HEAD.unpack_from(last)[2]
        behind = max(self.parts.log_end() - place, 0)
        late = max(now - store_time(last) / 1000, 0.0)
        statistics.before_read()  # an older tally of the fast path must not replace this one later
        statistics.fell_behind(group, topic, queue_id, behind, late)
        return behind

    def suggestions(self, group: GroupConfig) -> tuple[int, int, int]:
        """Return the broker ids to suggest for the next pull.

        Returns:
            The usual broker id, the id for a group that reads cold data, and the number of bytes
            behind the log end from which data counts as cold.
        """
        enabled = self.parts.cell.value.slave_read_enable
        usual, slow = slave_reads.suggestions(group, slave_read_enable=enabled)
        return usual, slow, int(_MEMORY * self.parts.store_cell.value.memory_ratio)

    def _suggest(self, group: GroupConfig, behind: int) -> int:
        usual, slow, far = self.suggestions(group)
        is_far = behind > far
        if slave_reads.sends_back(
            is_slave=self.is_slave(), master_is_up=self.parts.master_is_up(), is_far_behind=is_far
        ):
            return slave_reads.MASTER_ID
        return slow if is_far else usual

    def _code(self, pull: Pull, result: ReadResult) -> ResponseCode:
        is_slave, is_up = self.is_slave(), self.parts.master_is_up()
        return slave_reads.slave_code(_code(pull, result), is_slave=is_slave, master_is_up=is_up)


def _code(pull: Pull, result: ReadResult) -> ResponseCode:
    if result.status in _NO_QUEUE and pull.header.queue_offset == 0:
        return ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


class FunctionFilteredPulls:
    """Serves pulls whose filter is a `FunctionFilter`."""

    def __init__(self, pulls: Pulls) -> None:
        self._pulls = pulls
        self._functions = pulls.parts.filters.functions
        self._long_polling = pulls.parts.long_polling

    async def serve(self, pull: Pull, seconds: float) -> Reply:
        """Serve a pull. Raises Refusal if the function fails; no message is skipped then."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            result = await self._pulls.read(pull)
            if result.status is ReadStatus.FOUND and isinstance(pull.wanted, FunctionFilter):
                await self._filter(pull, result, pull.wanted.function)
            if pull.revocations != self._long_polling.revocations:
                return self._pulls.answer_empty(pull)  # the client asks again and is decided anew
            left = deadline - loop.time()
            if not _continues(pull, result, left):
                return self._pulls.reply(pull, _moved(pull, result))
            pull.next_offset = result.next_offset
            is_over = await self._wait(pull, left)
            reset = self._pulls.reset(pull)
            if reset is not None:
                return reset
            if is_over:  # not read again: the sender may have lost the right to what has arrived
                return self._pulls.reply(pull, _moved(pull, result))

    async def _filter(self, pull: Pull, result: ReadResult, function: str) -> None:
        """Remove the records that the function rejects."""
        records = [bytes(record) for record in result.records]  # copies: the log may drop the file
        header = pull.header
        consumer = header.consumer_group, header.topic, header.queue_id
        verdicts = await self._functions.evaluate(function, records, consumer)
        kept = [memoryview(each) for each, wanted in zip(records, verdicts, strict=True) if wanted]
        result.records, result.size = kept, sum(map(len, kept))
        result.status = ReadStatus.FOUND if kept else ReadStatus.NO_MATCHED_MESSAGE

    def _end_of(self, pull: Pull) -> int:
        return self._pulls.parts.store.max_offset(pull.header.topic, pull.header.queue_id)

    async def _wait(self, pull: Pull, seconds: float) -> bool:
        """Wait until the queue extends past the pull's offset; True if the deadline has passed.

        Long polling that is stopped completes every waiter at once with `is_last`. Without the
        return value the caller would then loop forever and block the shutdown.
        """
        if seconds <= 0 or self._end_of(pull) > pull.next_offset:
            return False
        arrived: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def retry(is_last: bool) -> bool:
            if not arrived.done():
                arrived.set_result(is_last)
            return True

        waiter = CallbackWaiter((pull.header.topic, pull.header.queue_id), retry)
        self._long_polling.hold(waiter, seconds)
        try:
            return await arrived
        finally:
            self._long_polling.drop(waiter)


def _continues(pull: Pull, result: ReadResult, left: float) -> bool:
    """Whether the pull has nothing to return yet and may continue."""
    begun = pull.header.queue_offset
    if result.status is ReadStatus.NO_MATCHED_MESSAGE:
        return result.next_offset - begun < _MAX_REJECTED
    at_end = result.status is ReadStatus.OFFSET_OVERFLOW_ONE
    return left > 0 and (at_end or (result.status in _NO_QUEUE and begun == 0))


def _moved(pull: Pull, result: ReadResult) -> ReadResult:
    """Advance the client past rejected messages at the queue end, or its lag would grow."""
    if (
        result.status is ReadStatus.OFFSET_OVERFLOW_ONE
        and pull.next_offset > pull.header.queue_offset
    ):
        result.status = ReadStatus.NO_MATCHED_MESSAGE
    return result


class PullHandlers:
    """Handlers of pull requests."""

    def __init__(self, pulls: Pulls) -> None:
        parts = pulls.parts
        self._pulls = pulls
        self._filters = parts.filters
        self._background = parts.background
        self._function_filtered = FunctionFilteredPulls(pulls)

    @handles(PullHeader, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, request: Request[PullHeader]) -> Reply | DeferredReply:
        try:
            pull = self._pulls.admitted(request)
        except NotCompiled as exc:
            return self._background.defer(self._compile_and_serve(request, exc.text))
        return self._pulls.reset(pull) or self._serve(pull)

    def _serve(self, pull: Pull) -> Reply | DeferredReply:
        if isinstance(pull.wanted, FunctionFilter):
            return self._background.defer(
                self._function_filtered.serve(pull, self._pulls.seconds(pull))
            )
        return self._pulls.serve(pull)

    async def _compile_and_serve(self, request: Request[PullHeader], text: str) -> Reply:
        pull = None
        revocations = self._pulls.parts.long_polling.revocations
        while pull is None:
            await self._filters.compile([text])
            try:
                pull = self._pulls.admitted(request)
            except NotCompiled as exc:  # the subscription has changed meanwhile
                text = exc.text
        pull.revocations = revocations
        seconds = self._pulls.seconds(pull)
        return self._pulls.reset(pull) or await self._function_filtered.serve(pull, seconds)
