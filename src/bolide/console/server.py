"""Runs the console: one uvicorn server in a process of its own."""

import asyncio
import errno
import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import uvicorn

from bolide.console.service import Console
from bolide.console.settings import ConsoleSettings
from bolide.console.web.app import make_app
from bolide.errors import ConfigError


class PortTaken(ConfigError):
    """Another program listens on the console's port."""


class ConsoleServer:
    """An HTTP server with the console's pages; `serve` returns after `stop`."""

    def __init__(self, settings: ConsoleSettings) -> None:
        check_exposure(settings)
        self.console = Console(settings)
        self._settings = settings
        self._socket = listen(settings.host, settings.port)
        config = uvicorn.Config(
            make_app(self.console),
            loop="none",
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="websockets-sansio",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=3,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.certificate_key,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        scheme = "https" if self._settings.certificate else "http"
        host, port = self._socket.getsockname()[:2]
        shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104
        return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}"

    async def serve(self, on_ready: Callable[[str | None], None]) -> None:
        """Serve until cancelled.

        Args:
            on_ready: called with the one-time password of the first account, if there is one.
        """
        settings = self._settings
        password = None
        if settings.login:
            password = await self.console.accounts.ensure_first(settings.first_password)
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        try:
            started = asyncio.create_task(self._server.has_started.wait())
            await asyncio.wait({started, serving}, return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                _spare_collector()
                on_ready(password)
            started.cancel()
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self._server.should_exit = True
            await serving
            raise
        raise ConfigError("the console's web server ended; see the log")


class _Server(uvicorn.Server):
    """Leaves signals to the program, and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.has_started.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _spare_collector() -> None:
    """Leave what lives as long as the process out of garbage collections.

    With its 200,000 objects a collection takes 150 ms and more, in which no page is answered.
    The thresholds stay: closed pages are garbage in cycles, and shall go soon.
    """
    gc.collect()
    gc.freeze()


def check_exposure(settings: ConsoleSettings) -> None:
    """Refuse what would let anybody on the network in, or read passwords on their way.

    Raises:
        ConfigError: there is no log-in on an address that others can reach.
    """
    if settings.login or is_loopback(settings.host):
        return
    raise ConfigError(
        f"--no-login with --host {settings.host}: everybody on the network could change the"
        " cluster; leave one of the two out"
    )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket for a server of asyncio.

    Raises:
        PortTaken: another program listens there.
        ConfigError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches TCP_NODELAY on, as uvloop always does: without it an
    # answer of two writes waits 40 ms for the acknowledgement of the first.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(512)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"port {port} of {host} is taken by another program; choose another one: --port, or"
                " --console-port of bolide standalone"
            ) from error
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listening
