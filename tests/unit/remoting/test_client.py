import asyncio
import socket

import pytest

from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.errors import ConnectFailed, ConnectionLost
from bolide.remoting.tls import ClientTls
from tests.support.aio import PATIENCE, on_loop
from tests.support.echo import ECHO, WAIT, Echo


@on_loop
async def test_a_closed_client_connects_no_more() -> None:
    echo = Echo()
    async with echo.server() as server:
        async with RemotingClient(ClientConfig(call_timeout=0.05)) as client:
            waiting = asyncio.create_task(client.call(server.address, WAIT, within=PATIENCE))
            await echo.waiting.acquire()
        with pytest.raises(ConnectionLost):
            await waiting
        for ask in (client.call, client.notify):
            with pytest.raises(ConnectFailed, match="the client is closed"):
                await ask(server.address, ECHO)
        assert not client.is_connected(server.address)
        echo.release.set()


@on_loop
async def test_who_waits_for_a_connection_is_told_of_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with RemotingClient(ClientConfig(tls=ClientTls())) as client:
            waiting = asyncio.create_task(client.connect(address))
            await asyncio.sleep(0)
        with pytest.raises(ConnectFailed, match="the client is closed"):
            await waiting
