"""The audit log of Bolide brokers: who administered them, and what changed."""

from collections.abc import AsyncIterator

from bolide.admin.servers import Servers
from bolide.protocol.bodies.audit import AuditEntry, AuditPage, AuditRecord
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.access import ReadAuditHeader

_PAGE_SIZE = 200
_READ_TIMEOUT = 15.0


class Audit:
    """Audit logs of brokers; RocketMQ has none."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def page(
        self, address: str, *, begin: int = -1, since_ms: int = 0, limit: int = _PAGE_SIZE
    ) -> AuditPage:
        """One page of the audit log of a broker, oldest first.

        Args:
            begin: queue offset, the `next_begin` of the previous page; -1 means by time.
            since_ms: first time, if `begin` is not given.
        """
        header = ReadAuditHeader(begin=begin, since=since_ms, max_num=limit)
        code = RequestCode.BOLIDE_READ_AUDIT
        return await self._servers.fetch(address, code, AuditPage, header, within=_READ_TIMEOUT)

    async def each(
        self, address: str, *, begin: int = -1, since_ms: int = 0
    ) -> AsyncIterator[AuditEntry]:
        """All records of a broker from a position or a time on, fetched page by page."""
        while True:
            page = await self.page(address, begin=begin, since_ms=since_ms)
            for entry in page.entries:
                yield entry
            if page.is_last:
                return
            begin = page.next_begin


def matches(record: AuditRecord, *, user: str | None = None, target: str | None = None) -> bool:
    """Whether a record is one of a user, and about a topic, group or setting of a name."""
    if user is not None and record.user != user:
        return False
    if target is None:
        return True
    values = record.target.values()
    named = [name for value in values for name in (value if isinstance(value, list) else (value,))]
    return target in {*record.before, *record.after} or target in named
