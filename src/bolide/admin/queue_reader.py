"""Reads a part of a queue, oldest or newest messages first."""

from collections import deque
from dataclasses import dataclass, field

from bolide.admin.messages import Messages
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.message_queue import MessageQueue

_BATCH = 32


@dataclass(slots=True, eq=False)
class QueueReader:
    """Reads a span of a queue in one direction, a batch ahead; `begin` and `end` bound its rest."""

    messages: Messages
    queue: MessageQueue
    begin: int
    end: int
    oldest_first: bool
    buffer: deque[StoredMessage] = field(default_factory=deque)

    async def fill(self) -> None:
        """Have at least one message in the buffer, unless there is none left."""
        while not self.buffer and self.begin < self.end:
            first = self.begin if self.oldest_first else max(self.begin, self.end - _BATCH)
            last = min(first + _BATCH, self.end)
            found = await self._between(first, last)
            self.buffer.extend(found if self.oldest_first else reversed(found))
            if found:
                return
            self._skip_to(last if self.oldest_first else first)

    def take(self) -> StoredMessage:
        message = self.buffer.popleft()
        self._skip_to(message.queue_offset + self.oldest_first)
        return message

    def _skip_to(self, offset: int) -> None:
        if self.oldest_first:
            self.begin = offset
        else:
            self.end = offset

    async def _between(self, first: int, last: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        at = first
        while at < last:
            pulled = await self.messages.pull(self.queue, at, last - at)
            found += [each for each in pulled.messages if first <= each.queue_offset < last]
            if pulled.next_offset <= at:
                break
            at = pulled.next_offset
        return found
