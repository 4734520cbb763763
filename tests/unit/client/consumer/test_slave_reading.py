"""Consumers go on at a slave while the master is down, and their offsets come home."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bolide.client.consumer.pull.lite_pull_consumer import LitePullConsumer
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.model.message import Host, StoredMessage
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ConsumerIds
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.clients import ConsumerGroupHeader
from bolide.protocol.headers.offsets import CommitOffsetHeader, OffsetReply, QueryOffsetHeader
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.record import encode_message
from bolide.protocol.refusals import QueryNotFound
from bolide.remoting.dispatch import Reply, Request, handles
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.cluster import FakeBroker, FakeNameServer, serving

COUNT = 5


class Log:
    """The messages of one queue, which all members of the group have."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def append(self, count: int) -> None:
        host = Host("127.0.0.1", 1)
        for number in range(len(self.records), len(self.records) + count):
            message = StoredMessage(
                "T", b"%d" % number, {}, queue_offset=number, born_host=host, store_host=host
            )
            self.records.append(encode_message(message))


class Member(FakeBroker):
    """A master or a slave, which suggests the master as slaves do."""

    def __init__(self, log: Log) -> None:
        super().__init__("broker-a")
        self.log = log
        self.committed: int | None = None
        self.pulls: list[PullHeader] = []
        self.groups: set[str] = set()

    @handles(PullHeader, RequestCode.PULL_MESSAGE)
    async def pull(self, request: Request[PullHeader]) -> Reply:
        header, end = request.header, len(self.log.records)
        self.pulls.append(header)
        found = b"".join(self.log.records[header.queue_offset :])
        if not found:
            await asyncio.sleep(0.02)
        answer = PullReply(
            suggest_which_broker_id=0, next_begin_offset=end, min_offset=0, max_offset=end
        )
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return Reply(code=code, header=answer, body=found)

    @handles(ConsumerGroupHeader, RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    async def members(self, request: Request[ConsumerGroupHeader]) -> Reply:
        beat = self.heartbeats.get_nowait() if self.heartbeats.qsize() else None
        if beat is not None:
            self.groups.add(beat.client_id)
        return Reply(body=fastjson.encode(ConsumerIds(consumer_id_list=sorted(self.groups))))

    @handles(QueryOffsetHeader, RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, request: Request[QueryOffsetHeader]) -> Reply:
        if self.committed is None:
            raise QueryNotFound("no offset")
        return Reply(header=OffsetReply(self.committed))

    @handles(CommitOffsetHeader, RequestCode.UPDATE_CONSUMER_OFFSET)
    def commit(self, request: Request[CommitOffsetHeader]) -> Reply:
        self.committed = request.header.commit_offset
        return Reply()


class Pair:
    """A master that can be stopped and started, its slave, and a NameServer."""

    def __init__(self) -> None:
        self.log = Log()
        self.servers = FakeNameServer()
        self.master, self.slave = Member(self.log), Member(self.log)
        self._serving = AsyncExitStack()

    async def start_master(self) -> None:
        port = int(self.master.address.rpartition(":")[2] or 0)
        await self._serving.enter_async_context(serving(self.master, port=port))

    async def stop_master(self) -> None:
        await self._serving.aclose()

    def route(self) -> None:
        addresses = {0: self.master.address, 1: self.slave.address}
        self.servers.routes["T"] = TopicRoute(
            queue_datas=[QueueRoute(broker_name="broker-a", read_queue_nums=1, perm=6)],
            broker_datas=[BrokerRoute(broker_name="broker-a", broker_addrs=addresses)],
        )


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    it = Pair()
    async with serving(it.servers), serving(it.slave):
        await it.start_master()
        it.route()
        try:
            yield it
        finally:
            await it.stop_master()


@on_loop
async def test_a_push_consumer_goes_on_at_a_slave_and_commits_to_the_master_later() -> None:
    got: list[bytes] = []

    async def take(message: StoredMessage) -> None:
        got.append(message.body)

    async with pair() as it:
        it.log.append(COUNT)
        async with PushConsumer(
            "G", name_server=it.servers.address, consume_from="first", commit_interval=0.05
        ) as consumer:
            await consumer.subscribe("T", "*", take)
            await until(lambda: it.master.committed == COUNT)
            await it.stop_master()
            it.log.append(COUNT)
            await until(lambda: it.slave.committed == 2 * COUNT)
            assert all(not header.sys_flag & 1 for header in it.slave.pulls)
            assert it.master.committed == COUNT
            await it.start_master()
            await until(lambda: it.master.committed == 2 * COUNT)
            before = len(it.master.pulls)
            await until(lambda: len(it.master.pulls) > before)
    assert sorted(map(int, got)) == list(range(2 * COUNT))


@on_loop
async def test_a_lite_pull_consumer_goes_on_at_a_slave() -> None:
    async with pair() as it:
        it.log.append(COUNT)
        async with LitePullConsumer(
            "G", name_server=it.servers.address, consume_from="first"
        ) as consumer:
            await consumer.subscribe("T")
            first = await poll(consumer, COUNT)
            await it.stop_master()
            it.log.append(COUNT)
            second = await poll(consumer, COUNT)
            assert [int(m.body) for m in first + second] == list(range(2 * COUNT))


@pytest.mark.parametrize("committed", [3, 0])
@on_loop
async def test_a_member_that_starts_meanwhile_continues_where_the_slave_says(
    committed: int,
) -> None:
    async with pair() as it:
        it.log.append(COUNT)
        it.slave.committed = committed
        await it.stop_master()
        async with LitePullConsumer("G", name_server=it.servers.address) as consumer:
            await consumer.subscribe("T")
            found = await poll(consumer, COUNT - committed)
            assert [int(m.body) for m in found] == list(range(committed, COUNT))


async def poll(consumer: LitePullConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += await consumer.poll(0.2)
    return found
