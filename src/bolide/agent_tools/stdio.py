"""The transport over standard input and output.

Standard input is read by a thread of its own: a read that waits for the client could not be ended
otherwise, and a stop signal has to end the program at once.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, TextIO, cast

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server

_CHUNK = 65536


async def serve(protocol: Server[Any], stop: asyncio.Event) -> None:
    """Serve one client until it closes its end or `stop` is set."""
    with claimed_streams() as (source, sink):
        lines = _Lines(source)
        reading = cast("anyio.AsyncFile[str]", lines)
        async with stdio_server(reading, anyio.wrap_file(sink)) as (incoming, outgoing):
            options = protocol.create_initialization_options()
            serving = asyncio.ensure_future(protocol.run(incoming, outgoing, options))
            stopping = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                lines.end()
                stopping.cancel()
                serving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await serving
                await incoming.aclose()


@contextlib.contextmanager
def claimed_streams() -> Iterator[tuple[int, TextIO]]:
    """The descriptors of the client, under numbers that nothing else knows.

    Meanwhile 0 is empty and 1 is standard error, so that what the program or a library prints does
    not disturb the protocol.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        with open(sink, "w", encoding="utf-8", closefd=False) as writer:
            yield source, writer
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.close(sink)  # not the other: the thread may still read from it


class _Lines:
    """The lines from a descriptor, up to its end or to `end`."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()

    def end(self) -> None:
        self._lines.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        threading.Thread(target=self._read, name="mcp-input", daemon=True).start()
        while (line := await self._lines.get()) is not None:
            yield line

    def _read(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while chunk := os.read(self._source, _CHUNK):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    self._put(line.decode(errors="replace"))
        if rest:
            self._put(rest.decode(errors="replace"))
        self._put(None)

    def _put(self, line: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
