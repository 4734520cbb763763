"""Calls that wait for their response, by the number each request carries (opaque).

One timer watches all deadlines of a connection: most calls are answered long before theirs, so that
a timer for each would be made only to be cancelled.
"""

import asyncio
import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

from bolide.kernel import SendAnswer, read_answers
from bolide.protocol.frame import Frame
from bolide.remoting.errors import ConnectionLost

_MAX_OPAQUE = 0x7FFF_FFFF
_TICK = 0.001
"""Seconds between two looks at the deadlines, at least."""

Answer = asyncio.Future[Frame]
PlainAnswer = asyncio.Future[Frame | SendAnswer]
"""Of a plain send: the answer as the kernel reads it, or the frame if it is an unusual one."""


_NOBODY = (None, 0.0)


class PendingCalls:
    """The calls of one connection; every one ends: answered, late, cancelled or lost."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._next = 0
        # Plain tuples of the answer to be and its deadline: there is one for every call.
        self._calls: dict[int, tuple[Answer, float]] = {}
        self._plain: dict[int, tuple[PlainAnswer, float]] = {}
        self._loop = asyncio.get_running_loop()
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._calls) + len(self._plain)

    def number(self) -> int:
        """A number no waiting call has."""
        while True:
            self._next = (self._next + 1) & _MAX_OPAQUE
            if self._next not in self._calls and self._next not in self._plain:
                return self._next

    async def wait(self, opaque: int, deadline: float = math.inf) -> Frame:
        """Wait for the response numbered `opaque`, until the loop's clock says so.

        Raises:
            TimeoutError: none came.
            ConnectionLost: the connection is gone.
        """
        answer: Answer = self._loop.create_future()
        self._calls[opaque] = (answer, deadline)
        if deadline < self._due:
            self._look_at(deadline)
        try:
            return await answer
        finally:
            del self._calls[opaque]

    def begin_plain(self, opaque: int, deadline: float) -> PlainAnswer:
        """As `wait`, for a plain send; who gives up before the answer is there says so by `end`."""
        answer: PlainAnswer = self._loop.create_future()
        self._plain[opaque] = (answer, deadline)
        if deadline < self._due:
            self._look_at(deadline)
        return answer

    def end(self, opaque: int) -> None:
        """Nobody waits for the answer to this plain send any more."""
        self._plain.pop(opaque, None)

    def resolve(self, response: Frame) -> bool:
        """Hand a response to its call; False if nobody waits for it any more."""
        opaque = response.opaque
        answer, _ = self._calls.get(opaque) or self._plain.get(opaque) or _NOBODY
        if answer is None or answer.done():
            return False
        answer.set_result(response)
        return True

    def take_answers(self, data: bytes, position: int) -> int:
        """Hand over the usual answers to plain sends that lie there; returns where they end."""
        if not self._plain:
            return position
        end, answers = read_answers(data, position, self._plain)
        for said in answers:
            answer, _ = self._plain.pop(said[0], _NOBODY)
            if answer is not None and not answer.done():
                answer.set_result(said)
        return end

    def fail_all(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        for answer, _ in self._all():
            if not answer.done():
                answer.set_exception(ConnectionLost(self._peer))

    def _look_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = deadline
        self._timer = self._loop.call_later(
            max(deadline - self._loop.time(), _TICK), self._end_late_ones
        )

    def _end_late_ones(self) -> None:
        now, self._due = self._loop.time(), math.inf
        soonest = math.inf
        for answer, deadline in self._all():
            if deadline > now:
                soonest = min(soonest, deadline)
            elif not answer.done():
                answer.set_exception(TimeoutError())
        if soonest < math.inf:
            self._look_at(soonest)

    def _all(self) -> Iterator[tuple[asyncio.Future[Any], float]]:
        return chain(self._calls.values(), self._plain.values())
