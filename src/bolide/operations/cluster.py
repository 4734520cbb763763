"""The cluster that operations work on, seen by one identity."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from bolide.admin import AdminClient
from bolide.operations.history.history import History
from bolide.remoting.tls import ClientTls

if TYPE_CHECKING:
    from bolide.operations.audit_store import AuditSource

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose name requests carry; without keys they are not signed."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Connections of one identity to the servers behind some NameServers."""

    admin: AdminClient
    name_servers: str
    """As given: host:port;host:port."""
    identity: Identity = field(default_factory=Identity)
    tls: ClientTls | None = None
    vip_channel: bool = False
    """Send messages to the port of each broker that is two lower; see `operations.connection`."""
    own_audit: "AuditSource | None" = None
    """What was done through the console, its API and MCP; None if that is not recorded."""
    history: History | None = None
    """Shared by all identities; None if nothing samples. See `operations.visibility`."""
    _shared: dict[str, tuple[float, asyncio.Future[Any]]] = field(default_factory=dict)

    async def shared(self, key: str, fetch: Callable[[], Awaitable[T]], *, seconds: float) -> T:
        """The answer of `fetch`, asked at most once in that time for all who want it.

        Ten open pages ask the brokers no more than one does. An error is shared, too, with those
        who waited for it, and the next one asks again.
        """
        found = self._shared.get(key)
        if found is not None and (not found[1].done() or found[0] > monotonic()):
            return await asyncio.shield(found[1])
        task = asyncio.ensure_future(fetch())
        self._shared[key] = (monotonic() + seconds, task)
        task.add_done_callback(lambda done: self._forget_failed(key, done))
        return await asyncio.shield(task)

    def forget(self, prefix: str = "") -> None:
        """Drop shared answers whose key begins so: something was changed."""
        for key in [key for key in self._shared if key.startswith(prefix)]:
            del self._shared[key]

    def _forget_failed(self, key: str, done: asyncio.Future[Any]) -> None:
        failed = done.cancelled() or done.exception() is not None
        found = self._shared.get(key)
        if failed and found is not None and found[1] is done:
            del self._shared[key]
