"""The administrator's client."""

import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from bolide.admin.brokers import Brokers, Clusters, FilterFunctions
from bolide.admin.clients import Clients
from bolide.admin.consumer_lag import Progress
from bolide.admin.groups import Groups, Pop
from bolide.admin.held_messages import Timers, TransactionDesk
from bolide.admin.message_history import Traces, Tracks
from bolide.admin.messages import Messages
from bolide.admin.name_servers import NameServers
from bolide.admin.offsets import Offsets
from bolide.admin.parked import Parked
from bolide.admin.servers import Servers
from bolide.admin.topics import Topics
from bolide.client.instance.signing import Signer
from bolide.errors import ConfigError
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import RequestHook
from bolide.remoting.tls import ClientTls

SEPARATOR = ";"


class AdminClient:
    """Looks after a cluster of our brokers or of Apache's, while its `async with` block runs.

    What it can do stands by subject: `admin.topics`, `admin.groups`, `admin.brokers` and so on.
    Everything raises `Refusal` where a server refuses, `RemotingError` where none answers, and
    `AdminError` where the cluster has no such thing.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        timeout: float = 5.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        tls: ClientTls | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        """Take the name servers as `host:port;host:port` or one by one, else from NAMESRV_ADDR.

        Args:
            name_server: whom to ask for clusters and routes; the next one if one is not there.
            timeout: seconds for one request.
            access_key: whose requests these are; with `secret_key` they are signed.
            secret_key: what to sign them with.
            tls: how to encrypt, if at all.
            hooks: see every request and its answer.

        Raises:
            NoNameServer: none is given.
            ConfigError: one key is given without the other.
            BadAddress: one is no address.
        """
        if bool(access_key) != bool(secret_key):
            raise ConfigError("access_key and secret_key must be given together")
        config = ClientConfig(call_timeout=timeout, tls=tls)
        signers = [Signer(access_key, secret_key)] if access_key and secret_key else []
        self._remoting = RemotingClient(config, hooks=[*hooks, *signers])
        servers = Servers(_addresses(name_server), self._remoting)
        self.clusters = Clusters(servers)
        self.name_servers = NameServers(servers)
        self.brokers = Brokers(servers)
        self.topics = Topics(servers)
        self.timers = Timers(servers)
        self.groups = Groups(servers)
        self.clients = Clients(servers)
        self.offsets = Offsets(servers)
        self.parked = Parked(servers)
        self.progress = Progress(servers)
        self.pop = Pop(servers)
        self.filters = FilterFunctions(servers)
        self.messages = Messages(servers)
        self.traces = Traces(self.messages)
        self.tracks = Tracks(servers)
        self.transactions = TransactionDesk(servers)

    async def __aenter__(self) -> Self:
        await self._remoting.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._remoting.__aexit__(kind, exc, traceback)


def _addresses(given: str | Iterable[str] | None) -> list[str]:
    if given is None:
        given = os.environ.get("NAMESRV_ADDR", "")
    texts = given.split(SEPARATOR) if isinstance(given, str) else given
    return [text.strip() for text in texts if text.strip()]
