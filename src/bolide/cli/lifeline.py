"""What a server has of the process that started it and watches over it: `supervisor`.

A socket, whose number stands in the environment with the name by which the server is known there.
The server writes a byte when it serves. When it reads the end, the other process is gone, and it
stops: one that goes on alone would keep its ports and its store from the next start.
"""

import asyncio
import os
import signal
import socket
from contextlib import suppress
from typing import Self

_VARIABLE = "BOLIDE_LIFELINE"


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
