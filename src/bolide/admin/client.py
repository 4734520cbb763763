"""`AdminClient`, the entry point of the package."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bolide.admin.access import Permissions, Policies, Users
from bolide.admin.audit import Audit
from bolide.admin.brokers import Brokers, Clusters, ColdReads, FilterFunctions
from bolide.admin.clients import Clients
from bolide.admin.consequences import Consequences
from bolide.admin.consumer_lag import ConsumerLag
from bolide.admin.consumer_status import ConsumerStatuses
from bolide.admin.controllers import Controllers
from bolide.admin.dead_letters import DeadLetters
from bolide.admin.drain import Drain
from bolide.admin.exports import Exports
from bolide.admin.groups import Groups, Pop
from bolide.admin.held_messages import HalfMessages, Timers
from bolide.admin.message_history import Traces, Tracks
from bolide.admin.messages import Messages
from bolide.admin.monitoring import Monitoring
from bolide.admin.name_servers import NameServers
from bolide.admin.offsets import Offsets
from bolide.admin.parked import Parked
from bolide.admin.plain_acl import PlainAcl
from bolide.admin.servers import Servers
from bolide.admin.static_topics import StaticTopics
from bolide.admin.topics import Topics
from bolide.admin.traffic import Traffic
from bolide.errors import ConfigError
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import RequestHook
from bolide.remoting.signing import Signer
from bolide.remoting.tls import ClientTls, client_tls

SEPARATOR = ";"


class AdminClient:
    """Administers a cluster of Bolide or RocketMQ brokers, open inside its `async with` block.

    The operations are grouped by subject: `admin.topics`, `admin.groups`, `admin.brokers` and so
    on. They raise `Refusal` if a server refuses, `RemotingError` if no server answers, and
    `AdminError` if the cluster has no such object.
    """

    def __init__(  # noqa: PLR0913  a public constructor with keyword options
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        timeout: float = 5.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        tls: ClientTls | bool | None = None,
        trust: Path | str | None = None,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        """Configure the client; connections are opened on demand.

        Args:
            name_server: NameServers as `host:port;host:port` or an iterable, by default from
                NAMESRV_ADDR; the next one is used if one is unreachable. What names a broker by
                its address needs none.
            timeout: seconds per request.
            access_key: identity of the sender; with `secret_key`, requests are signed.
            secret_key: key of the signature.
            tls: TLS settings, or True to check servers with the system's authorities; plain text
                by default.
            trust: file of the authorities that sign the certificates of servers; turns TLS on.
            certificate: file of a client certificate, for servers that ask for one.
            key: file of the private key of `certificate`.
            hooks: called for every request and its response.

        Raises:
            ConfigError: one key is given without the other, or a TLS file cannot be used.
            BadAddress: an address is malformed.
        """
        if bool(access_key) != bool(secret_key):
            raise ConfigError("access_key and secret_key must be given together")
        encryption = client_tls(tls, trust=trust, certificate=certificate, key=key)
        config = ClientConfig(call_timeout=timeout, tls=encryption)
        signers = [Signer(access_key, secret_key)] if access_key and secret_key else []
        self._remoting = RemotingClient(config, hooks=[*hooks, *signers])
        servers = Servers(_addresses(name_server), self._remoting)
        self.clusters = Clusters(servers)
        self.name_servers = NameServers(servers)
        self.brokers = Brokers(servers)
        self.cold_reads = ColdReads(servers)
        self.controllers = Controllers(servers)
        self.topics = Topics(servers)
        self.static_topics = StaticTopics(servers)
        self.timers = Timers(servers)
        self.groups = Groups(servers)
        self.clients = Clients(servers)
        self.consumer_status = ConsumerStatuses(servers)
        self.consequences = Consequences(servers)
        self.dead_letters = DeadLetters(servers)
        self.offsets = Offsets(servers)
        self.parked = Parked(servers)
        self.progress = ConsumerLag(servers)
        self.traffic = Traffic(servers)
        self.exports = Exports(servers)
        self.drain = Drain(servers)
        self.monitoring = Monitoring(servers)
        self.pop = Pop(servers)
        self.filters = FilterFunctions(servers)
        self.messages = Messages(servers)
        self.traces = Traces(self.messages)
        self.tracks = Tracks(servers)
        self.transactions = HalfMessages(servers)
        self.plain_acl = PlainAcl(servers)
        self.audit = Audit(servers)
        self.users = Users(servers)
        self.policies = Policies(servers)
        self.permissions = Permissions(servers)

    def use_tls(self, tls: ClientTls | None) -> None:
        """Use other TLS settings, or plain text, for all later requests; those in flight fail.

        Raises:
            ConfigError: a TLS file cannot be used; nothing is changed.
        """
        self._remoting.use_tls(tls)

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
