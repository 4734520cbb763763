"""One connection: bytes in, frames out, calls both ways.

Both peers may ask: responses go to the pending calls, requests to the dispatcher. What is written
leaves through the outbox, at the end of the loop's turn. Flow control works in both directions:
while the peer does not read its replies a server does not read its requests, nor handle those that
it has read, and a call waits for room. A client always reads: if both peers stopped, neither could
ever go on. A peer that sends many requests at once gets a short turn, then it is the others' turn.
"""

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from bolide.protocol.codes import ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import MAX_FRAME_SIZE, FrameDecoder, encode_frame, frame_size
from bolide.remoting.address import format_address
from bolide.remoting.dispatch import Dispatcher, Later
from bolide.remoting.errors import CallTimedOut, ConnectionLost
from bolide.remoting.held import HeldBytes
from bolide.remoting.outbox import Outbox
from bolide.remoting.pending import PendingCalls

log = logging.getLogger(__name__)

_TURN = 0.002
"""Seconds that one connection may keep the event loop busy before others are looked after."""

_MOST_UNDER_WAY = 32 * 1024 * 1024
"""Bytes of requests under way at which a connection is not read from."""

_LEAST_WEIGHT = 1024
"""Bytes that a request under way takes, its body and fields aside."""

LINGER = 0.5
"""Seconds that a peer gets to take the last replies and hang up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold; the semaphores are shared by all connections of an endpoint."""

    max_frame_size: int = MAX_FRAME_SIZE
    max_requests: int = 10_000
    write_high_water: int = 1024 * 1024
    always_read: bool = False
    one_way_calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(65_535))
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(65_535))


class FastPath(Protocol):
    """Serves plain requests straight from the bytes received, ahead of frames and handlers."""

    def serve(self, data: bytes, position: int, connection: "Connection") -> tuple[int, bytes]:
        """Serve the requests that lie in `data` from `position` on, as far as it knows them.

        Returns:
            Where it stopped: at the end, at a request that it does not know or at a part of one;
            and the responses, joined.
        """
        ...


class Connection(asyncio.Protocol):
    """A connection of a server or a client."""

    def __init__(  # noqa: PLR0913  what its server or client shares with it
        self,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        *,
        outbox: Outbox | None = None,
        held_by_all: HeldBytes | None = None,
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
        fast: FastPath | None = None,
    ) -> None:
        self.peer = "?"
        self.last_active = 0.0
        """Loop time of the last whole frame in either direction; single bytes do not count."""
        self._dispatcher = dispatcher
        self._limits = limits
        self._outbox = outbox or Outbox()
        self._held_by_all = held_by_all or HeldBytes(sys.maxsize, self.abort)
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._held = 0
        self._under_way = 0
        self._counts = True  # what it holds is part of what all hold
        self._wrote_eof = False
        self._on_open = on_open
        self._on_close = on_close
        self._decoder = FrameDecoder(limits.max_frame_size)
        self._backlog: deque[Frame] = deque()  # received, to be looked at when there is room
        self._is_blocked = False  # the peer does not read: the backlog waits
        self._next_turn: asyncio.Handle | None = None
        self._is_finishing = False
        self._end: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._owed: dict[Later, int] = {}
        """What each weighs."""
        self._nothing_owed = asyncio.Event()
        self._nothing_owed.set()
        self._fast = fast
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    # Calls to the peer

    async def call(self, frame: Frame, within: float) -> Frame:
        """Send a request and wait for its response, `within` seconds, its turn to be sent included.

        Raises:
            CallTimedOut: no response came in time.
            ConnectionLost: the connection is or was closed.
        """
        try:
            async with asyncio.timeout(within), self._limits.calls:
                frame.opaque = self._pending.number()
                await self._send(frame)
                return await self._pending.wait(frame.opaque)
        except TimeoutError as exc:
            raise CallTimedOut(self.peer, frame.code, within) from exc

    async def notify(self, frame: Frame) -> None:
        """Send a one-way request; returns once it is handed to the socket."""
        async with self._limits.one_way_calls:
            frame.opaque = self._pending.number()
            frame.flag |= FrameFlag.ONE_WAY
            await self._send(frame)

    async def _send(self, frame: Frame) -> None:
        while not self._writable.is_set():  # others that waited may have filled it up again
            await self._writable.wait()
        if self.is_closed:
            raise ConnectionLost(self.peer)
        self._write(encode_frame(frame))

    # State

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set() or self._wrote_eof or self._transport.is_closing()

    @property
    def is_gone(self) -> bool:
        """Closed, and nothing written is left to be sent."""
        return self._closed.is_set()

    @property
    def is_idle(self) -> bool:
        """No request and no call of this connection is under way."""
        return not (self._tasks or self._owed or self._backlog or self._pending)

    @property
    def max_frame_size(self) -> int:
        return self._limits.max_frame_size

    @property
    def held(self) -> int:
        """Bytes of a frame that is not whole yet and of requests under way, while they count."""
        return self._held + self._under_way if self._counts else 0

    @property
    def unsent(self) -> int:
        """Bytes that are written and have not left."""
        return self._unsent_size + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close after what is written has left."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what is not sent is lost, and what is held no longer counts."""
        self._backlog.clear()
        self._count(-self.held)
        self._counts = False
        self._transport.abort()

    async def finish(self) -> None:
        """Answer what is under way, then close; returns when the connection is gone.

        What still comes in is read and dropped: closing a socket with unread bytes would reset the
        connection, and the peer might lose the replies it has not read yet.
        """
        self._is_finishing = True
        self._backlog.clear()
        while self._tasks or self._owed:
            await (asyncio.wait(self._tasks) if self._tasks else self._nothing_owed.wait())
        self._flush()
        if not self.is_closed and self._transport.can_write_eof():
            with suppress(OSError, TimeoutError):  # it may be gone without our knowing yet
                self._transport.write_eof()
                self._wrote_eof = True
                async with asyncio.timeout(LINGER):
                    await self._closed.wait()
        self.close()
        await self._closed.wait()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water)
        self._loop = asyncio.get_running_loop()
        self.peer = format_address(transport.get_extra_info("peername"))
        self.last_active = self._loop.time()
        self._pending = PendingCalls(self.peer)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self._fast is not None:
            while data and self._decoder.missing:  # first the frame that was begun, by itself
                rest = self._decoder.missing
                self._take(data[:rest])
                data = data[rest:]
            data = self._serve_fast(self._fast, data) if data else data
        if data:
            self._take(data)

    def _take(self, data: bytes) -> None:
        frames = self._decoder.feed(data)
        if self._decoder.buffered != self._held:
            self._hold(self._decoder.buffered)
        if frames:
            self.last_active = self._loop.time()
            self._backlog.extend(frames)
            self._work_off()
        if self._decoder.error is not None:
            self._close_if_answered(self._decoder.error)

    def _serve_fast(self, fast: FastPath, data: bytes) -> bytes:
        """Have plain requests served ahead; the others in between take the ordinary way, in order.

        Returns:
            What is left for the ordinary way: part of a frame, or all once that way is blocked.
        """
        at = 0
        while not (self._backlog or self._is_full or self._is_finishing or self._decoder.error):
            if self._is_overloaded:
                break
            start, (at, replies) = at, fast.serve(data, at, self)
            if at > start:
                self.last_active = self._loop.time()
            if replies:
                self._put(replies)
            end = at + frame_size(data, at)
            if not at < end <= len(data):
                break
            self._take(data[at:end])
            at = end
        return data[at:] if at else data

    def eof_received(self) -> None:
        self._flush()  # the transport closes itself now, before the outbox gets to it

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._writable.set()
        self._backlog.clear()
        self._hold(0)
        self._pending.fail_all()
        for task in self._tasks:
            task.cancel()
        owed, self._owed = self._owed, {}
        self._nothing_owed.set()
        for later, size in owed.items():
            later.lose()
            self._unload(size)
        if self._on_close is not None:
            self._on_close(self)

    def pause_writing(self) -> None:
        self._writable.clear()
        if not self._limits.always_read:
            self._is_blocked = True
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable.set()
        self._is_blocked = False
        self._go_on()

    def _hold(self, size: int) -> None:
        change, self._held = size - self._held, size
        self._count(change)

    def _count(self, change: int) -> None:
        if self._counts:
            self._held_by_all.change(change)

    # Requests and responses of the peer

    def _work_off(self) -> None:
        """Take the frames of the backlog in order, for one turn, while their replies find room."""
        backlog = self._backlog
        end = time.monotonic() + _TURN
        while backlog and not self._is_full:
            reply = self._receive(backlog.popleft())
            if reply is not None:
                self._put(reply)
            if backlog and time.monotonic() > end:
                self._wait_for_next_turn()
                break

    @property
    def _is_full(self) -> bool:
        """Whether further requests must wait: the peer does not read, or asked for a lot."""
        if self._is_blocked:
            return True
        # A client that waits for an answer of its server must go on reading, come what may.
        return self._under_way >= _MOST_UNDER_WAY and not self._limits.always_read

    def _wait_for_next_turn(self) -> None:
        if self._next_turn is None and not self.is_closed:
            self._transport.pause_reading()
            self._next_turn = self._loop.call_soon(self._take_next_turn)

    def _take_next_turn(self) -> None:
        self._next_turn = None
        self._go_on()

    def _go_on(self) -> None:
        """Work off what is left, then read on."""
        if self._transport.is_closing():
            return
        self._work_off()  # this may come to a halt again
        if self._decoder.error is not None:
            self._close_if_answered(self._decoder.error)
        elif not (self._backlog or self._is_full):
            self._transport.resume_reading()

    def _close_if_answered(self, error: ProtocolError) -> None:
        """The stream is lost; what came before in good order is answered first."""
        if self._backlog or self._is_finishing or self._transport.is_closing():
            return
        log.warning("closing the connection of %s: %s", self.peer, error)
        if self._tasks or self._owed:
            self._end = self._loop.create_task(self.finish())
        else:
            self.close()

    def _receive(self, frame: Frame) -> bytes | None:
        """Take one frame; returns the reply if it is ready at once."""
        if frame.flag & FrameFlag.RESPONSE:
            if not self._pending.resolve(frame):
                log.debug("a late response %s from %s", frame.opaque, self.peer)
            return None
        if self._is_finishing:
            return None
        if self._is_overloaded:
            return self._overloaded(frame)
        outcome = self._dispatcher.dispatch(frame, self)
        if outcome is None or isinstance(outcome, bytes):
            return outcome
        self._begin(outcome, _weight(frame))
        return None

    @property
    def _is_overloaded(self) -> bool:
        return len(self._tasks) + len(self._owed) >= self._limits.max_requests

    def _begin(self, outcome: Coroutine[Any, Any, bytes | None], size: int) -> None:
        """Serve a request that takes a while; too many bytes of such stop the reading."""

        def ended(task: asyncio.Task[None]) -> None:
            outcome.close()  # a task that was cancelled before it ran never came to it
            self._tasks.discard(task)
            self._unload(size)

        task = self._loop.create_task(self._reply_later(outcome))
        self._tasks.add(task)
        task.add_done_callback(ended)
        self._load(size)

    def _load(self, size: int) -> None:
        self._under_way += size
        self._count(size)
        if self._is_full and not self.is_closed:
            self._transport.pause_reading()

    def _unload(self, size: int) -> None:
        was_full = self._is_full
        self._under_way -= size
        self._count(-size)
        if was_full and not self._is_full:
            self._wait_for_next_turn()

    async def _reply_later(self, outcome: Awaitable[bytes | None]) -> None:
        self._send_later(await outcome)

    def owe(self, later: Later, weight: int) -> None:
        """Keep in mind that a request will be answered, and how many bytes wait with it."""
        self._owed[later] = size = _LEAST_WEIGHT + weight
        self._nothing_owed.clear()
        self._load(size)

    def settle(self, later: Later, reply: bytes | None) -> None:
        """Send what was owed; nothing for a one-way request, or if nobody is there any more."""
        size = self._owed.pop(later, None)
        if size is None:
            return
        if not self._owed:
            self._nothing_owed.set()
        self._unload(size)
        self._send_later(reply)

    def _send_later(self, reply: bytes | None) -> None:
        """Send the bytes of a response that was not ready at once."""
        if reply is not None and not self.is_closed:
            self._write(reply)

    def _overloaded(self, frame: Frame) -> bytes | None:
        if frame.is_one_way:
            return None
        return encode_frame(
            Frame(
                code=ResponseCode.SYSTEM_BUSY,
                flag=FrameFlag.RESPONSE,
                opaque=frame.opaque,
                encoding=frame.encoding,
                remark=f"[OVERLOAD]{len(self._tasks) + len(self._owed)} requests of this connection"
                " are under way",
            )
        )

    # Writing

    def _write(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        self._put(data)

    def _put(self, data: bytes) -> None:
        """Have it sent when the loop's turn is over, or now if it is a lot."""
        if not self._unsent:
            self._outbox.add(self._flush)
        self._unsent.append(data)
        self._unsent_size += len(data)
        if self._unsent_size > self._limits.write_high_water:
            self._flush()

    def _flush(self) -> None:
        unsent, self._unsent, self._unsent_size = self._unsent, [], 0
        if unsent and not self.is_closed:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))


def _weight(frame: Frame) -> int:
    """About how many bytes a request takes while it is under way."""
    fields = frame.fields or {}
    return (
        _LEAST_WEIGHT + len(frame.body) + sum(len(key) + len(text) for key, text in fields.items())
    )


async def finish_all(connections: Collection[Connection], within: float) -> int:
    """Let connections finish; what has not done so `within` seconds is aborted and counted."""
    try:
        async with asyncio.timeout(within):
            await asyncio.gather(*(connection.finish() for connection in connections))
    except TimeoutError:
        left = [connection for connection in connections if not connection.is_gone]
        for connection in left:
            connection.abort()
        await asyncio.gather(*(connection.wait_closed() for connection in left))
        return len(left)
    return 0
