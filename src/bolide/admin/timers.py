"""Messages that wait for their time: looked at, and taken back."""

from collections.abc import AsyncIterator

from bolide.admin.servers import Servers
from bolide.protocol.bodies.timers import PendingTimer, PendingTimers
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.timers import ListTimersHeader, RecallTimersHeader

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
