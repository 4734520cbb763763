"""Calls to other brokers: found by name, found again after they moved."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bolide.broker.settings.config import BrokerConfig
from bolide.broker.static_topics.peers import Peers
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.offsets import OffsetReply, QueueHeader
from bolide.protocol.refusals import ServerError, TopicNotFound
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.aio import on_loop
from tests.support.clock import FakeClock


class Names:
    """A NameServer that knows what a test tells it."""

    def __init__(self) -> None:
        self.brokers: dict[str, str] = {}
        self.asked = 0
        self.fails = False

    @handles(NoHeader, RequestCode.GET_BROKER_CLUSTER_INFO)
    def info(self, _: Request[NoHeader]) -> Reply:
        self.asked += 1
        if self.fails:
            raise ServerError("not now")
        table = {
            name: BrokerRoute(broker_name=name, broker_addrs={0: address})
            for name, address in self.brokers.items()
        }
        return Reply(body=fastjson.encode(ClusterInfo(broker_addr_table=table)))


class Other:
    """A broker."""

    def __init__(self) -> None:
        self.fields: list[dict[str, str]] = []

    @handles(QueueHeader, RequestCode.GET_MIN_OFFSET)
    def min_offset(self, request: Request[QueueHeader]) -> Reply:
        self.fields.append(dict(request.frame.fields or {}))
        if request.header.topic != "T":
            raise TopicNotFound("no such topic")
        return Reply(header=OffsetReply(7))


class Scene:
    def __init__(self, servers: AsyncExitStack) -> None:
        self.names, self.other, self.clock = Names(), Other(), FakeClock()
        self._servers = servers

    async def serve(self, handlers: object) -> RemotingServer:
        server = RemotingServer(ServerConfig(host="127.0.0.1"), Dispatcher(handlers))
        return await self._servers.enter_async_context(server)

    async def start(self) -> None:
        name_server = await self.serve(self.names)
        config = BrokerConfig(name_servers=(name_server.address,), broker_ip1="127.0.0.1")
        self.peers = Peers(ConfigCell(config), self.clock)
        client = RemotingClient(ClientConfig(connect_timeout=2.0))
        self.peers.use(await self._servers.enter_async_context(client))

    async def ask(self, topic: str = "T") -> int:
        header = QueueHeader(topic, 3)
        reply = await self.peers.call("b", RequestCode.GET_MIN_OFFSET, header)
        return OffsetReply.from_fields(reply.fields).offset


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as servers:
        made = Scene(servers)
        await made.start()
        yield made


@on_loop
async def test_a_broker_is_asked_about_its_physical_queue() -> None:
    async with scene() as it:
        it.names.brokers["b"] = (await it.serve(it.other)).address
        assert (await it.ask(), await it.ask()) == (7, 7)

    wanted = {"topic": "T", "queueId": "3", "lo": "false", "bname": "b"}
    assert it.other.fields == [wanted, wanted]
    assert it.names.asked == 1


@on_loop
async def test_a_broker_is_found_again_at_its_new_address() -> None:
    async with scene() as it:
        it.names.brokers["b"] = "127.0.0.1:1"
        with pytest.raises(ServerError, match="broker b"):
            await it.ask()
        it.names.brokers["b"] = (await it.serve(it.other)).address
        it.clock.advance(2)
        assert await it.ask() == 7


@on_loop
async def test_many_failures_do_not_become_many_queries_of_a_name_server() -> None:
    async with scene() as it:
        for _ in range(5):
            with pytest.raises(ServerError, match="no NameServer knows a master of broker b"):
                await it.ask()
        assert it.names.asked == 1
        it.clock.advance(2)
        with pytest.raises(ServerError):
            await it.ask()
        assert it.names.asked == 2


@on_loop
async def test_calls_that_wait_for_a_dead_name_server_do_not_ask_it_again() -> None:
    async with scene() as it:
        it.names.fails = True
        outcomes = await asyncio.gather(*(it.ask() for _ in range(5)), return_exceptions=True)
        assert all(isinstance(each, ServerError) for each in outcomes)
        assert it.names.asked == 1


@on_loop
async def test_a_refusal_of_the_other_broker_names_it() -> None:
    async with scene() as it:
        it.names.brokers["b"] = (await it.serve(it.other)).address
        with pytest.raises(ServerError, match=r"broker b.*GET_MIN_OFFSET.*no such topic"):
            await it.ask("U")


@on_loop
async def test_without_a_name_server_no_broker_is_found() -> None:
    peers = Peers(ConfigCell(BrokerConfig(broker_ip1="127.0.0.1")))
    with pytest.raises(ServerError, match="none is set"):
        await peers.call("b", RequestCode.GET_MIN_OFFSET, QueueHeader("T", 0))
