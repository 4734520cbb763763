"""Runs a program of ours that uses more CPU time than it should: does the guard find it?

    python -m benchmarks.smoke.slowed PERCENT MODULE ARGUMENT…

What comes in is handled, and now and then as many percent are burnt of all CPU time since the first
of it, but for what the reference took.
"""

import runpy
import sys
import time

from benchmarks.smoke import reference
from bolide.remoting.connection import Connection

PAUSE = 0.001
"""Seconds: to look at the clock for each message would cost more than it should."""


class Burner:
    def __init__(self, percent: float) -> None:
        self._part = percent / 100
        self._receive, self._turn_around = Connection.data_received, reference.turn_around
        self._last = self._burnt = self._free = 0.0

    def install(self) -> None:
        def receive(connection: Connection, data: bytes) -> None:
            self._receive(connection, data)
            if time.monotonic() - self._last > PAUSE:
                self._burn()
                self._last = time.monotonic()

        setattr(Connection, "data_received", receive)  # noqa: B010  mypy knows no patches
        reference.turn_around = self._without_burning

    def _burn(self) -> None:
        begun = now = time.process_time()
        if not self._last:
            self._free = begun
        owed = (begun - self._free - self._burnt) * self._part - self._burnt
        while now - begun < owed:
            now = time.process_time()
        self._burnt += now - begun

    def _without_burning(self, times: int) -> int:
        begun = time.process_time()
        found = self._turn_around(times)
        self._free += time.process_time() - begun
        return found


if __name__ == "__main__":
    Burner(float(sys.argv[1])).install()
    module = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
