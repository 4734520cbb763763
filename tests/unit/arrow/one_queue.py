"""A scripted broker with one queue, and its NameServer."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pyarrow as pa

from bolide.arrow.cluster import Cluster, Connection
from bolide.arrow.offsets import QueueRange
from bolide.arrow.range_fetcher import ReadOptions
from bolide.arrow.topic_reader import read_range
from bolide.model.message import Host, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.offsets import (
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
)
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.record import encode_message
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.cluster import FakeNameServer, serving

QUEUE = MessageQueue("T", "broker-a", 0)

Answer = Reply | Exception


def record(queue_offset: int, tags: str = "A", stored: int = 0, topic: str = "T") -> bytes:
    host = Host("127.0.0.1", 1)
    return encode_message(
        StoredMessage(
            topic,
            b"body %d" % queue_offset,
            {"TAGS": tags},
            queue_offset=queue_offset,
            store_timestamp=stored,
            born_host=host,
            store_host=host,
        )
    )


class QueueBroker:
    """Serves the messages of `records`, after one reply of `answers` per pull."""

    def __init__(self, records: dict[int, bytes]) -> None:
        self.records = records
        self.oldest = min(records, default=0)
        self.end = max(records, default=-1) + 1
        self.answers: deque[Answer] = deque()
        self.pulls: list[PullHeader] = []
        self.found = 0
        """Reply to a search by time."""

    @handles(PullHeader, RequestCode.PULL_MESSAGE)
    def pull(self, request: Request[PullHeader]) -> Reply:
        self.pulls.append(request.header)
        if not self.answers:
            return self._serve(request.header)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _serve(self, header: PullHeader) -> Reply:
        at = header.queue_offset
        if at < self.oldest:
            return self.reply(ResponseCode.PULL_OFFSET_MOVED, self.oldest, "OFFSET_TOO_SMALL")
        if at == self.end:
            return self.reply(ResponseCode.PULL_NOT_FOUND, at, "OFFSET_OVERFLOW_ONE")
        if at > self.end:
            code = ResponseCode.PULL_OFFSET_MOVED
            return self.reply(code, self.end, "OFFSET_OVERFLOW_BADLY")
        offsets = [each for each in sorted(self.records) if each >= at][: header.max_msg_nums]
        body = b"".join(self.records[each] for each in offsets)
        return self.reply(ResponseCode.SUCCESS, offsets[-1] + 1, "FOUND", body)

    def reply(self, code: int, after: int, remark: str, body: bytes = b"", **more: Any) -> Reply:
        values = {"suggest_which_broker_id": 0, "next_begin_offset": after}
        values |= {"min_offset": self.oldest, "max_offset": self.end}
        header = PullReply(**values | more)
        return Reply(code=code, header=header, body=body, remark=remark)

    @handles(QueueHeader, RequestCode.GET_MIN_OFFSET)
    def min_offset(self, request: Request[QueueHeader]) -> Reply:
        return Reply(header=OffsetReply(self.oldest))

    @handles(MaxOffsetHeader, RequestCode.GET_MAX_OFFSET)
    def max_offset(self, request: Request[MaxOffsetHeader]) -> Reply:
        return Reply(header=OffsetReply(self.end))

    @handles(SearchOffsetHeader, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    def search(self, request: Request[SearchOffsetHeader]) -> Reply:
        return Reply(header=OffsetReply(self.found))


class Scene:
    """A cluster in front of `broker`, which may have a slave."""

    def __init__(self, servers: FakeNameServer, broker: QueueBroker) -> None:
        self.servers = servers
        self.broker = broker
        self.cluster = Cluster(Connection(name_server=servers.address), patience=0.3)
        self._serving = AsyncExitStack()

    async def serve(self, slave: QueueBroker | None = None, topic: str = "T") -> None:
        """Restart at a new address, and update the route."""
        config = ServerConfig(host="127.0.0.1", port=0, drain_timeout=0.2)
        members = {}
        for number, each in enumerate([self.broker, slave] if slave else [self.broker]):
            server = RemotingServer(config, Dispatcher(each))
            members[number] = (await self._serving.enter_async_context(server)).address
        self.servers.routes[topic] = TopicRoute(
            queue_datas=[QueueRoute(broker_name="broker-a", read_queue_nums=1, perm=6)],
            broker_datas=[BrokerRoute(broker_name="broker-a", broker_addrs=members)],
        )

    async def stop(self) -> None:
        await self._serving.aclose()

    async def read(self, start: int, end: int, **options: Any) -> pa.Table:
        wanted = ReadOptions(**{"patience": 0.3} | options)
        batches = read_range(self.cluster, QueueRange(QUEUE, start, end), wanted)
        return pa.Table.from_batches([batch async for batch in batches], wanted.schema)

    async def offsets(self, start: int, end: int, **options: Any) -> list[int]:
        table = await self.read(start, end, **options)
        return list(table["queue_offset"].to_pylist())


@asynccontextmanager
async def one_queue(*offsets: int) -> AsyncIterator[Scene]:
    """A queue with messages at these offsets."""
    servers = FakeNameServer()
    async with serving(servers):
        scene = Scene(servers, QueueBroker({offset: record(offset) for offset in offsets}))
        await scene.serve()
        try:
            async with scene.cluster:
                yield scene
        finally:
            await scene.stop()
