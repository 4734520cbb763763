"""How far long work is, on standard error."""

import sys
import time

_FIRST = 2.0
_INTERVAL_TERMINAL = 0.2
_INTERVAL_FILE = 10.0
_MEGABYTE = 1_000_000


class ProgressLine:
    """One line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + _FIRST
        self._terminal = sys.stderr.isatty()
        self._open = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_INTERVAL_TERMINAL if self._terminal else _INTERVAL_FILE)
        rate = done / _MEGABYTE / (now - self._began)
        text = f"{done / _MEGABYTE:,.0f} of {total / _MEGABYTE:,.0f} MB, {rate:,.0f} MB/s"
        self._open = self._terminal
        start, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._open:
            print(file=sys.stderr)
