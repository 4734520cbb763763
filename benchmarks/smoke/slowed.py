"""Run one of our programs with additional CPU time, to check that the guard detects it.

    python -m benchmarks.smoke.slowed PERCENT MODULE ARGUMENT…

After received data is handled, at most once per millisecond, the process burns PERCENT of the CPU
time used since the first data, excluding the time of the reference.
"""

import runpy
import sys
import time

from benchmarks.smoke import reference
from bolide.remoting.connection import Connection

PAUSE = 0.001
"""Seconds between two burns; reading the clock for each message would cost too much."""


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
