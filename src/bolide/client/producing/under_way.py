"""Calls that are not done yet: who closes waits for them."""

import asyncio
from contextlib import suppress


class UnderWay:
    """Counts those inside its `with` block."""

    def __init__(self) -> None:
        self._count = 0
        self._last_left: asyncio.Event | None = None

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count and self._last_left is not None:
            self._last_left.set()

    async def finish(self, seconds: float) -> None:
        """Wait until all have left, no longer than that."""
        if not self._count:
            return
        self._last_left = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._last_left.wait()
