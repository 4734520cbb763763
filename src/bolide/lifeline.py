"""The link between a server process and the process that started it.

The supervisor (`bolide.cli.supervisor`, `bolide.cluster`) passes each server one end of a socket
pair, the lifeline. The environment variable BOLIDE_LIFELINE holds the file descriptor and the label
of the server. The server writes one byte when it is ready. End of file means that the supervisor is
gone; the server then stops, because an orphan would block its ports and its store at the next
start.
"""

import asyncio
import os
import signal
import socket
from contextlib import suppress
from typing import Self

_LIFELINE_VARIABLE = "BOLIDE_LIFELINE"


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
