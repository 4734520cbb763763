"""Runs the event loop (uvloop if installed); tunes garbage collector and allocator."""

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_GC_THRESHOLDS = (50_000, 50, 1000)

_ARENA_MAX = -8
_MALLOPT = {-1: 8 * 1024 * 1024, -2: 256 * 1024, -3: 2 * 1024 * 1024}
"""glibc's M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD, in bytes."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on the fastest loop available."""
    try:
        import uvloop  # noqa: PLC0415  optional, and slow to import
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def on_hangup(action: Callable[[], None]) -> None:
    """Run `action` in a thread on every SIGHUP."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, action))


def raise_gc_thresholds() -> None:
    """Collect garbage less often: objects made while a server starts are long-lived."""
    gc.set_threshold(*_GC_THRESHOLDS)


def freeze_gc() -> None:
    """As `raise_gc_thresholds`, and exclude all current objects from collection.

    Called when a server has started: its objects live as long as it does.
    """
    gc.collect()
    gc.freeze()
    raise_gc_thresholds()


def retain_freed_memory() -> None:
    """Make the allocator retain memory that one response frees for the next.

    Otherwise it returns a few pages at a time to the system, which clears them on each reuse.
    """
    _set_allocator(_MALLOPT)


def share_freed_memory() -> None:
    """Make threads use memory that others freed; call it before the first thread.

    Otherwise each thread of a pool keeps a heap of its own, which only ever grows.
    """
    _set_allocator({_ARENA_MAX: 1})


def _set_allocator(options: Mapping[int, int]) -> None:
    import ctypes  # noqa: PLC0415  only servers need it

    with suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options.items():
            mallopt(option, value)


async def until_stopped(
    serving: Coroutine[Any, Any, None], on_stop: Callable[[], None] | None = None
) -> None:
    """Run `serving` until SIGTERM or Ctrl-C.

    A signal cancels `serving` once, and its cleanup runs to the end, even during its start.
    `on_stop` is called before that.
    """
    task = asyncio.ensure_future(serving)
    is_stopping = False

    def stop() -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            if on_stop is not None:
                on_stop()
            task.cancel()
            # The cleanup uses asyncio.timeout, which fails in a cancelled task of Python 3.11.2.
            loop.call_soon(task.uncancel)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not is_stopping:
            raise
