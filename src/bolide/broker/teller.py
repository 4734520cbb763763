"""What tells one NameServer of the broker, so that one that is mute delays no other."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bolide.protocol.headers.namesrv import RegisterBrokerHeader


@dataclass(frozen=True, slots=True)
class Message:
    """A registration; `number` is that of the last change it knows of."""

    number: int
    header: RegisterBrokerHeader
    body: bytes
    force: bool


class Teller:
    """Tells one NameServer: one registration at a time, and then the newest that has come up."""

    def __init__(
        self, tell: Callable[[Message], Awaitable[bool]], ended: Callable[[], None]
    ) -> None:
        self.tried = -1
        """The last change that it was told of, whether it took that or not."""
        self.knows = -1
        """The last change that it has taken."""
        self.answers = False
        """Whether it took the last registration, and in good time."""
        self._tell = tell
        self._ended = ended
        self._next: Message | None = None
        self._must_force = False
        self._task: asyncio.Task[None] | None = None

    def tell(self, message: Message) -> None:
        waiting = self._next
        self._next = replace(message, force=True) if waiting and waiting.force else message
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell_waiting(), name="broker-registration-call")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tell_waiting(self) -> None:
        while (message := self._next) is not None:
            self._next = None
            # What must be taken and was not: the version of the topics may not tell of it.
            if self._must_force:
                message = replace(message, force=True)
            self.answers = await self._tell(message)
            self._must_force = message.force and not self.answers
            self.tried = message.number
            if self.answers:
                self.knows = message.number
            self._ended()
