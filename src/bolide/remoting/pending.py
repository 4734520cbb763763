"""Calls that wait for their response, by the number each request carries (opaque)."""

import asyncio

from bolide.protocol.frame import Frame
from bolide.remoting.errors import ConnectionLost

_MAX_OPAQUE = 0x7FFF_FFFF


class PendingCalls:
    """The calls of one connection; every one ends: answered, cancelled or lost."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._next = 0
        self._calls: dict[int, asyncio.Future[Frame]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def number(self) -> int:
        """A number no waiting call has."""
        while True:
            self._next = (self._next + 1) & _MAX_OPAQUE
            if self._next not in self._calls:
                return self._next

    async def wait(self, opaque: int) -> Frame:
        """Wait for the response numbered `opaque`; the caller sets the deadline."""
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._calls[opaque] = answer
        try:
            return await answer
        finally:
            del self._calls[opaque]

    def resolve(self, response: Frame) -> bool:
        """Hand a response to its call; False if nobody waits for it any more."""
        answer = self._calls.get(response.opaque)
        if answer is None or answer.done():
            return False
        answer.set_result(response)
        return True

    def fail_all(self) -> None:
        """The connection is gone."""
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(self._peer))
