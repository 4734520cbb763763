"""A peer that is there and does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bolide.remoting.address import format_address


@asynccontextmanager
async def mute_server() -> AsyncIterator[str]:
    """The address of a server that takes connections and never says a word."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    try:
        yield format_address(server.sockets[0].getsockname())
    finally:
        server.close()
        for writer in writers:
            writer.close()
