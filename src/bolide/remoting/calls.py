"""Calls to the peer of a connection: permits, pending responses, timeouts.

One timer watches all deadlines of a connection: most calls are answered long before theirs, so that
a timer for each would be made only to be cancelled.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from bolide.kernel import SendAnswer, encode_frame, read_answers
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.remoting.errors import CallTimedOut, ConnectionLost
from bolide.remoting.wire import Outbox, Wire


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold; the semaphores are shared by all connections of an endpoint."""

    max_frame_size: int = MAX_FRAME_SIZE
    max_requests: int = 10_000
    write_high_water: int = 1024 * 1024
    always_read: bool = False
    one_way_calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(65_535))
    calls: Permits = field(default_factory=lambda: Permits(65_535))


class Caller(Wire):
    """The asking half of a connection; who builds on it hands `_pending` the answers."""

    _pending: PendingCalls

    def __init__(self, outbox: Outbox, limits: ConnectionLimits) -> None:
        super().__init__(outbox, limits.write_high_water)
        self._limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pending = PendingCalls(self.peer)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._pending.fail_all()

    async def call(self, frame: Frame, within: float) -> Frame:
        """Send a request and wait for its response, `within` seconds, its turn to be sent included.

        Raises:
            CallTimedOut: no response came in time.
            ConnectionLost: the connection is or was closed.
        """
        deadline, permits = self._loop.time() + within, self._limits.calls
        try:
            if not permits.try_take():
                async with asyncio.timeout_at(deadline):
                    await permits.take()
            try:
                if self.is_blocked:
                    async with asyncio.timeout_at(deadline):
                        await self._wait_for_room()
                self._send(frame)
                return await self._pending.wait(frame.opaque, deadline)
            finally:
                permits.give()
        except TimeoutError as exc:
            raise CallTimedOut(self.peer, frame.code, within) from exc

    def number(self) -> int:
        """The number of the next plain request; they need not be sent in order."""
        return self._pending.number()

    def post(self, opaque: int, request: bytes, deadline: float) -> PlainAnswer | None:
        """Send a plain send by its number, if it can leave at once; `end` it in any case then.

        The answer may be a TimeoutError, or ConnectionLost. None if it must wait, as `call` does.
        """
        if self.is_blocked or not self._limits.calls.try_take():
            return None
        answer = self._pending.begin_plain(opaque, deadline)
        self._write(request)
        return answer

    def end(self, opaque: int) -> None:
        """A plain send is answered, or nobody waits for it any more."""
        self._pending.end(opaque)
        self._limits.calls.give()

    def throw(self, request: bytes) -> bool:
        """Send a plain one-way send, if it can leave at once."""
        if self.is_blocked:
            return False
        self._write(request)
        return True

    def take_answers(self, data: bytes, position: int) -> int:
        """Read the usual answers to plain sends; returns where the first byte of others lies."""
        return self._pending.take_answers(data, position)

    async def notify(self, frame: Frame) -> None:
        """Send a one-way request; returns once it is handed to the socket."""
        frame.flag |= FrameFlag.ONE_WAY
        while True:
            await self._wait_for_room()  # without a permit: a deaf peer must not keep one
            async with self._limits.one_way_calls:
                if not self.is_blocked:
                    self._send(frame)
                    return

    def _send(self, frame: Frame) -> None:
        if self.is_closed:
            raise ConnectionLost(self.peer)
        frame.opaque = self._pending.number()
        self._write(encode_frame(frame))
