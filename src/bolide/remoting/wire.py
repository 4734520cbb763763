"""The sending half of a connection: outbox, flow control, memory budget.

Outbox: data written during one iteration of the event loop is sent at its end, joined per
connection. If each reply were sent at once, a fast peer would be woken for every single one, at a
cost to both sides.

Memory budget: a frame may be 16 MiB long, and a peer may send all but its last byte, send many
requests that take long, or not read large replies. One such peer is harmless; a thousand would
take 16 GiB. Past the limit the connection that holds the most memory is closed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from bolide.remoting.address import format_address

log = logging.getLogger(__name__)


class Outbox:
    """The connections of one endpoint that have data to send in this iteration of the loop."""

    def __init__(self) -> None:
        self._senders: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Call `send` once, at the end of this iteration of the loop."""
        if not self._senders:
            asyncio.get_running_loop().call_soon(self.flush)
        self._senders.append(send)

    def flush(self) -> None:
        senders, self._senders = self._senders, []
        for send in senders:
            try:
                send()
            except Exception:  # one broken connection must not affect the others
                log.exception("cannot send")


class MemoryBudget:
    """Counts the bytes held by all connections and calls `relieve` past the limit."""

    def __init__(self, limit: int, relieve: Callable[[], None]) -> None:
        self.total = 0
        self._limit = limit
        self._relieve = relieve

    def change(self, by: int) -> None:
        """Record that a connection holds `by` bytes more (or fewer)."""
        self.total += by
        if by > 0 and self.total > self._limit:
            self._relieve()


_LARGE = 32 * 1024
"""Bytes from which joining costs more than sending in parts."""


class Wire(asyncio.Protocol):
    """The sending half of a connection."""

    def __init__(self, outbox: Outbox, write_high_water: int) -> None:
        self.peer = "?"
        self.last_active = 0.0
        """Loop time of the last complete frame in either direction."""
        self.is_blocked = False
        """The write buffer is above its high-water mark: the peer does not read."""
        self._high_water = write_high_water
        self._outbox = outbox
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._wrote_eof = False
        self._is_gone = False  # mirrors `_closed`, faster to test
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set() or self._wrote_eof or self._transport.is_closing()

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed and its write buffer is gone."""
        return self._closed.is_set()

    @property
    def unsent(self) -> int:
        """Bytes written but not sent yet."""
        return self._unsent_size + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close after the written data is sent."""
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
        self._flush()  # the transport closes itself before the outbox is flushed

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
        """Send data at the end of the loop's iteration, or at once past the high-water mark."""
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
        """Called after a write while the peer does not read."""

    async def _wait_for_room(self) -> None:
        while self.is_blocked:  # other waiters may have filled the buffer again
            await self._writable.wait()
