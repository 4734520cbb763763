"""The listening socket of the console."""

import asyncio
import socket

import pytest

from bolide.console.server import PortTaken, listen
from tests.support.aio import on_loop


@on_loop
async def test_answers_do_not_wait_for_acknowledgements() -> None:
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def see(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = listen("127.0.0.1", 0)
    async with await asyncio.start_server(see, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await accepted
        writer.close()


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} of 127.0.0.1 is taken"):
            listen("127.0.0.1", port)
