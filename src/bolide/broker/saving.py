"""Threads that write the tables: their own, for the shared ones may all be reading a cold log."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(3, "bolide-tables")
"""One each for topics, groups and offsets: who waits for one file does not hold up another."""


async def on_saving_thread(work: Callable[[], T]) -> T:
    """Have `work`, which blocks, done by one of these threads."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
