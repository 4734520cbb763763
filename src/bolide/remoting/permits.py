"""Permits: so many calls may be under way at a time, and the others wait for their turn."""

import asyncio
from collections import deque


class Permits:
    """As a semaphore, but one that is free is taken without an await."""

    __slots__ = ("_left", "_waiting")

    def __init__(self, count: int) -> None:
        self._left = count
        self._waiting: deque[asyncio.Future[None]] = deque()  # empty while one is left

    def try_take(self) -> bool:
        """Take one if there is one."""
        if not self._left:
            return False
        self._left -= 1
        return True

    async def take(self) -> None:
        """Wait for one; the caller sets the deadline."""
        if self.try_take():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()  # its turn came in the same moment
            raise

    def give(self) -> None:
        """Give one back; the first who waits gets it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._left += 1
