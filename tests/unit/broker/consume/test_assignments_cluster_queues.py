"""Queues of a topic on all brokers: fetched from NameServers, cached, available without them."""

from typing import Any

from bolide.broker.consume.assignments import ClusterQueues
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import QueueRoute, TopicRoute
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.errors import ConnectFailed
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables
from tests.support.clock import FakeClock

MINE = MessageQueue("T", "broker-a", 0)
THEIRS = MessageQueue("T", "broker-b", 0)


class NameServers:
    """Two NameServers; the first is down."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: TopicRoute | Exception = TopicRoute(
            queue_datas=[
                QueueRoute(broker_name="broker-a", read_queue_nums=9, perm=6),
                QueueRoute(broker_name="broker-b", read_queue_nums=1, perm=4),
                QueueRoute(broker_name="broker-c", read_queue_nums=1, perm=2),
            ]
        )

    async def call(self, server: str, *_: object, **__: object) -> Frame:
        self.asked.append(server)
        if server == "down:1":
            raise ConnectFailed(server, "down")
        if isinstance(self.answer, Exception):
            raise self.answer
        return Frame(code=ResponseCode.SUCCESS, body=fastjson.encode(self.answer))


async def known(tables: BrokerTables) -> tuple[ClusterQueues, NameServers, FakeClock]:
    """Topic T with one queue on this broker and one on another, and NameServers."""
    tables = tables.restarted(name_servers=("down:1", "up:1"))
    await tables.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    clock, servers = FakeClock(), NameServers()
    queues = ClusterQueues(tables.cell, tables.topics, clock)
    client: Any = servers
    queues.use(client)
    return queues, servers, clock


@on_loop
async def test_readable_queues_of_all_brokers_are_found_and_remembered(
    tables: BrokerTables,
) -> None:
    queues, servers, clock = await known(tables)
    assert await queues.find("T") == [MINE, THEIRS]
    assert await queues.find("T") == [MINE, THEIRS]
    assert servers.asked == ["down:1", "up:1"]
    servers.answer = TopicRoute()
    clock.advance(31)
    assert await queues.find("T") == [MINE]


@on_loop
async def test_cached_queues_are_used_while_no_name_server_answers(tables: BrokerTables) -> None:
    queues, servers, clock = await known(tables)
    await queues.find("T")
    servers.answer = ConnectFailed("up:1", "down too")
    clock.advance(31)
    assert await queues.find("T") == [MINE, THEIRS]
    assert await queues.find("T") == [MINE, THEIRS]
    assert len(servers.asked) == 4  # cached in between


@on_loop
async def test_a_topic_that_is_gone_is_forgotten_and_one_that_never_was_has_no_queues(
    tables: BrokerTables,
) -> None:
    queues, servers, clock = await known(tables)
    await queues.find("T")
    servers.answer = TopicNotFound("gone")
    clock.advance(31)
    assert await queues.find("T") == [MINE]
    assert await queues.find("missing") is None
