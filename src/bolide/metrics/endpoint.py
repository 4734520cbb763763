"""A small HTTP server for /metrics, /healthz and /readyz. It only reads, and takes GET and HEAD.

h11 does the protocol. A client may be slow or hostile: it has little time for its request and for
reading the response, its headers have a limit, and there is a limit of connections. When that is
reached, those go first that wait for nothing.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

import h11
import msgspec

from bolide.errors import ConfigError
from bolide.remoting.address import format_address

log = logging.getLogger(__name__)

_MAX_CONNECTIONS = 32
_MAX_HEADERS = 16 * 1024
_REQUEST_TIMEOUT = 10.0
_IDLE_TIMEOUT = 90.0
_RESPONSE_TIMEOUT = 30.0
_RECEIVED = 16 * 1024
_TRIES = 100
"""Ports that are tried if the default one is taken."""
_PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    body: Sequence[bytes]
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _PLAIN
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a route is told of a request."""

    accepts_gzip: bool
    query: str


Route = Callable[[Asked], Awaitable[Response]]


def json_response(status: HTTPStatus, content: object) -> Response:
    body = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    return Response([body], status, "application/json")


def text_response(status: HTTPStatus, text: str) -> Response:
    return Response([f"{text}\n".encode()], status)


class Endpoint:
    """Serves while it is open.

    Args:
        listener: bound and listening, see `listen`.
        routes: by path.
    """

    def __init__(self, listener: socket.socket, routes: Mapping[str, Route]) -> None:
        self._listener = listener
        self.address = format_address(listener.getsockname())
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], bool] = {}
        """Oldest first, and whether each waits for a request."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(
            self._connected, sock=self._listener, limit=_RECEIVED
        )

    async def close(self) -> None:
        """Close the listener and all connections."""
        if self._server is None:
            self._listener.close()
            return
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._make_room()
        self._connections[task] = True
        try:
            await self._serve(task, reader, writer)
        except (OSError, TimeoutError):
            log.debug("a client of the metrics endpoint was too slow, or left")
        except Exception:
            log.exception("a request to the metrics endpoint failed")
        except asyncio.CancelledError:
            pass  # this server closes, or there are too many connections
        finally:
            del self._connections[task]
            writer.transport.abort()  # all was sent, or nobody reads it

    def _make_room(self) -> None:
        if len(self._connections) < _MAX_CONNECTIONS:
            return
        waiting = (task for task, is_idle in self._connections.items() if is_idle)
        victim = next(waiting, None) or next(iter(self._connections))
        victim.cancel()

    async def _serve(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Serve the requests of a connection one by one."""
        within = _REQUEST_TIMEOUT
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEADERS)
        while True:
            self._connections[task] = True
            try:
                async with asyncio.timeout(within):
                    request = await _next_request(protocol, reader)
            except h11.RemoteProtocolError as exc:
                await _refuse(protocol, writer, exc)
                return
            if request is None:
                return
            self._connections[task] = False
            response = await self._respond(request)
            async with asyncio.timeout(_RESPONSE_TIMEOUT):
                await _send(protocol, writer, request, response)
                if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
                    await _finish(writer)
                    return
            protocol.start_next_cycle()
            within = _IDLE_TIMEOUT

    async def _respond(self, request: h11.Request) -> Response:
        if request.method not in {b"GET", b"HEAD"}:
            return text_response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
        path, _, query = request.target.decode(errors="replace").partition("?")
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(self._routes)
            return text_response(HTTPStatus.NOT_FOUND, f"there is {known}")
        try:
            return await route(Asked(_accepts_gzip(request), query))
        except Exception:
            log.exception("%s cannot be served", path)
            return text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "see the log of the server")


async def _next_request(
    protocol: h11.Connection, reader: asyncio.StreamReader
) -> h11.Request | None:
    """Wait for a request; None if the client has left. Its body, if any, is not read."""
    found: h11.Request | None = None
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            if found is not None:
                return found  # a body is still to come, and the connection is closed afterwards
            protocol.receive_data(await reader.read(_RECEIVED))
        elif isinstance(event, h11.Request):
            found = event
        elif found is not None or isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return found


async def _send(
    protocol: h11.Connection, writer: asyncio.StreamWriter, request: h11.Request, found: Response
) -> None:
    size = sum(map(len, found.body))
    headers = [
        ("Content-Type", found.content_type),
        ("Content-Length", str(size)),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if found.encoding:
        headers.append(("Content-Encoding", found.encoding))
    if found.status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(("Allow", "GET, HEAD"))
    _write(protocol, writer, h11.Response(status_code=found.status, headers=headers))
    if request.method != b"HEAD":
        for piece in found.body:
            _write(protocol, writer, h11.Data(data=piece))
            await writer.drain()
    _write(protocol, writer, h11.EndOfMessage())
    await writer.drain()


def _write(
    protocol: h11.Connection,
    writer: asyncio.StreamWriter,
    event: h11.Response | h11.Data | h11.EndOfMessage,
) -> None:
    data = protocol.send(event)
    if data:
        writer.write(data)


async def _refuse(
    protocol: h11.Connection, writer: asyncio.StreamWriter, exc: h11.RemoteProtocolError
) -> None:
    """Answer what is not HTTP, as far as an answer is possible."""
    with suppress(h11.LocalProtocolError):
        body = b"the request cannot be read\n"
        headers = [("Content-Length", str(len(body))), ("Connection", "close")]
        _write(protocol, writer, h11.Response(status_code=exc.error_status_hint, headers=headers))
        _write(protocol, writer, h11.Data(data=body))
        _write(protocol, writer, h11.EndOfMessage())
    async with asyncio.timeout(_RESPONSE_TIMEOUT):
        await _finish(writer)


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Let the last bytes leave."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _accepts_gzip(request: h11.Request) -> bool:
    found = [value for name, value in request.headers if name == b"accept-encoding"]
    return any(part.strip().split(b";")[0] == b"gzip" for part in b",".join(found).split(b","))


def listen(host: str, port: int, *, must_be_this: bool) -> socket.socket:
    """Bind the endpoint's socket; a port that is not required gives way to the next free one.

    Raises:
        ConfigError: the port is taken, or the address is not one of this machine.
    """
    tries = 1 if must_be_this or not port else _TRIES
    last = OSError("no port is left")
    for each in range(port, min(port + tries, 65536)):
        try:
            listener = _bind(host, each)
        except OSError as exc:
            last = exc
            if exc.errno not in {errno.EADDRINUSE, errno.EACCES}:
                break
            continue
        if each != port:
            log.warning(
                "metricsPromExporterPort: %s is taken, so /metrics is on %s; set a port to have"
                " always the same", port, each,
            )  # fmt: skip
        return listener
    raise ConfigError(
        f"metricsPromExporterPort={port}: cannot serve /metrics on {host}:{port}:"
        f" {last.strerror or last}; set another port or metricsPromExporterHost, or"
        " metricsExporterType=DISABLE"
    )


def _bind(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener
