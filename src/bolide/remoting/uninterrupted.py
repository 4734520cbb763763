"""Work that must not stop half-way because the client who asked for it hung up."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end; if the caller is cancelled meanwhile, it is so only then.

    A thread cannot be cancelled: without this, the lock that guards a file would be given up while
    the file is still being written.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody is left to be told
        raise
