"""Back-pressure: limits on sends in flight, and the wait for them at close."""

import asyncio
from collections import OrderedDict
from contextlib import suppress


class BackPressure:
    """Limits on sends and bytes in flight; further sends wait in FIFO order.

    A single send may exceed the byte limit if no other is in flight.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()

    @property
    def in_flight(self) -> tuple[int, int]:
        """The number of sends and of bytes in flight."""
        return self._count, self._bytes

    def try_enter(self, size: int) -> bool:
        """Enter if the limits allow it and no other send waits."""
        if self._waiting or not self._has_room(size):
            return False
        self._count += 1
        self._bytes += size
        return True

    async def enter(self, size: int) -> None:
        """Wait until the limits allow the send; the caller sets the deadline."""
        if self.try_enter(size):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[admitted] = size
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.leave(size)  # admitted and cancelled at the same time
            else:
                self._waiting.pop(admitted, None)  # `leave` may have removed it already
                self._admit_waiting()
            raise

    def leave(self, size: int) -> None:
        self._count -= 1
        self._bytes -= size
        if self._waiting:
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting:
            admitted, size = next(iter(self._waiting.items()))
            if not admitted.cancelled():
                if not self._has_room(size):
                    return
                self._count += 1
                self._bytes += size
                admitted.set_result(None)
            del self._waiting[admitted]

    def _has_room(self, size: int) -> bool:
        if not self._count:
            return True
        return self._count < self._max_count and self._bytes + size <= self._max_bytes


class InFlightCalls:
    """Counts the tasks inside its `with` block."""

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
        """Wait until all tasks have left, at most `seconds`."""
        if not self._count:
            return
        self._last_left = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._last_left.wait()
