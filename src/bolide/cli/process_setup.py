"""What a server process needs besides its server: logging, and the link to its supervisor.

The supervisor (`bolide.cli.supervisor`) passes each server one end of a socket pair, the lifeline.
The environment variable BOLIDE_LIFELINE holds the file descriptor and the label of the server. The
server writes one byte when it is ready. End of file means that the supervisor is gone; the server
then stops, because an orphan would block its ports and its store at the next start.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from bolide import logs
from bolide.errors import ConfigError
from bolide.logs import LogConfig, LogLevel

log = logging.getLogger(__name__)

_LIFELINE_VARIABLE = "BOLIDE_LIFELINE"
_MAX_FILES = 1 << 20
"""Open files that a server may need at most; a higher limit costs memory in child processes."""


class Lifeline:
    """The link of a server to its supervisor; inactive for a server started by hand.

    Must be entered on the event loop of the server.
    """

    def __init__(self, label: str = "", inherited_socket: socket.socket | None = None) -> None:
        self.label = label
        self._socket = inherited_socket

    @classmethod
    def inherited(cls) -> "Lifeline":
        """The lifeline of this process; child processes do not inherit it."""
        number, _, label = os.environ.pop(_LIFELINE_VARIABLE, "").partition(":")
        if not number:
            return cls()
        inherited_socket = socket.socket(fileno=int(number))
        inherited_socket.set_inheritable(False)
        return cls(label, inherited_socket)

    def __bool__(self) -> bool:
        return self._socket is not None

    def __enter__(self) -> Self:
        if self._socket is not None:
            self._socket.setblocking(False)
            asyncio.get_running_loop().add_reader(self._socket, self._stop_server)
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def report_ready(self) -> None:
        """Report to the supervisor that the server accepts requests."""
        if self._socket is not None:
            with suppress(OSError):  # the supervisor is gone: `_stop_server` handles it
                self._socket.send(b"+")

    def _stop_server(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        os.kill(os.getpid(), signal.SIGTERM)


def lifeline_environment(inherited_socket: socket.socket, label: str) -> dict[str, str]:
    """Environment variables for a child, which must also inherit the file descriptor."""
    return {_LIFELINE_VARIABLE: f"{inherited_socket.fileno()}:{label}"}


def find_log_config(file: Path | None) -> Path | None:
    if file is None and (home := os.environ.get("ROCKETMQ_HOME")):
        in_home = Path(home) / "conf" / "logging.toml"
        return in_home if in_home.exists() else None
    return file


def raise_file_limit() -> None:
    """Let the process open as many files as the system allows: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS refuses more than its own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def start_logging(file: Path | None, console: IO[str], label: str = "") -> LogLevel:
    """Configure the logs; returns the root level, which settings may change.

    Args:
        label: name of this process among several that share the configuration.
    """
    config = _read_log_config(file, label) if file else LogConfig(label=label)
    logs.configure(config, console=console)
    return config.level


def reload_logs(file: Path | None, label: str = "") -> None:
    """Read the logging configuration again, on SIGHUP."""
    if file is None:
        log.info("there is no logging configuration to reload")
        return
    try:
        logs.configure(_read_log_config(file, label))
    except ConfigError as exc:
        log.warning("the logs stay as they are: %s", exc)
    else:
        log.info("logging configuration reloaded from %s", file)


def _read_log_config(file: Path, label: str) -> LogConfig:
    config = LogConfig.read(file)
    return config.of(label) if label else config
