"""Client of RocketMQ servers: one connection per address, opened on first use."""

import asyncio
import logging
import math
import ssl
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar, cast

from bolide.errors import ConfigError
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.header import Header
from bolide.protocol.refusals import refusal_for
from bolide.remoting.address import split_address
from bolide.remoting.calls import ConnectionLimits, Permits
from bolide.remoting.connection import LINGER, Connection, finish_all
from bolide.remoting.dispatch import Dispatcher, RequestHook
from bolide.remoting.errors import ConnectFailed, TlsFailed, UntrustedServer
from bolide.remoting.tasks import SingleFlight
from bolide.remoting.tls import ClientTls, ReloadingContext
from bolide.remoting.tls_failures import TLS_ONLY, explain, explain_loss, is_wrong_host, names_in
from bolide.remoting.wire import Outbox

log = logging.getLogger(__name__)

P = TypeVar("P", bound=asyncio.Protocol)

_IN_HANDSHAKE = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError)
Fields = dict[str, str]
"""A header in wire form, for requests that do not use the form of their header class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of connections and calls; durations in seconds."""

    connect_timeout: float = 3.0
    call_timeout: float = 3.0
    idle_timeout: float = 120.0
    max_one_way_calls: int = 65_535
    max_calls: int = 65_535
    encoding: HeaderEncoding = HeaderEncoding.JSON
    tls: ClientTls | None = None


class RemotingClient:
    """Calls servers while its `async with` block runs, and serves their requests."""

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        dispatcher: Dispatcher | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        self.config = config or ClientConfig()
        self._dispatcher = dispatcher or Dispatcher()
        self._hooks = tuple(hooks)
        self._outbox = Outbox()
        self._answers = PlainAnswers()
        self._connections: dict[str, Connection] = {}
        self._connecting: SingleFlight[str, Connection] = SingleFlight(_closed)
        self._is_closed = False
        self._reconnected: dict[str, float] = {}  # -inf after the first connection
        self._context = ReloadingContext(self.config.tls) if self.config.tls else None
        self._limits = ConnectionLimits(
            always_read=True,
            one_way_calls=asyncio.Semaphore(self.config.max_one_way_calls),
            calls=Permits(self.config.max_calls),
        )

    async def __aenter__(self) -> Self:
        self._idle_closer = asyncio.create_task(self._close_idle(), name="remoting-client-idle")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._idle_closer.cancel()
        self._is_closed = True
        await self._connecting.close()
        await finish_all(self._connections.values(), self.config.call_timeout)

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: Header | Fields | None = None,
        *,
        body: bytes = b"",
        within: float | None = None,
        accept: Collection[int] = (),
    ) -> Frame:
        """Call a server and return the successful response; `within` starts after connecting.

        Args:
            accept: further response codes that do not count as refusals.

        Raises:
            Refusal: the server refused; the subclass depends on the response code.
            RemotingError: no response came; the subclass says why.
        """
        frame = self._frame(code, header, body)
        for hook in self._hooks:
            hook.before(address, frame)
        connection = await self._connection(address)
        seconds = self.config.call_timeout if within is None else within
        response = await connection.call(frame, seconds)
        for hook in self._hooks:
            hook.after(address, frame, response)
        return accepted(response, accept)

    async def notify(
        self,
        address: str,
        code: RequestCode,
        header: Header | Fields | None = None,
        *,
        body: bytes = b"",
    ) -> None:
        """Send a one-way request; there is no confirmation of its arrival."""
        frame = self._frame(code, header, body)
        for hook in self._hooks:
            hook.before(address, frame)
        await (await self._connection(address)).notify(frame)

    def find(self, address: str) -> Connection | None:
        """Return the open connection to an address, if there is one."""
        connection = None if self._is_closed else self._connections.get(address)
        return None if connection is None or connection.is_closed else connection

    def is_connected(self, address: str) -> bool:
        connection = self._connections.get(address)
        return connection is not None and not connection.is_closed

    def uses(self, address: str, connection: Connection) -> bool:
        """Whether a connection, open or lost, is the latest one to an address."""
        return self._connections.get(address) is connection

    def disconnect(self, address: str) -> None:
        """Close the connection to an address at once; calls in flight fail with ConnectionLost."""
        connection = self.find(address)
        if connection is not None:
            connection.abort()

    def use_tls(self, tls: ClientTls | None) -> None:
        """Use other TLS settings, or plain text, from now on.

        Open connections are closed at once; calls in flight fail with ConnectionLost.

        Raises:
            ConfigError: a TLS file cannot be used; nothing is changed.
        """
        self._context = ReloadingContext(tls) if tls else None
        self.config = replace(self.config, tls=tls)
        for connection in self._connections.values():
            connection.abort()

    def reconnected_at(self, address: str) -> float:
        """Loop time at which a lost connection was last replaced; -inf if none was."""
        return self._reconnected.get(address, -math.inf)

    async def connect(self, address: str) -> None:
        """Open the connection for later calls. Raises ConnectFailed."""
        await self._connection(address)

    def _frame(self, code: RequestCode, header: Header | Fields | None, body: bytes) -> Frame:
        fields = header.to_fields() if isinstance(header, Header) else header
        return Frame(code=code, fields=fields, body=body, encoding=self.config.encoding)

    async def _connection(self, address: str) -> Connection:
        if self._is_closed:
            raise _closed(address)
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        return await self._connecting.run(
            address, lambda: self._open(address), f"connect {address}"
        )

    async def _open(self, address: str) -> Connection:
        context = self._context
        connection = await self._connect(address)
        if context is not self._context:
            connection.abort()
            raise ConnectFailed(address, "the TLS settings have changed; try again")
        self._connections[address] = connection
        now = asyncio.get_running_loop().time()
        self._reconnected[address] = now if address in self._reconnected else -math.inf
        return connection

    async def _connect(self, address: str) -> Connection:
        host, port = split_address(address)
        tls, context = self.config.tls, await self._current_context()
        try:
            async with asyncio.timeout(self.config.connect_timeout):
                connection = await self._open_socket(host, port, context, self._new_connection)
        except TimeoutError as exc:
            seconds = self.config.connect_timeout
            raise ConnectFailed(address, f"no answer within {seconds:g} s") from exc
        except ssl.SSLCertVerificationError as exc:
            assert tls is not None
            names = await self._names_of(host, port) if is_wrong_host(exc) else None
            raise UntrustedServer(address, explain(exc, tls, host, names)) from exc
        except OSError as exc:
            if tls is None or not isinstance(exc, _IN_HANDSHAKE):
                raise ConnectFailed(address, exc) from exc
            raise TlsFailed(address, explain(exc, tls, host)) from exc
        return connection

    def _new_connection(self) -> Connection:
        connection = _ClientConnection(
            self._dispatcher, self._limits, outbox=self._outbox, fast=self._answers
        )
        connection.tls = self.config.tls
        return connection

    async def _current_context(self) -> ssl.SSLContext | None:
        if self._context is None:
            return None
        await asyncio.to_thread(self._context.check)
        return self._context.current

    async def _open_socket(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        protocol: Callable[[], P],
    ) -> P:
        loop = asyncio.get_running_loop()
        name = self.config.tls.server_name if self.config.tls else None
        _, made = await loop.create_connection(
            protocol,
            host,
            port,
            ssl=context,
            server_hostname=(name or host) if context else None,
            # Java's servers do not answer the end of a TLS connection.
            ssl_shutdown_timeout=LINGER if context else None,
        )
        return made

    async def _names_of(self, host: str, port: int) -> list[str] | None:
        """The names in the certificate of a server, for the text of an error; None if unknown.

        Python's ssl does not show a certificate that it has refused, so a second connection is
        made that does not check the name, and is closed at once.
        """
        assert self.config.tls is not None
        nameless = replace(self.config.tls, check_host=False)
        try:
            context = await asyncio.to_thread(nameless.context)
            async with asyncio.timeout(self.config.connect_timeout):
                seen = await self._open_socket(host, port, context, _Glance)
        except (OSError, TimeoutError, ConfigError):
            return None
        return names_in(seen.certificate)

    async def _close_idle(self) -> None:
        """Close idle connections periodically and drop closed ones."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.config.idle_timeout / 4)
            oldest = loop.time() - self.config.idle_timeout
            for address, connection in list(self._connections.items()):
                if connection.is_idle and connection.last_active < oldest:
                    # A peer that read nothing for so long will not read the rest either.
                    connection.abort() if connection.unsent else connection.close()
                if connection.is_closed:
                    del self._connections[address]


def accepted(response: Frame, accept: Collection[int] = ()) -> Frame:
    """Return the response if its code is SUCCESS or one of `accept`.

    Raises:
        Refusal: the subclass depends on the code.
    """
    if response.code != ResponseCode.SUCCESS and response.code not in accept:
        raise refusal_for(response.code, response.remark)
    return response


def _closed(address: str) -> ConnectFailed:
    return ConnectFailed(address, "the client is closed")


class PlainAnswers:
    """A `FastPath` that serves no requests and completes the plain sends of its connection."""

    def serve(self, data: bytes, position: int, connection: Connection, until: float) -> int:
        return connection.resolve_answers(data, position)


class _ClientConnection(Connection):
    """A connection of a client, which says why the server may have closed it."""

    tls: ClientTls | None = None

    def _reason_of_loss(self, exc: Exception | None) -> str:
        if not self._pending.is_none_answered:
            return ""
        return TLS_ONLY if self.tls is None else explain_loss(exc, self.tls)


class _Glance(asyncio.Protocol):
    """Looks at the certificate of a server and closes the connection."""

    certificate: dict[str, object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.certificate = transport.get_extra_info("peercert")
        cast("asyncio.Transport", transport).abort()
