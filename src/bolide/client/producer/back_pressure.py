"""Back-pressure: limits on sends in flight, and the wait for them at close."""

import asyncio
from collections import OrderedDict
from contextlib import suppress


class BackPressure:
    """Sends over the limits wait, first come, first served; one alone may be of any size."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()

    @property
    def under_way(self) -> tuple[int, int]:
        """Sends and bytes."""
        return self._count, self._bytes

    def try_enter(self, size: int) -> bool:
        """Enter if there is room and nobody waits."""
        if self._waiting or not self._has_room(size):
            return False
        self._count += 1
        self._bytes += size
        return True

    async def enter(self, size: int) -> None:
        """Wait for room; the caller sets the deadline."""
        if self.try_enter(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # its turn came in the same moment
            else:
                self._waiting.pop(turn, None)  # a send that left may have met it first
                self._let_in()
            raise

    def leave(self, size: int) -> None:
        self._count -= 1
        self._bytes -= size
        if self._waiting:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            turn, size = next(iter(self._waiting.items()))
            if not turn.cancelled():
                if not self._has_room(size):
                    return
                self._count += 1
                self._bytes += size
                turn.set_result(None)
            del self._waiting[turn]

    def _has_room(self, size: int) -> bool:
        if not self._count:
            return True
        return self._count < self._max_count and self._bytes + size <= self._max_bytes


class InFlightCalls:
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
