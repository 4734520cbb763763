"""One connection of a client or server: frames from received bytes, requests in both directions.

Either peer may send requests. Responses resolve the pending calls (`calls`), requests go to the
dispatcher, and `wire` writes the outgoing bytes.

Back-pressure works in both directions. While the peer does not read its replies, a server neither
reads nor serves its requests, and calls to it wait until the transport is writable. A client never
stops reading: if both peers stopped, neither could resume. A connection that receives many requests
at once is served in turns of `_TURN` seconds, so that other connections are served in between;
requests left over stay in the buffer as raw bytes.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from bolide.kernel import decode_frame, encode_frame
from bolide.protocol.codes import ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import FrameDecoder, frame_size
from bolide.remoting.calls import Caller, ConnectionLimits
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.wire import MemoryBudget, Outbox

log = logging.getLogger(__name__)

_TURN = 0.002
"""Seconds for which one connection may occupy the event loop before it yields to others."""

_MAX_IN_FLIGHT = 32 * 1024 * 1024
"""Bytes of requests in flight at which reading from a connection pauses."""

_REQUEST_OVERHEAD = 1024
"""Bytes charged for a request in flight in addition to its body and fields."""

LINGER = 0.5
"""Seconds that a peer has to read the last replies and close its side."""


class PendingReply(Protocol):
    """A reply to be sent later: a `DeferredReply`, or a lighter equivalent."""

    def connection_lost(self) -> None:
        """Called when the connection is lost before the reply was sent."""
        ...

    def peer_reads_again(self) -> None:
        """Called when the peer, after back-pressure, reads again."""
        ...


class FastPath(Protocol):
    """Serves common requests directly from received bytes, without frames and handlers."""

    def serve(self, data: bytes, position: int, connection: "Connection", until: float) -> int:
        """Serve requests in `data` from `position` on, up to the first one it does not support.

        Responses go to `Connection.put`.

        Args:
            until: deadline by `time.monotonic`, checked after each request; at least one request
                is served.

        Returns:
            The position of the first byte not served: the end of `data`, an unsupported or
            incomplete request, or the next request when the deadline has passed or the peer no
            longer reads.
        """
        ...


class Connection(Caller):
    """A connection of a server or a client."""

    def __init__(  # noqa: PLR0913  collaborators shared by its server or client
        self,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        *,
        outbox: Outbox | None = None,
        memory_budget: MemoryBudget | None = None,
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
        fast: FastPath | None = None,
    ) -> None:
        super().__init__(outbox or Outbox(), limits)
        self._dispatcher = dispatcher
        self.max_frame_size = limits.max_frame_size
        self._max_requests = limits.max_requests
        self._memory_budget = memory_budget or MemoryBudget(sys.maxsize, self.abort)
        self.is_broken = False
        """Whether the connection ended by an error."""
        self._buffered = 0
        self._unread = 0
        self._in_flight = 0
        self._is_charged = True  # the bytes held count against the memory budget
        self._on_open = on_open
        self._on_close = on_close
        self._decoder = FrameDecoder(limits.max_frame_size, decode_frame)
        self._unserved = b""  # received; served in the next turn or once the peer reads
        self._next_turn: asyncio.Handle | None = None
        self._is_finishing = False
        self._finishing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._expected: dict[PendingReply, int] = {}
        """Replies still to be sent, with the bytes charged for each."""
        self._none_expected: asyncio.Event | None = None  # created on the first wait
        self._fast = fast

    def switch(self, dispatcher: Dispatcher, fast: FastPath | None) -> None:
        """Serve the next requests by another dispatcher and fast path."""
        self._dispatcher = dispatcher
        self._fast = fast

    # State

    @property
    def is_idle(self) -> bool:
        """Whether no request and no call of this connection is in flight."""
        return not (self._tasks or self._expected or self._unserved or self._pending)

    @property
    def held(self) -> int:
        """Bytes charged to the memory budget: unserved input, requests in flight, unread output."""
        return self._buffered + self._in_flight + self._unread if self._is_charged else 0

    def abort(self) -> None:
        """Close at once, discarding unsent data, and return the held bytes to the memory budget."""
        self._unserved = b""
        self._charge(-self.held)
        self._is_charged = False
        self._transport.abort()

    async def finish(self) -> None:
        """Send the replies to requests in flight, then close; returns once it is closed.

        Further input is read and discarded: closing a socket with unread bytes would reset the
        connection, and the peer might lose replies it has not read yet.
        """
        self._is_finishing = True
        while self._tasks or self._expected:
            await (asyncio.wait(self._tasks) if self._tasks else self._wait_for_expected())
        self._flush()
        if not self.is_closed and self._transport.can_write_eof():
            with suppress(OSError, TimeoutError):  # the peer may have disconnected unnoticed
                self._transport.write_eof()
                self._wrote_eof = True
                async with asyncio.timeout(LINGER):
                    await self._closed.wait()
        self.close()
        await self._closed.wait()

    @property
    def tasks(self) -> Collection[asyncio.Task[None]]:
        """Tasks that serve requests. A lost connection cancels them; they may outlive it."""
        return self._tasks

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self._unserved:
            self._retain(self._unserved + data)
            return
        until = time.monotonic() + _TURN
        at = 0 if self._buffered else self._serve_fast(data, 0, until)
        if at < len(data):
            self._serve(data, at, until, is_fast=bool(self._buffered))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_broken = exc is not None
        self._unserved = b""
        self._set_buffered(0)
        self._count_unread()
        for task in self._tasks:
            task.cancel()
        expected, self._expected = self._expected, {}
        if self._none_expected is not None:
            self._none_expected.set()
        for pending, size in expected.items():
            pending.connection_lost()
            self._remove_in_flight(size)
        if self._on_close is not None:
            self._on_close(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unread()
        if not self._limits.always_read:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._count_unread()
        for pending in list(self._expected):
            pending.peer_reads_again()
        self._continue()

    def _set_buffered(self, size: int) -> None:
        change, self._buffered = size - self._buffered, size
        self._charge(change)

    def _still_blocked(self) -> None:
        self._count_unread()

    def _count_unread(self) -> None:
        """Charge the output that a peer under back-pressure has not read."""
        size = self.unsent if self.is_blocked else 0
        change, self._unread = size - self._unread, size
        self._charge(change)

    def _charge(self, change: int) -> None:
        if change and self._is_charged:
            self._memory_budget.change(change)

    # Requests and responses of the peer

    def _serve(self, data: bytes, at: int, until: float, *, is_fast: bool) -> None:
        """Serve received bytes in order until the turn ends or the peer stops reading."""
        end, start = len(data), 0
        while at < end and self._may_serve:
            if start < at and time.monotonic() > until:
                self._wait_for_next_turn()
                break
            start = at
            is_fast = is_fast and not self._decoder.missing  # else the bytes continue a frame
            at = self._serve_fast(data, at, until) if is_fast else self._serve_frame(data, at)
            is_fast = not is_fast  # alternate: each path stops where the other may continue
        self._retain(data[at:] if at else data)
        if self._decoder.error is not None:
            self._close_after_replies(self._decoder.error)

    @property
    def _may_serve(self) -> bool:
        return not (
            self._is_full or self._decoder.error is not None or self._transport.is_closing()
        )

    @property
    def _is_full(self) -> bool:
        """Whether further requests must wait: the peer does not read, or too much is in flight."""
        # A client must never stop reading, or it would miss the replies it waits for.
        if self._limits.always_read:
            return False
        return self.is_blocked or self._in_flight >= _MAX_IN_FLIGHT

    def _serve_fast(self, data: bytes, at: int, until: float) -> int:
        """Serve requests by the fast path; returns the position of the first one not served."""
        if (
            self._fast is None
            or self.is_blocked
            or self._is_finishing
            or self._decoder.error is not None
            or (self._in_flight and self._is_saturated)
        ):
            return at
        end = self._fast.serve(data, at, self, until)
        if end > at:
            self.last_active = until  # close enough to now, without another clock call
        return end

    def _serve_frame(self, data: bytes, at: int) -> int:
        """Serve the next frame, or buffer its first part; returns the position behind it."""
        size = self._decoder.missing or frame_size(data, at) or len(data)
        for frame in self._decoder.feed(data[at : at + size]):  # one at most
            self.last_active = self._loop.time()
            reply = self._receive(frame)
            if reply is not None:
                self.put(reply)
        return min(at + size, len(data))

    def _retain(self, rest: bytes) -> None:
        """Buffer unserved bytes; they are charged together with an incomplete frame."""
        lost = self._decoder.error is not None or self._transport.is_closing()
        self._unserved = b"" if lost else rest
        size = 0 if lost else len(rest) + self._decoder.buffered
        if size != self._buffered:
            self._set_buffered(size)

    def _wait_for_next_turn(self) -> None:
        if self._next_turn is None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._next_turn = self._loop.call_soon(self._run_next_turn)

    def _run_next_turn(self) -> None:
        self._next_turn = None
        try:
            self._continue()
        except Exception:  # asyncio closes the transport only for errors in `data_received`
            log.exception("closing the connection of %s", self.peer)
            self.abort()

    def _continue(self) -> None:
        """Serve the buffered bytes, then resume reading."""
        rest, self._unserved = self._unserved, b""
        self._serve(rest, 0, time.monotonic() + _TURN, is_fast=True)  # may pause again
        if not (self._unserved or self._is_full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _close_after_replies(self, error: ProtocolError) -> None:
        """Close a stream that cannot be decoded further, after the replies to earlier requests."""
        if self._finishing is not None or self._is_finishing or self._transport.is_closing():
            return
        log.warning("closing the connection of %s: %s", self.peer, error)
        if self._tasks or self._expected:
            self._finishing = self._loop.create_task(self.finish())
        else:
            self.close()

    def _receive(self, frame: Frame) -> bytes | None:
        """Handle one frame; returns the reply if the handler produced it synchronously."""
        if frame.flag & FrameFlag.RESPONSE:
            if not self._pending.resolve(frame):
                log.debug("late response %s from %s", frame.opaque, self.peer)
            return None
        if self._is_finishing:
            return None
        if self._is_overloaded:
            return self._busy_reply(frame)
        outcome = self._dispatcher.dispatch(frame, self)
        if outcome is None or isinstance(outcome, bytes):
            return outcome
        self._start_task(outcome, _weight(frame))
        return None

    @property
    def _is_overloaded(self) -> bool:
        return len(self._tasks) + len(self._expected) >= self._max_requests

    @property
    def _is_saturated(self) -> bool:
        return self._in_flight >= _MAX_IN_FLIGHT or self._is_overloaded

    def _start_task(self, outcome: Coroutine[Any, Any, bytes | None], size: int) -> None:
        """Run an asynchronous handler as a task; too many bytes in flight pause reading."""

        def ended(task: asyncio.Task[None]) -> None:
            outcome.close()  # a task cancelled before it ran has not awaited the coroutine
            self._tasks.discard(task)
            self._remove_in_flight(size)

        task = self._loop.create_task(self._send_when_ready(outcome))
        self._tasks.add(task)
        task.add_done_callback(ended)
        self._add_in_flight(size)

    def _add_in_flight(self, size: int) -> None:
        self._in_flight += size
        if self._is_charged:
            self._memory_budget.change(size)
        if (self.is_blocked or self._in_flight >= _MAX_IN_FLIGHT) and self._is_full:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self.is_closed:
            self._transport.pause_reading()

    def _remove_in_flight(self, size: int) -> None:
        was_full = self._in_flight >= _MAX_IN_FLIGHT and self._is_full
        self._in_flight -= size
        if self._is_charged:
            self._memory_budget.change(-size)
        if was_full and not self._is_full:
            self._wait_for_next_turn()

    async def _send_when_ready(self, outcome: Awaitable[bytes | None]) -> None:
        self._send_reply(await outcome)

    async def _wait_for_expected(self) -> None:
        if self._none_expected is None:
            self._none_expected = asyncio.Event()
        self._none_expected.clear()
        await self._none_expected.wait()

    def expect_reply(self, pending: PendingReply, weight: int) -> None:
        """Register a reply to be sent later; `weight` bytes are charged until then."""
        self._expected[pending] = size = _REQUEST_OVERHEAD + weight
        self._add_in_flight(size)

    def send_expected(self, pending: PendingReply, reply: bytes | None) -> None:
        """Send a registered reply, or None for a one-way request; no-op if the peer is gone."""
        size = self._expected.pop(pending, None)
        if size is None:
            return
        if self._none_expected is not None and not self._expected:
            self._none_expected.set()
        self._remove_in_flight(size)
        self._send_reply(reply)

    def _send_reply(self, reply: bytes | None) -> None:
        """Send the bytes of a response that was not ready synchronously."""
        if reply is not None and not self._is_gone:
            self._write(reply)

    def _busy_reply(self, frame: Frame) -> bytes | None:
        if frame.is_one_way:
            return None
        in_flight = len(self._tasks) + len(self._expected)
        return encode_frame(
            Frame(
                code=ResponseCode.SYSTEM_BUSY,
                flag=FrameFlag.RESPONSE,
                opaque=frame.opaque,
                encoding=frame.encoding,
                remark=f"[OVERLOAD]{in_flight} requests of this connection are under way",
            )
        )


def _weight(frame: Frame) -> int:
    """Approximate bytes that a request occupies while it is in flight."""
    fields = frame.fields or {}
    return (
        _REQUEST_OVERHEAD
        + len(frame.body)
        + sum(len(key) + len(text) for key, text in fields.items())
    )


async def finish_all(connections: Collection[Connection], within: float) -> int:
    """Finish connections; abort those still open after `within` seconds and return their number."""
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
