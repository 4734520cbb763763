"""Calls to the peer of a connection."""

import asyncio
from dataclasses import dataclass, field

from bolide.kernel import encode_frame
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.remoting.errors import CallTimedOut, ConnectionLost
from bolide.remoting.outbox import Outbox
from bolide.remoting.pending import PendingCalls, PlainAnswer
from bolide.remoting.permits import Permits
from bolide.remoting.wire import Wire


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
