"""Bytes written to a connection: the per-turn outbox, flow control, the memory budget.

A send wakes up the peer. If each reply left at once, a peer that is quicker than we are would be
woken up for every single one, at a cost to both. Replies to one peer that come up in one turn are
joined besides.

A frame may be 16 MiB long, and a peer may send all but its last byte, or many that take a while to
serve; or it may ask for a lot and not read it. One such peer is harmless; a thousand of them would
take 16 GiB. Past the limit the one that holds the most is closed.

What is written leaves through the outbox, at the end of the loop's turn.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from bolide.remoting.address import format_address

log = logging.getLogger(__name__)


class Outbox:
    """The senders of one endpoint that have something to send in this turn of the loop."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Call `send` once, when this turn of the loop is over."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(send)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for send in waiting:
            try:
                send()
            except Exception:  # one broken connection must not silence the others
                log.exception("could not send")


class MemoryBudget:
    """Counts the bytes and calls for relief when there are too many."""

    def __init__(self, limit: int, relieve: Callable[[], None]) -> None:
        self.total = 0
        self._limit = limit
        self._relieve = relieve

    def change(self, by: int) -> None:
        """A connection holds `by` bytes more, or less."""
        self.total += by
        if by > 0 and self.total > self._limit:
            self._relieve()


_LARGE = 32 * 1024
"""Bytes that are dearer to join than to send in parts."""


class Wire(asyncio.Protocol):
    """The sending half of a connection, and its state."""

    def __init__(self, outbox: Outbox, write_high_water: int) -> None:
        self.peer = "?"
        self.last_active = 0.0
        """Loop time of the last whole frame in either direction; single bytes do not count."""
        self.is_blocked = False
        """The peer does not read: what it is sent now stays in memory."""
        self._high_water = write_high_water
        self._outbox = outbox
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._wrote_eof = False
        self._is_gone = False  # as `_closed` says, and quicker to look at
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set() or self._wrote_eof or self._transport.is_closing()

    @property
    def is_gone(self) -> bool:
        """Closed, and nothing written is left to be sent."""
        return self._closed.is_set()

    @property
    def unsent(self) -> int:
        """Bytes that are written and have not left."""
        return self._unsent_size + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close after what is written has left."""
        self._flush()
        self._transport.close()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._high_water)
        self._loop = asyncio.get_running_loop()
        self.peer = format_address(transport.get_extra_info("peername"))
        self.last_active = self._loop.time()

    def eof_received(self) -> None:
        self._flush()  # the transport closes itself now, before the outbox gets to it

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._is_gone = True
        self.is_blocked = False
        self._writable.set()

    def pause_writing(self) -> None:
        self.is_blocked = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self.is_blocked = False
        self._writable.set()

    # Writing

    def put(self, data: bytes) -> None:
        """Have it sent when the loop's turn is over, or now if it is a lot."""
        unsent = self._unsent
        if not unsent:
            self._outbox.add(self._flush)
        unsent.append(data)
        self._unsent_size += len(data)
        if self._unsent_size > self._high_water:
            self._flush()

    def _write(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        self.put(data)

    def _flush(self) -> None:
        unsent, size, self._unsent, self._unsent_size = self._unsent, self._unsent_size, [], 0
        if unsent and not (self._is_gone or self._wrote_eof or self._transport.is_closing()):
            if len(unsent) == 1:
                self._transport.write(unsent[0])
            elif size < _LARGE:
                self._transport.write(b"".join(unsent))
            else:
                self._transport.writelines(unsent)
            if self.is_blocked:
                self._still_blocked()

    def _still_blocked(self) -> None:
        """More was written than the peer reads."""

    async def _wait_for_room(self) -> None:
        while self.is_blocked:  # others that waited may have filled it up again
            await self._writable.wait()
