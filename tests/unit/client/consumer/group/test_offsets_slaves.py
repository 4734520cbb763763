"""Offsets of a group while the master of its queues is away."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bolide.client.consumer.group.offsets import RemoteOffsets
from bolide.client.errors import BrokerUnknown
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.settings import ClientSettings
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import (
    CommitOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueryOffsetHeader,
)
from bolide.protocol.refusals import QueryNotFound
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.errors import RemotingError
from tests.support.aio import on_loop, until
from tests.support.cluster import FakeBroker, FakeNameServer, serving

QUEUE = MessageQueue("T", "broker-a", 0)


class OffsetBroker(FakeBroker):
    """Keeps one offset."""

    def __init__(self, end: int) -> None:
        super().__init__("broker-a")
        self.committed: int | None = None
        self.end = end

    @handles(QueryOffsetHeader, RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, request: Request[QueryOffsetHeader]) -> Reply:
        if self.committed is None:
            raise QueryNotFound("no offset")
        return Reply(header=OffsetReply(self.committed))

    @handles(CommitOffsetHeader, RequestCode.UPDATE_CONSUMER_OFFSET)
    def commit(self, request: Request[CommitOffsetHeader]) -> Reply:
        self.committed = request.header.commit_offset
        return Reply()

    @handles(MaxOffsetHeader, RequestCode.GET_MAX_OFFSET)
    def max_offset(self, request: Request[MaxOffsetHeader]) -> Reply:
        return Reply(header=OffsetReply(self.end))


class Scene:
    """A master that can be stopped, and its slave."""

    def __init__(self) -> None:
        self.servers = FakeNameServer()
        self.master, self.slave = OffsetBroker(20), OffsetBroker(18)
        self.instance: ClientInstance
        self.offsets: RemoteOffsets
        self._serving = AsyncExitStack()

    async def start_master(self, port: int = 0) -> None:
        await self._serving.enter_async_context(serving(self.master, port=port))

    async def stop_master(self) -> None:
        await self._serving.aclose()

    async def restart_master(self) -> None:
        await self.start_master(int(self.master.address.rpartition(":")[2]))

    def route(self, members: dict[int, FakeBroker]) -> None:
        self.servers.routes["T"] = TopicRoute(
            queue_datas=[QueueRoute(broker_name="broker-a", read_queue_nums=1, perm=6)],
            broker_datas=[
                BrokerRoute(
                    broker_name="broker-a",
                    broker_addrs={number: each.address for number, each in members.items()},
                )
            ],
        )


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    it = Scene()
    async with serving(it.servers), serving(it.slave):
        await it.start_master()
        it.route({0: it.master, 1: it.slave})
        it.instance = await ClientInstance.acquire(
            ClientSettings.of(name_server=it.servers.address)
        )
        it.offsets = RemoteOffsets(it.instance, "G")
        try:
            await it.instance.routes.require("T")
            yield it
        finally:
            await it.instance.release()
            await it.stop_master()


@on_loop
async def test_the_master_has_the_offsets_while_it_is_there() -> None:
    async with scene() as it:
        await it.offsets.write({QUEUE: 7}, wait=True)
        assert (it.master.committed, it.slave.committed) == (7, None)
        assert await it.offsets.read(QUEUE) == 7


@on_loop
async def test_a_slave_keeps_the_offsets_until_the_master_is_back() -> None:
    async with scene() as it:
        it.slave.committed = 5
        await it.stop_master()
        assert await it.offsets.read(QUEUE) == 5
        await it.offsets.write({QUEUE: 8}, wait=True)
        assert (it.master.committed, it.slave.committed) == (None, 8)
        assert it.master.address in it.instance.suspects
        await it.restart_master()
        await until(lambda: not it.instance.suspects)
        await it.offsets.write({QUEUE: 9}, wait=True)
        assert (it.master.committed, it.slave.committed) == (9, 8)


@on_loop
async def test_a_suspected_master_is_not_waited_for() -> None:
    async with scene() as it:
        it.slave.committed = 5
        await it.stop_master()
        it.instance.broker_failed(it.master.address, "T")
        await it.offsets.write({QUEUE: 8}, wait=True)
        assert await it.offsets.read(QUEUE) == 8
        await it.restart_master()
        await until(lambda: not it.instance.suspects)
        await it.offsets.write({QUEUE: 9}, wait=True)
        assert it.master.committed == 9


@on_loop
async def test_a_slave_answers_where_the_route_names_no_master() -> None:
    async with scene() as it:
        it.route({1: it.slave})
        await it.instance.routes.refresh("T")
        it.slave.committed = 5
        assert await it.offsets.read(QUEUE) == 5
        assert await it.instance.lookups.max_offset(QUEUE) == 18


@on_loop
async def test_an_offset_that_a_slave_lacks_is_not_taken_as_missing() -> None:
    async with scene() as it:
        await it.stop_master()
        with pytest.raises(BrokerUnknown):
            await it.offsets.read(QUEUE)


@on_loop
async def test_the_failure_of_the_master_is_reported_if_no_slave_answers() -> None:
    async with scene() as it:
        it.route({0: it.master})
        await it.instance.routes.refresh("T")
        await it.stop_master()
        with pytest.raises(RemotingError):
            await it.offsets.read(QUEUE)
        with pytest.raises(RemotingError):
            await it.offsets.write({QUEUE: 8}, wait=True)
