"""The ends of transactions, and what administrators ask about those that do not end."""

import logging

from bolide.broker.background import Background
from bolide.broker.records import record_at
from bolide.broker.transactions.coordinator import Coordinator
from bolide.broker.transactions.ending import Ending, Wait
from bolide.broker.transactions.half import Half
from bolide.model.message import TransactionType
from bolide.protocol import fastjson
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.transactions import (
    EndTransactionHeader,
    ListTransactionsHeader,
    ResolveTransactionHeader,
    ResumeCheckHeader,
)
from bolide.protocol.message_id import BadMessageId, OffsetId
from bolide.protocol.refusals import InvalidParameter, QueryNotFound
from bolide.remoting.dispatch import Later, Reply, Request, handles
from bolide.store.appending import Appended
from bolide.store.contract import Store

log = logging.getLogger(__name__)

_ENDS = {int(state): state for state in (TransactionType.COMMIT, TransactionType.ROLLBACK)}


class TransactionHandlers:
    """End transactions; list those that are open and end them by hand."""

    def __init__(self, transactions: Coordinator, store: Store, background: Background) -> None:
        self._transactions = transactions
        self._store = store
        self._background = background

    @handles(EndTransactionHeader, RequestCode.END_TRANSACTION)
    def end(self, request: Request[EndTransactionHeader]) -> Reply | Later:
        header = request.header
        if header.commit_or_rollback == TransactionType.NONE:
            log.info(
                "producer %s of %s cannot tell yet what became of transaction %s: %s",
                request.connection.peer, header.producer_group, header.msg_id,
                request.frame.remark or "no reason given",
            )  # fmt: skip
            return Reply()
        return self._end(_ending(header))

    def _end(self, ending: Ending) -> Reply | Later:
        try:
            op = self._transactions.endings.end_now(ending)
        except Wait:
            return self._kept(ending, None)
        if op is None or not self._transactions.waits:
            return Reply()
        return self._kept(ending, op)

    def _kept(self, ending: Ending, op: Appended | None) -> Later:
        """A promise that is kept whether or not the producer stays: it may be dying."""
        endings = self._transactions.endings

        async def end() -> Reply:
            await (endings.end(ending) if op is None else endings.safe(op))
            return Reply()

        later = self._background.answer(end())
        later.on_lost = None
        return later

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
        place = half.record.physical_offset
        await self._transactions.endings.end(Ending(place, None, state, None, by=by))
        return Reply()

    @handles(ResumeCheckHeader, RequestCode.RESUME_CHECK_HALF_MESSAGE)
    async def resume(self, request: Request[ResumeCheckHeader]) -> Reply:
        await self._transactions.resume(await self._require(request.header.msg_id or ""))
        return Reply()

    async def _require(self, offset_id: str) -> Half:
        try:
            place = OffsetId.decode(offset_id).physical_offset
        except BadMessageId as exc:
            raise InvalidParameter(str(exc)) from exc
        half = Half.find(await record_at(self._store, place))
        if half is None:
            raise QueryNotFound(f"no half message lies at {offset_id}: list the open ones")
        return half


def _ending(header: EndTransactionHeader) -> Ending:
    state = _ENDS.get(header.commit_or_rollback)
    if state is None:
        raise InvalidParameter(
            f"commitOrRollback={header.commit_or_rollback}: 0 unknown, 8 commit or 12 rollback"
        )
    return Ending(
        header.commit_log_offset,
        header.tran_state_table_offset,
        state,
        header.producer_group,
        header.from_transaction_check,
    )
