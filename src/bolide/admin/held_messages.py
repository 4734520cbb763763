"""Messages a broker holds back: pending timers, and half messages of open transactions."""

from collections.abc import AsyncIterator

from bolide.admin.servers import Servers
from bolide.protocol.bodies.timers import PendingTimer, PendingTimers
from bolide.protocol.bodies.transactions import OpenTransaction, Transactions
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.timers import ListTimersHeader, RecallTimersHeader
from bolide.protocol.headers.transactions import (
    ListTransactionsHeader,
    ResolveTransactionHeader,
    ResumeCheckHeader,
)
from bolide.protocol.message_id import OffsetId
from bolide.remoting.address import format_address

_PAGE_SIZE = 100
_LIST_TIMEOUT = 15.0


class Timers:
    """Pending timer messages of Bolide brokers; RocketMQ has no such requests."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def page(
        self, address: str, topic: str = "", *, begin: str = "", limit: int = _PAGE_SIZE
    ) -> PendingTimers:
        """One page of the pending timers of a broker, of one topic or of all.

        Timers are sorted by due time, except those days ahead. `next` is the start of the next
        page.
        """
        header = ListTimersHeader(topic=topic, begin=begin, max_num=limit)
        code = RequestCode.BOLIDE_LIST_TIMERS
        return await self._servers.fetch(address, code, PendingTimers, header, within=_LIST_TIMEOUT)

    async def each(self, address: str, topic: str = "") -> AsyncIterator[PendingTimer]:
        """All pending timers of a broker, fetched page by page."""
        begin = ""
        while True:
            page = await self.page(address, topic, begin=begin)
            for each in page.timers:
                yield each
            begin = page.next
            if not begin:
                return

    async def recall(self, address: str, topic: str, key: str) -> list[PendingTimer]:
        """Recall the pending timers of a broker with a key or unique id; returns them."""
        header = RecallTimersHeader(topic=topic, key=key)
        code = RequestCode.BOLIDE_RECALL_TIMERS
        found = await self._servers.fetch(
            address, code, PendingTimers, header, within=_LIST_TIMEOUT
        )
        return found.timers


class HalfMessages:
    """Half messages of open transactions; RocketMQ brokers support only `resume`."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def page(
        self,
        address: str,
        *,
        set_aside: bool = False,
        group: str | None = None,
        topic: str | None = None,
        begin: int = 0,
        limit: int = _PAGE_SIZE,
    ) -> Transactions:
        """One page of the open or `set_aside` transactions of a broker, oldest first.

        `next_begin` is the start of the next page.
        """
        header = ListTransactionsHeader(
            set_aside=set_aside, producer_group=group, topic=topic, begin=begin, max_num=limit
        )
        code = RequestCode.BOLIDE_LIST_TRANSACTIONS
        return await self._servers.fetch(address, code, Transactions, header, within=_LIST_TIMEOUT)

    async def each(
        self,
        address: str,
        *,
        set_aside: bool = False,
        group: str | None = None,
        topic: str | None = None,
    ) -> AsyncIterator[OpenTransaction]:
        """All open or `set_aside` transactions of a broker, fetched page by page."""
        begin = 0
        while begin >= 0:
            page = await self.page(
                address, set_aside=set_aside, group=group, topic=topic, begin=begin
            )
            for each in page.transactions:
                yield each
            begin = page.next_begin

    async def resolve(
        self, message_id: str, *, commit: bool, by: str, address: str | None = None
    ) -> None:
        """End a transaction in place of its producer, open or set aside.

        Args:
            message_id: offset message id of the half message, as listed.
            commit: True delivers the message, False discards it.
            by: who decided; the broker records it.
            address: address of the broker, if it differs from the one in the id.

        Raises:
            BadMessageId: the id is malformed.
            QueryNotFound: no half message has this id.
            TransactionFailed: the transaction has already ended the other way.
            TopicNotFound: the topic of the message was deleted.
        """
        header = ResolveTransactionHeader(msg_id=message_id, commit=commit, by=by)
        code = RequestCode.BOLIDE_RESOLVE_TRANSACTION
        await self._servers.call(address or _broker_of(message_id), code, header)

    async def resume(self, message_id: str, *, address: str | None = None) -> None:
        """Resume the check-back of a transaction that was set aside.

        Raises:
            BadMessageId: the id is malformed.
            QueryNotFound: no half message has this id.
            InvalidParameter: the transaction is not set aside, or has ended since.
        """
        header = ResumeCheckHeader(msg_id=message_id)
        code = RequestCode.RESUME_CHECK_HALF_MESSAGE
        await self._servers.call(address or _broker_of(message_id), code, header)


def _broker_of(message_id: str) -> str:
    return format_address(OffsetId.decode(message_id).host)
