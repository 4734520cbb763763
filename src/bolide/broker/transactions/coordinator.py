"""Transactions of one broker: the requests that end, list and resume them."""

import logging
from functools import partial

from bolide.auth.access import FoundMessageCheck
from bolide.broker.background import TRANSACTIONS, Background, message_at, on_thread
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.transactions.check_back import (
    CheckBack,
    CheckBackParts,
    CheckBackSender,
    MaySend,
)
from bolide.broker.transactions.ending import EndingParts, EndRequest, MustWait, TransactionEnder
from bolide.broker.transactions.half_messages import Half
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.config import ConfigCell
from bolide.events import Listeners
from bolide.model.message import Host, TransactionType
from bolide.model.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.transactions import OpenTransaction, Transactions
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.transactions import (
    EndTransactionHeader,
    ListTransactionsHeader,
    ResolveTransactionHeader,
    ResumeCheckHeader,
)
from bolide.protocol.hosts import unpack_host
from bolide.protocol.message_id import BadMessageId, OffsetId
from bolide.protocol.refusals import InvalidParameter, QueryNotFound
from bolide.remoting.address import format_address
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.appending import Appended
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.reading import ReadLimits

log = logging.getLogger(__name__)

_ENDS = {int(state): state for state in (TransactionType.COMMIT, TransactionType.ROLLBACK)}
_READ_LIMITS = ReadLimits(max_count=256, max_size=4 * 1024 * 1024, max_scanned=256)
_MAX_LISTED = 1000
_MAX_READS = 100
"""Reads per page; the next page continues."""


class Coordinator:
    """The transactions of one broker; `run` is their background task.

    Args:
        may_send: see `CheckBackSender`.
        last_record: see `HalfQueue`.
    """

    def __init__(  # noqa: PLR0913
        self,
        parts: EndingParts,
        *,
        cell: ConfigCell[BrokerConfig],
        store_cell: ConfigCell[StoreConfig],
        offsets: OffsetTable,
        clients: ClientTable,
        host: Host,
        may_send: MaySend | None = None,
        last_record: int = -1,
    ) -> None:
        self.waits = parts.durability.waits
        """Whether an append is not durable at once."""
        self.queue = HalfQueue(
            parts.store,
            parts.intake,
            parts.durability,
            offsets,
            store_host=parts.store_host,
            last_record=last_record,
            now=parts.now,
        )
        self.ender = TransactionEnder(parts, self.queue)
        sender = CheckBackSender(clients, host, cell.value.broker_name, may_send)
        self.check_back = CheckBack(
            CheckBackParts(
                cell=cell,
                store_cell=store_cell,
                store=parts.store,
                topics=parts.topics,
                now=parts.now,
            ),
            self.queue,
            sender,
        )
        self.listing = TransactionListing(parts.store, self.queue, self.check_back, host)

    async def run(self) -> None:
        await self.check_back.run()

    def save(self) -> None:
        """Commit the progress of the queues at shutdown. Blocks."""
        self.queue.save()

    async def resume(self, half: Half) -> None:
        """Reopen a half that was set aside, unless it is open again already.

        Raises:
            InvalidParameter: the half was not set aside, or the transaction has ended since.
            ServiceNotAvailable: the store accepts no messages now.
        """
        await self.queue.loaded()
        newest = await self.queue.find_newest(half)
        if newest is None or not half.is_set_aside:
            raise InvalidParameter(f"transaction {half.unique_id} is not set aside")
        if not newest.is_set_aside:
            return
        _, appended = self.ender.resume(newest)
        await self.ender.wait_durable(appended)


class TransactionHandlers:
    """Serve END_TRANSACTION, and the listing and resolution of open transactions."""

    def __init__(
        self,
        transactions: Coordinator,
        store: Store,
        background: Background,
        check_found: FoundMessageCheck | None = None,
    ) -> None:
        self._transactions = transactions
        self._store = store
        self._background = background
        self._check_found = check_found or FoundMessageCheck()
        self.on_admitted: Listeners[Request[EndTransactionHeader]] = Listeners()
        """The end of a transaction was let through."""

    @handles(EndTransactionHeader, RequestCode.END_TRANSACTION)
    def end(self, request: Request[EndTransactionHeader]) -> Reply | DeferredReply:
        header = request.header
        if header.commit_or_rollback == TransactionType.NONE:
            log.info(
                "producer %s of %s does not know the outcome of transaction %s yet: %s",
                request.connection.peer, header.producer_group, header.msg_id,
                request.frame.remark or "no reason given",
            )  # fmt: skip
            return Reply()
        reply = self._end(self._end_request(request))
        self.on_admitted(request)
        return reply

    def _end_request(self, request: Request[EndTransactionHeader]) -> EndRequest:
        header = request.header
        state = _ENDS.get(header.commit_or_rollback)
        if state is None:
            raise InvalidParameter(
                f"commitOrRollback={header.commit_or_rollback}: 0 unknown, 8 commit or 12 rollback"
            )
        return EndRequest(
            header.commit_log_offset,
            header.tran_state_table_offset,
            state,
            header.producer_group,
            header.from_transaction_check,
            # The gate has decided by the topic that the request names, if any.
            check_half=partial(self._check_found, request),
        )

    def _end(self, end_request: EndRequest) -> Reply | DeferredReply:
        try:
            op = self._transactions.ender.end_now(end_request)
        except MustWait:
            return self._end_in_background(end_request, None)
        if op is None or not self._transactions.waits:
            return Reply()
        return self._end_in_background(end_request, op)

    def _end_in_background(self, end_request: EndRequest, op: Appended | None) -> DeferredReply:
        """Return a deferred reply whose work continues if the producer disconnects."""
        ender = self._transactions.ender

        async def end() -> Reply:
            await (ender.end(end_request) if op is None else ender.wait_durable(op))
            return Reply()

        deferred = self._background.defer(end())
        deferred.on_lost = None
        return deferred

    @handles(ListTransactionsHeader, RequestCode.BOLIDE_LIST_TRANSACTIONS)
    async def page(self, request: Request[ListTransactionsHeader]) -> Reply:
        page = await self._transactions.listing.page(request.header)
        return Reply(body=fastjson.encode(page))

    @handles(ResolveTransactionHeader, RequestCode.BOLIDE_RESOLVE_TRANSACTION)
    async def resolve(self, request: Request[ResolveTransactionHeader]) -> Reply:
        header = request.header
        half = await self._require(header.msg_id)
        state = TransactionType.COMMIT if header.commit else TransactionType.ROLLBACK
        by = f"{header.by or 'somebody'} at {request.connection.peer}"
        physical_offset = half.record.physical_offset
        await self._transactions.ender.end(EndRequest(physical_offset, None, state, None, by=by))
        return Reply()

    @handles(ResumeCheckHeader, RequestCode.RESUME_CHECK_HALF_MESSAGE)
    async def resume(self, request: Request[ResumeCheckHeader]) -> Reply:
        half = await self._require(request.header.msg_id or "")
        self._check_found(request, half.record)
        await self._transactions.resume(half)
        return Reply()

    async def _require(self, offset_id: str) -> Half:
        try:
            physical_offset = OffsetId.decode(offset_id).physical_offset
        except BadMessageId as exc:
            raise InvalidParameter(str(exc)) from exc
        half = Half.find(await message_at(self._store, physical_offset))
        if half is None:
            raise QueryNotFound(f"there is no half message at {offset_id}: list the open ones")
        return half


class TransactionListing:
    """Lists open transactions, or those set aside and not resumed since."""

    def __init__(self, store: Store, queue: HalfQueue, check_back: CheckBack, host: Host) -> None:
        self._store = store
        self._queue = queue
        self._check_back = check_back
        self._host = host

    async def page(self, wanted: ListTransactionsHeader) -> Transactions:
        """Raises InvalidParameter."""
        if not 0 < wanted.max_num <= _MAX_LISTED:
            raise InvalidParameter(f"maxNum={wanted.max_num}: must be from 1 to {_MAX_LISTED}")
        await self._queue.loaded()
        topic = TRANS_CHECK_MAX_TIME_TOPIC if wanted.set_aside else HALF_TOPIC
        begin, end = self._store.min_offset(topic, 0), self._store.max_offset(topic, 0)
        total = end - begin if wanted.set_aside else self._queue.open.count(end)
        page = Transactions(total=total, next_begin=max(begin, wanted.begin))
        for _ in range(_MAX_READS):
            if page.next_begin >= end or len(page.transactions) == wanted.max_num:
                break
            await self._add(page, topic, wanted)
        if page.next_begin >= end:
            page.next_begin = -1
        return page

    async def _add(self, page: Transactions, topic: str, wanted: ListTransactionsHeader) -> None:
        begin = page.next_begin
        if not wanted.set_aside:
            begin = self._queue.open.next_open(begin)
        found = await on_thread(TRANSACTIONS, self._store.read, topic, 0, begin, _READ_LIMITS)
        for half in filter(None, map(Half.find, found.records)):
            if len(page.transactions) == wanted.max_num:
                return
            page.next_begin = half.queue_offset + 1
            if _matches(half, wanted) and await self._is_unresolved(half):
                page.transactions.append(self._entry(half))
        page.next_begin = max(found.next_offset, begin + 1)

    async def _is_unresolved(self, half: Half) -> bool:
        if not half.is_set_aside:
            return self._queue.open.is_open(half.queue_offset)
        return await self._queue.find_newest(half) == half

    def _entry(self, half: Half) -> OpenTransaction:
        record, properties = half.record, half.properties
        due = max(self._check_back.rules.due(half), self._check_back.next_round)
        return OpenTransaction(
            msg_id=OffsetId(self._host, record.physical_offset).encode(),
            transaction_id=half.unique_id or None,
            producer_group=half.group,
            topic=half.topic,
            queue_id=half.queue_id,
            keys=properties.get(PropertyName.KEYS),
            tags=properties.get(PropertyName.TAGS),
            born_host=format_address(unpack_host(record.born_host)),
            began=int(half.began * 1000),
            check_times=half.check_times,
            next_check=0 if half.is_set_aside else int(due * 1000),
            size=len(record.body),
            half_offset=record.queue_offset,
        )


def _matches(half: Half, wanted: ListTransactionsHeader) -> bool:
    return wanted.producer_group in (None, half.group) and wanted.topic in (None, half.topic)
