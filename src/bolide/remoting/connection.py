"""One connection: bytes in, frames out, calls both ways.

Both peers may ask: responses go to the pending calls (`calling`), requests to the dispatcher; how
bytes leave is for `wire`. Flow control works in both directions: while the peer does not read its
replies a server does not read its requests, nor handle those that it has read, and a call waits for
room. A client always reads: if both peers stopped, neither could ever go on. A peer that sends many
requests at once gets a short turn, then it is the others' turn; the rest waits as the bytes that
came.
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
"""Seconds that one connection may keep the event loop busy before others are looked after."""

_MOST_UNDER_WAY = 32 * 1024 * 1024
"""Bytes of requests under way at which a connection is not read from."""

_LEAST_WEIGHT = 1024
"""Bytes that a request under way takes, its body and fields aside."""

LINGER = 0.5
"""Seconds that a peer gets to take the last replies and hang up."""


class PendingReply(Protocol):
    """A reply that a connection still owes its peer: `DeferredReply`, or a lighter equivalent."""

    def connection_lost(self) -> None:
        """The connection is gone."""
        ...

    def peer_reads_again(self) -> None:
        """The peer reads again."""
        ...


class FastPath(Protocol):
    """Serves plain requests straight from the bytes received, ahead of frames and handlers."""

    def serve(self, data: bytes, position: int, connection: "Connection", until: float) -> int:
        """Serve the requests that lie in `data` from `position` on, as far as it knows them.

        Responses go to `Connection.put`.

        Args:
            until: by `time.monotonic`; one request is served in any case, then it is looked at.

        Returns:
            Where it stopped: at the end, at a request that it does not know, at a part of one, at
            one for which there is no more time, or where the peer no longer reads.
        """
        ...


class Connection(Caller):
    """A connection of a server or a client."""

    def __init__(  # noqa: PLR0913  what its server or client shares with it
        self,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        *,
        outbox: Outbox | None = None,
        held_by_all: MemoryBudget | None = None,
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
        fast: FastPath | None = None,
    ) -> None:
        super().__init__(outbox or Outbox(), limits)
        self._dispatcher = dispatcher
        self.max_frame_size = limits.max_frame_size
        self._max_requests = limits.max_requests
        self._held_by_all = held_by_all or MemoryBudget(sys.maxsize, self.abort)
        self._held = 0
        self._unread = 0
        self._under_way = 0
        self._counts = True  # what it holds is part of what all hold
        self._on_open = on_open
        self._on_close = on_close
        self._decoder = FrameDecoder(limits.max_frame_size, decode_frame)
        self._rest = b""  # received, to be served in the next turn or when there is room
        self._next_turn: asyncio.Handle | None = None
        self._is_finishing = False
        self._end: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._owed: dict[PendingReply, int] = {}
        """What each weighs."""
        self._nothing_owed: asyncio.Event | None = None  # made by who waits for it
        self._fast = fast

    # State

    @property
    def is_idle(self) -> bool:
        """No request and no call of this connection is under way."""
        return not (self._tasks or self._owed or self._rest or self._pending)

    @property
    def held(self) -> int:
        """Bytes that count: received and not served yet, of requests under way, and not read."""
        return self._held + self._under_way + self._unread if self._counts else 0

    def abort(self) -> None:
        """Close at once; what is not sent is lost, and what is held no longer counts."""
        self._rest = b""
        self._count(-self.held)
        self._counts = False
        self._transport.abort()

    async def finish(self) -> None:
        """Answer what is under way, then close; returns when the connection is gone.

        What still comes in is read and dropped: closing a socket with unread bytes would reset the
        connection, and the peer might lose the replies it has not read yet.
        """
        self._is_finishing = True
        while self._tasks or self._owed:
            await (asyncio.wait(self._tasks) if self._tasks else self._wait_for_owed())
        self._flush()
        if not self.is_closed and self._transport.can_write_eof():
            with suppress(OSError, TimeoutError):  # it may be gone without our knowing yet
                self._transport.write_eof()
                self._wrote_eof = True
                async with asyncio.timeout(LINGER):
                    await self._closed.wait()
        self.close()
        await self._closed.wait()

    @property
    def tasks(self) -> Collection[asyncio.Task[None]]:
        """The requests that are being served; they are cancelled when it is lost, and may go on."""
        return self._tasks

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            self._keep(self._rest + data)
            return
        until = time.monotonic() + _TURN
        at = 0 if self._held else self._serve_ahead(data, 0, until)
        if at < len(data):
            self._serve(data, at, until, is_fast=bool(self._held))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._rest = b""
        self._hold(0)
        self._count_unread()
        for task in self._tasks:
            task.cancel()
        owed, self._owed = self._owed, {}
        if self._nothing_owed is not None:
            self._nothing_owed.set()
        for later, size in owed.items():
            later.connection_lost()
            self._unload(size)
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
        for later in list(self._owed):
            later.peer_reads_again()
        self._go_on()

    def _hold(self, size: int) -> None:
        change, self._held = size - self._held, size
        self._count(change)

    def _still_blocked(self) -> None:
        self._count_unread()

    def _count_unread(self) -> None:
        """Note how much a peer that does not read leaves in memory."""
        size = self.unsent if self.is_blocked else 0
        change, self._unread = size - self._unread, size
        self._count(change)

    def _count(self, change: int) -> None:
        if change and self._counts:
            self._held_by_all.change(change)

    # Requests and responses of the peer

    def _serve(self, data: bytes, at: int, until: float, *, is_fast: bool) -> None:
        """Serve what was received in its order, for one turn, while the replies find room."""
        end, start = len(data), 0
        while at < end and self._may_serve:
            if start < at and time.monotonic() > until:
                self._wait_for_next_turn()
                break
            start = at
            is_fast = is_fast and not self._decoder.missing  # else they belong to a frame begun
            at = self._serve_ahead(data, at, until) if is_fast else self._serve_frame(data, at)
            is_fast = not is_fast  # they take turns: who knows the next?
        self._keep(data[at:] if at else data)
        if self._decoder.error is not None:
            self._close_if_answered(self._decoder.error)

    @property
    def _may_serve(self) -> bool:
        return not (
            self._is_full or self._decoder.error is not None or self._transport.is_closing()
        )

    @property
    def _is_full(self) -> bool:
        """Whether further requests must wait: the peer does not read, or asked for a lot."""
        # A client that waits for an answer of its server must go on reading, come what may.
        if self._limits.always_read:
            return False
        return self.is_blocked or self._under_way >= _MOST_UNDER_WAY

    def _serve_ahead(self, data: bytes, at: int, until: float) -> int:
        """Have the fast path serve what it knows; returns where it stopped."""
        if (
            self._fast is None
            or self.is_blocked
            or self._is_finishing
            or self._decoder.error is not None
            or (self._under_way and self._is_laden)
        ):
            return at
        end = self._fast.serve(data, at, self, until)
        if end > at:
            self.last_active = until  # as good as now
        return end

    def _serve_frame(self, data: bytes, at: int) -> int:
        """Serve the next frame, or take in what is there of it; returns where that ends."""
        size = self._decoder.missing or frame_size(data, at) or len(data)
        for frame in self._decoder.feed(data[at : at + size]):  # one at most
            self.last_active = self._loop.time()
            reply = self._receive(frame)
            if reply is not None:
                self.put(reply)
        return min(at + size, len(data))

    def _keep(self, rest: bytes) -> None:
        """Keep what is not served yet; it counts as held, as does a frame that is not whole."""
        lost = self._decoder.error is not None or self._transport.is_closing()
        self._rest = b"" if lost else rest
        size = 0 if lost else len(rest) + self._decoder.buffered
        if size != self._held:
            self._hold(size)

    def _wait_for_next_turn(self) -> None:
        if self._next_turn is None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._next_turn = self._loop.call_soon(self._take_next_turn)

    def _take_next_turn(self) -> None:
        self._next_turn = None
        try:
            self._go_on()
        except Exception:  # the transport would close it; here nobody else does
            log.exception("closing the connection of %s", self.peer)
            self.abort()

    def _go_on(self) -> None:
        """Serve what is left, then read on."""
        rest, self._rest = self._rest, b""
        self._serve(rest, 0, time.monotonic() + _TURN, is_fast=True)  # it may come to a halt again
        if not (self._rest or self._is_full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _close_if_answered(self, error: ProtocolError) -> None:
        """The stream is lost; what came before in good order is answered first."""
        if self._end is not None or self._is_finishing or self._transport.is_closing():
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
        return len(self._tasks) + len(self._owed) >= self._max_requests

    @property
    def _is_laden(self) -> bool:
        return self._under_way >= _MOST_UNDER_WAY or self._is_overloaded

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
        if self._counts:
            self._held_by_all.change(size)
        if (self.is_blocked or self._under_way >= _MOST_UNDER_WAY) and self._is_full:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self.is_closed:
            self._transport.pause_reading()

    def _unload(self, size: int) -> None:
        was_full = self._under_way >= _MOST_UNDER_WAY and self._is_full
        self._under_way -= size
        if self._counts:
            self._held_by_all.change(-size)
        if was_full and not self._is_full:
            self._wait_for_next_turn()

    async def _reply_later(self, outcome: Awaitable[bytes | None]) -> None:
        self._send_later(await outcome)

    async def _wait_for_owed(self) -> None:
        if self._nothing_owed is None:
            self._nothing_owed = asyncio.Event()
        self._nothing_owed.clear()
        await self._nothing_owed.wait()

    def expect_reply(self, later: PendingReply, weight: int) -> None:
        """Keep in mind that a request will be answered, and how many bytes wait with it."""
        self._owed[later] = size = _LEAST_WEIGHT + weight
        self._load(size)

    def send_expected(self, later: PendingReply, reply: bytes | None) -> None:
        """Send what was owed; nothing for a one-way request, or if nobody is there any more."""
        size = self._owed.pop(later, None)
        if size is None:
            return
        if self._nothing_owed is not None and not self._owed:
            self._nothing_owed.set()
        self._unload(size)
        self._send_later(reply)

    def _send_later(self, reply: bytes | None) -> None:
        """Send the bytes of a response that was not ready at once."""
        if reply is not None and not self._is_gone:
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
