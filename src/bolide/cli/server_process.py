"""What a server process needs besides its server: logging, and the link to its supervisor.

The supervisor (`bolide.cli.supervisor`) passes each server one end of a socket pair, the lifeline.
The environment variable BOLIDE_LIFELINE holds the file descriptor and the label of the server. The
server writes one byte when it is ready. End of file means that the supervisor is gone; the server
then stops, because an orphan would block its ports and its store at the next start.
"""

import asyncio
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from bolide import logs
from bolide.errors import ConfigError
from bolide.logs import LogConfig, LogLevel

log = logging.getLogger(__name__)


_VARIABLE = "BOLIDE_LIFELINE"


def find_log_config(file: Path | None) -> Path | None:
    if file is None and (home := os.environ.get("ROCKETMQ_HOME")):
        in_home = Path(home) / "conf" / "logging.toml"
        return in_home if in_home.exists() else None
    return file


def start_logging(file: Path | None, console: IO[str], label: str = "") -> LogLevel:
    """Configure the logs; returns the root level, which settings may change.

    Args:
        label: which of several processes with one configuration this is.
    """
    config = _read(file, label) if file else LogConfig(label=label)
    logs.configure(config, console=console)
    return config.level


def reload_logs(file: Path | None, label: str = "") -> None:
    """What SIGHUP asks for."""
    if file is None:
        log.info("there is no logging configuration to read again")
        return
    try:
        logs.configure(_read(file, label))
    except ConfigError as exc:
        log.warning("the logs stay as they are: %s", exc)
    else:
        log.info("the logs go by %s, read again", file)


def _read(file: Path, label: str) -> LogConfig:
    config = LogConfig.read(file)
    return config.of(label) if label else config


class Lifeline:
    """Of a server that was started by hand it is cut from the beginning, and does nothing.

    Entered on the event loop that serves.
    """

    def __init__(self, label: str = "", end: socket.socket | None = None) -> None:
        self.label = label
        self._end = end

    @classmethod
    def inherited(cls) -> "Lifeline":
        """That of this process; what it starts itself has none."""
        number, _, label = os.environ.pop(_VARIABLE, "").partition(":")
        if not number:
            return cls()
        end = socket.socket(fileno=int(number))
        end.set_inheritable(False)
        return cls(label, end)

    def __bool__(self) -> bool:
        return self._end is not None

    def __enter__(self) -> Self:
        if self._end is not None:
            self._end.setblocking(False)
            asyncio.get_running_loop().add_reader(self._end, self._cut)
        return self

    def __exit__(self, *_: object) -> None:
        if self._end is not None:
            asyncio.get_running_loop().remove_reader(self._end)
            self._end.close()

    def tell(self) -> None:
        """Say that it serves."""
        if self._end is not None:
            with suppress(OSError):  # nobody is there: `_cut` sees to it
                self._end.send(b"+")

    def _cut(self) -> None:
        assert self._end is not None
        asyncio.get_running_loop().remove_reader(self._end)
        os.kill(os.getpid(), signal.SIGTERM)


def handed_to_child(end: socket.socket, label: str) -> dict[str, str]:
    """What the environment of a server must hold; the socket itself is handed on by its number."""
    return {_VARIABLE: f"{end.fileno()}:{label}"}
