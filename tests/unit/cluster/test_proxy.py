"""Links that are cut one way and both ways, and slowed; who owns a connection."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bolide.cluster.proxy import CLIENTS, ConnectionOwners, Flows, Proxy, descendants
from tests.support.aio import on_loop

NOTHING_WITHIN = 0.15
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """A connection of `alice` through the proxy of `bob`, who answers with what he gets."""

    def __init__(self, flows: Flows, port: int, streams: Streams) -> None:
        self.flows = flows
        self.port = port
        self.reader, self.writer = streams

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await asyncio.wait_for(self.reader.readexactly(len(data)), 5)

    async def expect_silence(self) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(self.reader.read(1), NOTHING_WITHIN)


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, list[bytes]]]:
    got: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            got.append(data)
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    flows = Flows()
    proxy = Proxy("bob", flows, lambda peer, own: "alice")
    port = await proxy.listen("127.0.0.1", 0, server.sockets[0].getsockname()[:2])
    streams = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Link(flows, port, streams), got
    finally:
        streams[1].close()
        await proxy.close()
        server.close()
        await asyncio.sleep(0.01)  # the echo sees the end


@on_loop
async def test_bytes_pass() -> None:
    async with linked() as (link, _):
        assert await link.ask(b"hello") == b"hello"


@on_loop
async def test_a_cut_holds_bytes_until_it_is_healed() -> None:
    async with linked() as (link, got):
        await link.ask(b"first")
        link.flows.cut("alice", "bob")
        link.writer.write(b"second")
        await link.expect_silence()
        assert got == [b"first"]

        link.flows.heal("alice", "bob")

        assert await link.reader.readexactly(6) == b"second"


@on_loop
async def test_a_cut_of_one_way_lets_the_other_pass() -> None:
    async with linked() as (link, got):
        await link.ask(b"first")
        link.flows.cut("bob", "alice")
        link.writer.write(b"heard")
        await link.expect_silence()
        assert got == [b"first", b"heard"]

        link.flows.heal("bob", "alice")

        assert await link.reader.readexactly(5) == b"heard"


@on_loop
async def test_a_new_connection_hangs_during_a_cut() -> None:
    async with linked() as (link, got):
        link.flows.cut("alice", "bob")
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"late")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), NOTHING_WITHIN)
        assert got == []

        link.flows.heal("alice", "bob")

        assert await reader.readexactly(4) == b"late"
        writer.close()


@on_loop
async def test_a_cut_of_others_changes_nothing() -> None:
    async with linked() as (link, _):
        link.flows.cut("carol", "bob")

        assert await link.ask(b"hello") == b"hello"


@on_loop
async def test_a_slow_link_delivers_late() -> None:
    async with linked() as (link, _):
        loop = asyncio.get_running_loop()
        link.flows.slow("alice", "bob", delay=0.1)
        began = loop.time()

        await link.ask(b"hello")

        assert loop.time() - began > 0.099  # a difference of rounded times


@on_loop
async def test_nobody_behind_the_proxy_ends_the_connection() -> None:
    proxy = Proxy("bob", Flows(), lambda peer, own: "alice")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = await proxy.listen("127.0.0.1", 0, unused.getsockname())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        with pytest.raises(ConnectionError):
            if not await asyncio.wait_for(reader.read(1), 5):
                raise ConnectionError
        writer.close()
        await proxy.close()


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_connection_belongs_to_the_process_that_opened_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        ends = client.getsockname(), server.getsockname()
        mine = ConnectionOwners(lambda: {"me": [os.getpid()]})
        others = ConnectionOwners(lambda: {"nobody": [1 << 22]})

        assert mine.owner_of(*ends) == "me"
        assert others.owner_of(*ends) == CLIENTS


@on_loop
async def test_descendants_include_the_children_of_children() -> None:
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", "sleep 60 & echo; wait", stdout=asyncio.subprocess.PIPE
    )
    assert shell.stdout is not None
    await shell.stdout.readline()

    found = descendants(os.getpid())

    assert shell.pid in found
    children = descendants(shell.pid)
    assert len(children) == 2
    for pid in reversed(children):
        os.kill(pid, 9)
    await shell.communicate()  # also the end of its output, which a child may have open for longer
