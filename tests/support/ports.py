"""Ports for servers that a test starts: free, and given to nobody else who asks here."""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

# Below the range from which systems give ports to outgoing connections.
_FIRST, _RANGES, _LENGTH = 10_000, 11, 2_000


class Ports:
    """A range of ports that no other process of the tests takes from, while this one lives.

    Between the choice of a port and the start of its server passes a second or two, in which the
    parts of the suite that run beside each other would choose the same one now and then.
    """

    def __init__(self) -> None:
        self._first, self._lock = self._reserve()
        self._next = 0
        self._given: set[int] = set()

    def take(self, neighbours: Sequence[int] = ()) -> int:
        """A port that is free together with its neighbours at the given distances."""
        for _ in range(2 * _LENGTH):
            port = self._first + self._next
            self._next = (self._next + 1) % _LENGTH
            if self._next == 0:
                self._given.clear()  # once around: the first ones are long done
            wanted = {port, *(port + distance for distance in neighbours)}
            if all(self._is_available(each) for each in wanted):
                self._given |= wanted
                return port
        raise OSError("no free port found")

    def _is_available(self, port: int) -> bool:
        inside = self._first <= port < self._first + _LENGTH
        return inside and port not in self._given and _is_free(port)

    @staticmethod
    def _reserve() -> tuple[int, int]:
        directory = Path(tempfile.gettempdir()) / f"bolide-test-ports-{os.getuid()}"
        directory.mkdir(exist_ok=True)
        for number in random.sample(range(_RANGES), _RANGES):
            lock = os.open(directory / str(number), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
            else:
                return _FIRST + number * _LENGTH, lock
        raise OSError(f"{_RANGES} processes of the tests have taken all ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


_reserved: list[Ports] = []


def free_port(neighbours: Sequence[int] = ()) -> int:
    """A port that is free together with its neighbours at the given distances."""
    if not _reserved:
        _reserved.append(Ports())
    return _reserved[0].take(neighbours)
