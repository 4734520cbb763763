"""The event loop: uvloop where the platform has it."""

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_GC_THRESHOLDS = (50_000, 50, 1000)

_MALLOPT = {-1: 8 * 1024 * 1024, -2: 256 * 1024, -3: 2 * 1024 * 1024}
"""Of glibc: free memory at the top that is kept, how much more is taken, what is mapped apart."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on the fastest loop there is."""
    try:
        import uvloop  # noqa: PLC0415  optional, and slow to import where it is not used
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def on_hangup(act: Callable[[], None]) -> None:
    """Have `act` done in a thread whenever SIGHUP comes."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, act))


def collect_seldom() -> None:
    """Have the garbage collector come by less often: while a server starts, what is made stays."""
    gc.set_threshold(*_GC_THRESHOLDS)


def spare_collections() -> None:
    """As `collect_seldom`, and have the collector pass over all that is there now.

    Called when a server has started: what it is made of lives as long as it does.
    """
    gc.collect()
    gc.freeze()
    collect_seldom()


def keep_freed_memory() -> None:
    """Have the allocator keep what one response frees for the next.

    Else the system gets it back, a few pages at a time, and clears them each time it is asked.
    """
    import ctypes  # noqa: PLC0415  only servers need it

    with suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, size in _MALLOPT.items():
            mallopt(option, size)


async def until_stopped(serving: Coroutine[Any, Any, None]) -> None:
    """Run `serving` until the process is asked to stop, by SIGTERM or Ctrl-C.

    It is cancelled then, once, and tidies up after itself, even if it has only begun to start.
    """
    task = asyncio.ensure_future(serving)
    is_asked = False

    def stop() -> None:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            task.cancel()
            # Its tidying up has deadlines, and those of Python 3.11.2 fail in a cancelled task.
            loop.call_soon(task.uncancel)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not is_asked:
            raise
