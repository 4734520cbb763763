"""The transport over HTTP: each request needs the token, and must be meant for this server.

The checks of Host and Origin keep web pages that a user opens from reaching the server by a name
that resolves to it (DNS rebinding).
"""

import asyncio
import contextlib
import hmac
import logging
import secrets
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bolide.errors import ConfigError
from bolide.remoting.address import format_address, is_loopback_host

log = logging.getLogger(__name__)

PATH = "/mcp"
MIN_TOKEN = 16
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_BACKLOG = 128
_STOP_TIMEOUT = 2
"""Seconds for open streams at the end."""


class BadToken(ConfigError):
    """The token is too short to protect anything."""

    def __init__(self, variable: str) -> None:
        super().__init__(
            f"{variable} has less than {MIN_TOKEN} characters; leave it out, and one is made"
        )


class CannotListen(ConfigError):
    """The address is in use or not of this machine."""


def choose_token(given: str | None, variable: str) -> tuple[str, bool]:
    """The token that clients have to send, and whether it was made just now.

    Raises:
        BadToken: the one given is too short.
    """
    if not given:
        return secrets.token_urlsafe(32), True
    if len(given) < MIN_TOKEN:
        raise BadToken(variable)
    return given, False


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        CannotListen: there can be none.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as exc:
        where = format_address((host, port))
        raise CannotListen(f"cannot listen on {where}: {exc.strerror or exc}") from exc


async def serve(
    protocol: Server[Any],
    listener: socket.socket,
    token: str,
    stop: asyncio.Event,
    *,
    more_hosts: Sequence[str] = (),
) -> None:
    """Serve clients until `stop` is set.

    Args:
        protocol: the server of the protocol.
        listener: a listening socket; it is closed at the end.
        token: what clients have to send as bearer token.
        stop: ends it.
        more_hosts: names by which clients may address the server, `name` or `name:port`, besides
            the address it listens on.
    """
    app = protocol.streamable_http_app(
        streamable_http_path=PATH, transport_security=_security(listener, more_hosts)
    )
    config = uvicorn.Config(
        _TokenCheck(app, token),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_STOP_TIMEOUT,
    )
    server = _HttpServer(config)
    serving = asyncio.ensure_future(server.serve([listener]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.handle_exit(signal.SIGTERM, None)  # ends open streams, too
        await serving


def _security(listener: socket.socket, more_hosts: Sequence[str]) -> TransportSecuritySettings:
    address = listener.getsockname()
    host, port = address[0], address[1]
    own = format_address((host, port))
    names = [own, *(f"{name}:{port}" for name in _LOOPBACK)] if is_loopback_host(host) else [own]
    hosts = [*names, *(name for each in more_hosts for name in (each, f"{each}:{port}"))]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{name}" for name in hosts for scheme in ("http", "https")],
    )


class _HttpServer(uvicorn.Server):
    """Leaves the signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _TokenCheck:
    """Answers 401 to requests without the token, before anything looks at them."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._has_token(Headers(scope=scope)):
            refusal = JSONResponse(
                {"error": "this needs the header Authorization: Bearer <token of the server>"},
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), self._token
        )
