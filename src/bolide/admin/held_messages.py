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

_PAGE = 100
_PATIENCE = 15.0


class Timers:
    """What waits at brokers of Bolide; Apache's have no such requests."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def page(
        self, address: str, topic: str = "", *, begin: str = "", limit: int = _PAGE
    ) -> PendingTimers:
        """Some of what waits at one broker, of one topic or of all, earliest first but for what
        is days away; `next` of the answer is where to go on."""
        header = ListTimersHeader(topic=topic, begin=begin, max_num=limit)
        code = RequestCode.BOLIDE_LIST_TIMERS
        return await self._servers.fetch(address, code, PendingTimers, header, within=_PATIENCE)

    async def each(self, address: str, topic: str = "") -> AsyncIterator[PendingTimer]:
        """All of it, page by page."""
        begin = ""
        while True:
            page = await self.page(address, topic, begin=begin)
            for each in page.timers:
                yield each
            begin = page.next
            if not begin:
                return

    async def recall(self, address: str, topic: str, key: str) -> list[PendingTimer]:
        """Take back what waits at one broker with a key, or a unique id; tells what that is."""
        header = RecallTimersHeader(topic=topic, key=key)
        code = RequestCode.BOLIDE_RECALL_TIMERS
        found = await self._servers.fetch(address, code, PendingTimers, header, within=_PATIENCE)
        return found.timers


class TransactionDesk:
    """The half messages of brokers. Brokers of Apache know `resume` only."""

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
        limit: int = _PAGE,
    ) -> Transactions:
        """Some that are open at one broker, or were `set_aside`, oldest first; `next_begin` of the
        answer is where to go on."""
        header = ListTransactionsHeader(
            set_aside=set_aside, producer_group=group, topic=topic, begin=begin, max_num=limit
        )
        code = RequestCode.BOLIDE_LIST_TRANSACTIONS
        return await self._servers.fetch(address, code, Transactions, header, within=_PATIENCE)

    async def each(
        self,
        address: str,
        *,
        set_aside: bool = False,
        group: str | None = None,
        topic: str | None = None,
    ) -> AsyncIterator[OpenTransaction]:
        """All of them, page by page."""
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
        """End a transaction in its producer's place, one that was set aside too.

        Args:
            message_id: that of the half, as the lists tell it.
            commit: whether the message is delivered.
            by: who decided so; the broker writes it down.
            address: of its broker, if it is not to be reached as the id says.

        Raises:
            BadMessageId: it is no such id.
            QueryNotFound: there is no half message.
            TransactionFailed: it has ended, and not so.
            TopicNotFound: the topic of the message is gone.
        """
        header = ResolveTransactionHeader(msg_id=message_id, commit=commit, by=by)
        code = RequestCode.BOLIDE_RESOLVE_TRANSACTION
        await self._servers.ask(address or _broker_of(message_id), code, header)

    async def resume(self, message_id: str, *, address: str | None = None) -> None:
        """Have the producers of a transaction that was set aside asked again.

        Raises:
            BadMessageId: it is no such id.
            QueryNotFound: there is no half message.
            InvalidParameter: it was not set aside, or has ended since.
        """
        header = ResumeCheckHeader(msg_id=message_id)
        code = RequestCode.RESUME_CHECK_HALF_MESSAGE
        await self._servers.ask(address or _broker_of(message_id), code, header)


def _broker_of(message_id: str) -> str:
    return format_address(OffsetId.decode(message_id).host)
