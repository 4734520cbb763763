"""Server: accepts plain and TLS connections on one port, and drains them at shutdown."""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from bolide.errors import ConfigError
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.remoting.address import format_address
from bolide.remoting.calls import ConnectionLimits, Permits
from bolide.remoting.connection import LINGER, Connection, FastPath, finish_all
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.tls import TLS_HANDSHAKE, ReloadingContext, ServerTls, TlsMode
from bolide.remoting.wire import MemoryBudget, Outbox

log = logging.getLogger(__name__)

_ACCEPT_BURST = 128
_OUT_OF_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_CERTIFICATE_CHECK = 1.0
_TLS_HANDSHAKE_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of a server; durations in seconds, sizes in bytes, 0 is the system's choice."""

    host: str = "127.0.0.1"
    port: int = 0
    backlog: int = 1024
    send_buffer: int = 0
    receive_buffer: int = 0
    write_high_water: int = 1024 * 1024
    max_frame_size: int = MAX_FRAME_SIZE
    max_connections: int = 10_000
    reserved_files: int = 64
    """Descriptors that connections never take: files of the process and calls to other servers."""
    max_held: int = 512 * 1024 * 1024
    max_requests_per_connection: int = 10_000
    max_one_way_calls: int = 256
    max_calls: int = 64
    idle_timeout: float = 120.0
    drain_timeout: float = 5.0
    tls: ServerTls = field(default_factory=ServerTls)


@dataclass(slots=True)
class ConnectionCounts:
    """How often connections were opened, closed, lost by an error, and closed as idle."""

    opened: int = 0
    closed: int = 0
    broken: int = 0
    idle: int = 0


class RemotingServer:
    """Listens while its `async with` block runs; leaving it drains and closes all connections."""

    def __init__(
        self,
        config: ServerConfig,
        dispatcher: Dispatcher,
        *,
        on_close: Callable[[Connection], None] | None = None,
        fast: FastPath | None = None,
    ) -> None:
        self.config = config
        self.connections: set[Connection] = set()
        self.counts = ConnectionCounts()
        self._dispatcher = dispatcher
        self._outbox = Outbox()
        self._held = MemoryBudget(config.max_held, self._relieve)
        self._on_close = on_close
        self._fast = fast
        self._handshakes: set[asyncio.Task[None]] = set()
        self._orphaned: set[asyncio.Task[None]] = set()
        """Tasks of requests whose connection is closed, for example unfinished file writes."""
        self._context = ReloadingContext(config.tls) if config.tls.is_active else None
        config.tls.warn()
        self._limits = ConnectionLimits(
            max_frame_size=config.max_frame_size,
            max_requests=config.max_requests_per_connection,
            write_high_water=config.write_high_water,
            one_way_calls=asyncio.Semaphore(config.max_one_way_calls),
            calls=Permits(config.max_calls),
        )

    @property
    def address(self) -> str:
        """`host:port` of the listener, with the actual port if 0 was requested."""
        return format_address(self._listener.getsockname())

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._listener = await _listen(self.config)
        self._loop.add_reader(self._listener, self._accept)
        self._maintenance = asyncio.create_task(self._maintain(), name="remoting-maintenance")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop accepting, drain and close all connections. Idempotent."""
        self._maintenance.cancel()
        if self._listener.fileno() != -1:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        for handshake in self._handshakes:
            handshake.cancel()
        await self._drain()

    async def _drain(self) -> None:
        """Let requests in flight finish and replies be sent, then close all connections."""
        if late := await finish_all(list(self.connections), self.config.drain_timeout):
            log.warning("%s connections did not finish in time", late)
        if self._orphaned:
            await asyncio.wait(self._orphaned, timeout=self.config.drain_timeout)

    def switch(
        self,
        dispatcher: Dispatcher,
        on_close: Callable[[Connection], None],
        fast: FastPath | None,
    ) -> None:
        """Serve all connections, present and future ones, by another dispatcher from now on.

        Requests that are under way end by the old one.
        """
        self._dispatcher, self._on_close, self._fast = dispatcher, on_close, fast
        for connection in self.connections:
            connection.switch(dispatcher, fast)

    # Accepting

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BURST):
            try:
                if shortage := self._file_shortage():
                    self._pause_accepting(shortage)
                    return
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                if exc.errno not in _OUT_OF_FILES:
                    raise
                self._pause_accepting(str(exc))
                return
            self._admit(client)

    def _pause_accepting(self, reason: str) -> None:
        """Out of descriptors: try again in a second instead of spinning."""
        log.error("cannot accept connections: %s", reason)
        self._loop.remove_reader(self._listener)
        self._loop.call_later(1.0, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._listener.fileno() != -1:
            self._loop.add_reader(self._listener, self._accept)

    def _admit(self, client: socket.socket) -> None:
        if len(self.connections) + len(self._handshakes) >= self.config.max_connections:
            log.warning("refusing a connection: %s are open", self.config.max_connections)
            client.close()
            return
        client.setblocking(False)
        _tune(client, self.config)

        def ended(handshake: asyncio.Task[None]) -> None:
            self._handshakes.discard(handshake)
            if handshake.cancelled():  # perhaps before it began
                client.close()

        handshake = self._loop.create_task(self._handshake(client))
        self._handshakes.add(handshake)
        handshake.add_done_callback(ended)

    def _file_shortage(self) -> str:
        """Why no further descriptor may be taken for a connection; empty if one may."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        reserved = self.config.reserved_files
        # The system gives out the lowest free number, so this also counts what others have open.
        os.close(number := os.dup(self._listener.fileno()))
        if soft == resource.RLIM_INFINITY or number < soft - reserved:
            return ""
        return (
            f"the process may open {soft} files, of which {reserved} are reserved;"
            " raise its limit (ulimit -n, or LimitNOFILE= of systemd)"
        )

    async def _handshake(self, client: socket.socket) -> None:
        """Detect whether the client speaks TLS, and make a connection of its socket."""
        peer = _peer_of(client)
        try:
            context = await self._choose_tls(client)
            handshake = asyncio.current_task()
            assert handshake is not None
            await self._loop.connect_accepted_socket(
                lambda: self._connection(handshake),
                client,
                ssl=context,
                ssl_handshake_timeout=_TLS_HANDSHAKE_TIMEOUT if context else None,
                ssl_shutdown_timeout=LINGER if context else None,
            )
        except (OSError, ssl.SSLError, TimeoutError) as exc:
            reason = str(exc) or type(exc).__name__
            log.info("the connection of %s ended before its first request: %s", peer, reason)
            client.close()

    async def _choose_tls(self, client: socket.socket) -> ssl.SSLContext | None:
        mode = self.config.tls.mode
        if self._context is None:
            return None
        async with asyncio.timeout(self.config.idle_timeout):
            first = await self._peek(client)
        if first and first[0] == TLS_HANDSHAKE:
            return self._context.current
        if mode is TlsMode.ENFORCING:
            raise ConnectionRefusedError(
                "a plain client on a server with tls.server.mode=enforcing"
            )
        return None

    async def _peek(self, client: socket.socket) -> bytes:
        """Return the first byte without consuming it: the TLS layer must read it."""
        readable = asyncio.Event()
        self._loop.add_reader(client, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(client)
        return client.recv(1, socket.MSG_PEEK)

    # Connections

    def _connection(self, handshake: asyncio.Task[Any]) -> Connection:
        def opened(connection: Connection) -> None:
            if handshake.cancelling():
                return  # uvloop closes its transport without a call of `connection_lost`
            # The limit counts handshakes and connections: no client may be in both.
            self._handshakes.discard(handshake)
            self.connections.add(connection)
            self.counts.opened += 1

        return Connection(
            self._dispatcher,
            self._limits,
            outbox=self._outbox,
            memory_budget=self._held,
            on_open=opened,
            on_close=self._forget,
            fast=self._fast,
        )

    def _forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.counts.closed += 1
        self.counts.broken += connection.is_broken
        for task in connection.tasks:
            self._orphaned.add(task)
            task.add_done_callback(self._orphaned.discard)
        if self._on_close is not None:
            self._on_close(connection)

    def _relieve(self) -> None:
        """Over the memory budget: close the connection that holds the most."""
        most = max(self.connections, key=lambda connection: connection.held, default=None)
        if most is not None and most.held:
            log.warning("closing the connection of %s: it holds %s bytes", most.peer, most.held)
            most.abort()

    async def _maintain(self) -> None:
        """Close idle connections and pick up changed certificates."""
        while True:
            await asyncio.sleep(min(_CERTIFICATE_CHECK, self.config.idle_timeout / 4))
            self._close_idle()
            if self._context is not None:
                await asyncio.to_thread(self._context.check)

    def _close_idle(self) -> None:
        oldest = self._loop.time() - self.config.idle_timeout
        for connection in [c for c in self.connections if c.last_active < oldest]:
            log.info("closing the connection of %s: idle", connection.peer)
            connection.abort()
            self.counts.idle += 1


async def close_all(servers: Iterable[RemotingServer]) -> None:
    """Close several servers concurrently."""
    await asyncio.gather(*(server.close() for server in servers))


async def ensure_free(config: ServerConfig) -> None:
    """Check that a server could listen, before parts that other messages are about are started.

    Raises:
        ConfigError: the port is taken, or the address is not one of this machine.
    """
    (await _listen(config)).close()


async def _listen(config: ServerConfig) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise ConfigError(f"cannot listen on {config.host}:{config.port}: {exc}") from exc
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(config.backlog)
    except OSError as exc:
        listener.close()
        raise ConfigError(f"cannot listen on {config.host}:{config.port}: {exc}") from exc
    return listener


def _peer_of(client: socket.socket) -> str:
    try:
        return format_address(client.getpeername())
    except OSError:  # it has left already
        return "?"


def _tune(client: socket.socket, config: ServerConfig) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if config.send_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer)
    if config.receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer)
