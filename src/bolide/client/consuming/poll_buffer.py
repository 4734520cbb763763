"""Messages that were pulled and wait to be polled."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bolide.client.consuming.held_queue import HeldQueue
from bolide.model.message import StoredMessage


class Polled(NamedTuple):
    """What one poll gives: messages of one queue."""

    held: HeldQueue
    messages: Sequence[StoredMessage]


class PollBuffer:
    """Groups of messages in the order in which they came; those of dropped queues vanish."""

    def __init__(self, made_room: Callable[[], object] = lambda: None) -> None:
        """`made_room` is called whenever there are fewer messages than before."""
        self._made_room = made_room
        self._groups: deque[Polled] = deque()
        self._filled = asyncio.Event()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        self._groups.append(Polled(held, messages))
        self._count += len(messages)
        self._filled.set()

    async def take(self, within: float) -> Polled | None:
        """Wait for a group at most so many seconds; None if there was none."""
        try:
            async with asyncio.timeout(within):
                while (found := self._next()) is None:
                    self._filled.clear()
                    await self._filled.wait()
        except TimeoutError:
            return None
        return found

    def purge(self) -> None:
        """Let go of what belongs to queues that were dropped."""
        self._groups = deque(group for group in self._groups if not group.held.is_dropped)
        self._count = sum(len(group.messages) for group in self._groups)
        self._made_room()

    def _next(self) -> Polled | None:
        while self._groups:
            group = self._groups.popleft()
            self._count -= len(group.messages)
            self._made_room()
            if not group.held.is_dropped:
                return group
        return None
