"""Rows at a steady pace. It is kept where rows are sent: what Spark has between two tasks holds
them back until its buffers are full."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_SLICES_A_SECOND = 10


def paced(
    batches: Iterable[Any],
    rate: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Any]:
    """Record batches cut small, each let through once the rows before it have had their time.

    Args:
        batches: what is to be sent.
        rate: rows a second, at most; None: all as they come.
        clock: seconds that never go back.
        sleep: waits so many of them.
    """
    if rate is None:
        yield from batches
        return
    began, rows = clock(), 0
    for part in _slices(batches, max(1, int(rate / _SLICES_A_SECOND))):
        early = began + rows / rate - clock()
        if early > 0:
            sleep(early)
        yield part
        rows += part.num_rows


def _slices(batches: Iterable[Any], size: int) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)
