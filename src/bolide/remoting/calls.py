"""Calls to the peer of a connection: permits, pending responses, timeouts.

One timer covers all deadlines of a connection: most calls are answered long before their deadline,
so a timer for each would be created only to be cancelled.
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
    """A semaphore with a non-blocking `try_acquire`. Waiters are served in FIFO order."""

    __slots__ = ("_left", "_waiting")

    def __init__(self, count: int) -> None:
        self._left = count
        self._waiting: deque[asyncio.Future[None]] = deque()  # empty while a permit is free

    def try_acquire(self) -> bool:
        """Acquire a permit if one is free."""
        if not self._left:
            return False
        self._left -= 1
        return True

    async def acquire(self) -> None:
        """Wait for a permit; the caller sets the deadline."""
        if self.try_acquire():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the permit was granted at the same moment
            raise

    def release(self) -> None:
        """Release a permit; the first waiter gets it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._left += 1


_MAX_OPAQUE = 0x7FFF_FFFF
_TICK = 0.001
"""Least seconds between two checks of the deadlines."""

Answer = asyncio.Future[Frame]
PlainAnswer = asyncio.Future[Frame | SendAnswer]
"""Response to a plain send: decoded by the kernel, or a frame if it is an unusual one."""


_NO_CALL = (None, 0.0)


class PendingCalls:
    """The pending calls of one connection. Each ends: answered, timed out, cancelled or lost."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._next = 0
        # Response future and deadline; plain tuples, because every call creates one.
        self._calls: dict[int, tuple[Answer, float]] = {}
        self._plain: dict[int, tuple[PlainAnswer, float]] = {}
        self._loop = asyncio.get_running_loop()
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._calls) + len(self._plain)

    @property
    def is_none_answered(self) -> bool:
        """Whether every request so far is still pending."""
        return len(self) == self._next

    def number(self) -> int:
        """Return an opaque number that no pending call uses."""
        while True:
            self._next = (self._next + 1) & _MAX_OPAQUE
            if self._next not in self._calls and self._next not in self._plain:
                return self._next

    async def wait(self, opaque: int, deadline: float = math.inf) -> Frame:
        """Wait for the response numbered `opaque` until a deadline in loop time.

        Raises:
            TimeoutError: no response came.
            ConnectionLost: the connection was closed.
        """
        answer: Answer = self._loop.create_future()
        self._calls[opaque] = (answer, deadline)
        if deadline < self._due:
            self._arm_timer(deadline)
        try:
            return await answer
        finally:
            del self._calls[opaque]

    def begin_plain(self, opaque: int, deadline: float) -> PlainAnswer:
        """As `wait`, for a plain send. A caller that stops waiting early must call `end`."""
        answer: PlainAnswer = self._loop.create_future()
        self._plain[opaque] = (answer, deadline)
        if deadline < self._due:
            self._arm_timer(deadline)
        return answer

    def end(self, opaque: int) -> None:
        """Drop a plain send whose caller does not wait any more."""
        self._plain.pop(opaque, None)

    def resolve(self, response: Frame) -> bool:
        """Complete the call of a response; returns False if no call is pending for it."""
        opaque = response.opaque
        answer, _ = self._calls.get(opaque) or self._plain.get(opaque) or _NO_CALL
        if answer is None or answer.done():
            return False
        answer.set_result(response)
        return True

    def resolve_answers(self, data: bytes, position: int) -> int:
        """Complete plain sends from received bytes; returns the position behind their responses."""
        if not self._plain:
            return position
        end, answers = read_answers(data, position, self._plain)
        for response in answers:
            answer, _ = self._plain.pop(response[0], _NO_CALL)
            if answer is not None and not answer.done():
                answer.set_result(response)
        return end

    def fail_all(self, reason: str = "") -> None:
        """Fail all pending calls: the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        for answer, _ in self._all():
            if not answer.done():
                answer.set_exception(ConnectionLost(self._peer, reason))

    def _arm_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = deadline
        self._timer = self._loop.call_later(
            max(deadline - self._loop.time(), _TICK), self._expire_calls
        )

    def _expire_calls(self) -> None:
        now, self._due = self._loop.time(), math.inf
        soonest = math.inf
        for answer, deadline in self._all():
            if deadline > now:
                soonest = min(soonest, deadline)
            elif not answer.done():
                answer.set_exception(TimeoutError())
        if soonest < math.inf:
            self._arm_timer(soonest)

    def _all(self) -> Iterator[tuple[asyncio.Future[Any], float]]:
        return chain(self._calls.values(), self._plain.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection; all connections of an endpoint share the semaphores."""

    max_frame_size: int = MAX_FRAME_SIZE
    max_requests: int = 10_000
    write_high_water: int = 1024 * 1024
    always_read: bool = False
    one_way_calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(65_535))
    calls: Permits = field(default_factory=lambda: Permits(65_535))


class Caller(Wire):
    """The calling half of a connection; a subclass passes responses to `_pending`."""

    _pending: PendingCalls

    def __init__(self, outbox: Outbox, limits: ConnectionLimits) -> None:
        super().__init__(outbox, limits.write_high_water)
        self._limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pending = PendingCalls(self.peer)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._pending.fail_all(self._reason_of_loss(exc))

    def _reason_of_loss(self, exc: Exception | None) -> str:
        """Why the peer closed the connection, if that is known."""
        return ""

    async def call(self, frame: Frame, within: float) -> Frame:
        """Send a request and wait for its response; `within` covers the wait for a permit too.

        Raises:
            CallTimedOut: no response came in time.
            ConnectionLost: the connection is closed.
        """
        deadline, permits = self._loop.time() + within, self._limits.calls
        try:
            if not permits.try_acquire():
                async with asyncio.timeout_at(deadline):
                    await permits.acquire()
            try:
                if self.is_blocked:
                    async with asyncio.timeout_at(deadline):
                        await self._wait_for_room()
                self._send(frame)
                return await self._pending.wait(frame.opaque, deadline)
            finally:
                permits.release()
        except TimeoutError as exc:
            raise CallTimedOut(self.peer, frame.code, within) from exc

    def number(self) -> int:
        """Return the opaque number of the next plain request; numbers may be sent in any order."""
        return self._pending.number()

    def post(self, opaque: int, request: bytes, deadline: float) -> PlainAnswer | None:
        """Send a plain send if that needs no wait; the caller must call `end` afterwards.

        The future may fail with TimeoutError or ConnectionLost. Returns None if the send must
        wait, as in `call`.
        """
        if self.is_blocked or not self._limits.calls.try_acquire():
            return None
        answer = self._pending.begin_plain(opaque, deadline)
        self._write(request)
        return answer

    def end(self, opaque: int) -> None:
        """Finish a plain send that is answered or whose caller does not wait any more."""
        self._pending.end(opaque)
        self._limits.calls.release()

    def send_one_way(self, request: bytes) -> bool:
        """Send a plain one-way send if that needs no wait; returns whether it was sent."""
        if self.is_blocked:
            return False
        self._write(request)
        return True

    def resolve_answers(self, data: bytes, position: int) -> int:
        """Complete plain sends from received bytes; returns where other frames begin."""
        return self._pending.resolve_answers(data, position)

    async def notify(self, frame: Frame) -> None:
        """Send a one-way request; returns once it is written to the transport."""
        frame.flag |= FrameFlag.ONE_WAY
        while True:
            await (
                self._wait_for_room()
            )  # without a permit: a peer that does not read must not occupy one
            async with self._limits.one_way_calls:
                if not self.is_blocked:
                    self._send(frame)
                    return

    def _send(self, frame: Frame) -> None:
        if self.is_closed:
            raise ConnectionLost(self.peer, self._reason_of_loss(None))
        frame.opaque = self._pending.number()
        self._write(encode_frame(frame))
