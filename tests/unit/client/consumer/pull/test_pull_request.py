"""What a pull asks for, and what its answer means."""

import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bolide.client.consumer.pull import pull_request
from bolide.client.consumer.pull.pull_request import Pull, Puller, PullStatus
from bolide.client.consumer.received import read_messages
from bolide.client.consumer.subscription import Filter, Sql
from bolide.client.errors import BrokerUnknown
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.settings import ClientSettings
from bolide.model.message import CompressionType, Host, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.compression import compress
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.record import encode_message
from bolide.protocol.refusals import SystemBusy
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.aio import on_loop, until
from tests.support.cluster import FakeNameServer, serving

QUEUE = MessageQueue("T", "broker-a", 0)


def pull(**given: Any) -> Pull:
    wanted = Filter.of("T", "A", 5)
    values: dict[str, Any] = {"queue": QUEUE, "filter": wanted, "queue_offset": 3, "max_count": 32}
    return Pull(**values | given)


def flag(to_slave: bool = False, **given: Any) -> int:
    return pull(**given).header("G", to_slave=to_slave).sys_flag


def test_the_flag_says_what_the_broker_shall_do() -> None:
    assert flag() == 0
    assert flag(commit_offset=7) == 1
    assert flag(suspend=15.0) == 2
    assert flag(with_subscription=True) == 4
    assert flag(is_lite=True) == 16
    assert flag(commit_offset=7, suspend=1.0, with_subscription=True, is_lite=True) == 23


def test_a_slave_is_not_told_of_progress() -> None:
    assert flag(to_slave=True, commit_offset=7, suspend=1.0) == 2


def test_the_expression_goes_along_only_if_asked_for() -> None:
    assert pull().header("G", to_slave=False).subscription is None
    header = pull(filter=Filter.of("T", Sql("a = 1"), 9), with_subscription=True, suspend=15.0)
    sent = header.header("G", to_slave=False)
    assert (sent.subscription, sent.expression_type, sent.sub_version) == ("a = 1", "SQL92", 9)
    assert sent.suspend_timeout_millis == 15_000


class PullBroker:
    """Answers pulls as it is told."""

    def __init__(self) -> None:
        self.address = ""
        self.headers: list[PullHeader] = []
        self.reply = Reply(header=answer())

    @handles(PullHeader, RequestCode.PULL_MESSAGE)
    def pulled(self, request: Request[PullHeader]) -> Reply:
        self.headers.append(request.header)
        return self.reply


def answer(**given: Any) -> PullReply:
    values = {"suggest_which_broker_id": 0, "next_begin_offset": 9, "min_offset": 1}
    return PullReply(**values | {"max_offset": 20} | given)


def record(queue_offset: int, tags: str, body: bytes = b"body", sys_flag: int = 0) -> bytes:
    host = Host("127.0.0.1", 1)
    return encode_message(
        StoredMessage(
            "T",
            body,
            {"TAGS": tags},
            queue_offset=queue_offset,
            sys_flag=sys_flag,
            born_host=host,
            store_host=host,
        )
    )


class Scene:
    def __init__(
        self,
        master: PullBroker,
        slave: PullBroker,
        instance: ClientInstance,
        master_server: RemotingServer,
    ) -> None:
        self.master = master
        self.slave = slave
        self.instance = instance
        self.master_server = master_server

    async def stop_master(self) -> None:
        await self.master_server.__aexit__(None, None, None)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """A master and its slave, known to a NameServer."""
    servers, master, slave = FakeNameServer(), PullBroker(), PullBroker()
    config = ServerConfig(host="127.0.0.1", port=0, drain_timeout=0.2)
    async with (
        serving(servers),
        RemotingServer(config, Dispatcher(master)) as first,
        RemotingServer(config, Dispatcher(slave)) as second,
    ):
        master.address, slave.address = first.address, second.address
        addresses = {0: first.address, 1: second.address}
        servers.routes["T"] = TopicRoute(
            queue_datas=[QueueRoute(broker_name="broker-a", read_queue_nums=1, perm=6)],
            broker_datas=[BrokerRoute(broker_name="broker-a", broker_addrs=addresses)],
        )
        instance = await ClientInstance.acquire(ClientSettings.of(name_server=servers.address))
        try:
            yield Scene(master, slave, instance, first)
        finally:
            await instance.release()


@on_loop
async def test_tags_are_checked_again_and_messages_know_the_bounds_of_their_queue() -> None:
    async with scene() as it:
        body = record(3, "A") + record(4, "same hash, other text") + record(5, "A")
        it.master.reply = Reply(header=answer(), body=body)
        found = await Puller(it.instance, "G").pull(pull())
        assert found.status is PullStatus.FOUND
        assert [message.queue_offset for message in found.messages] == [3, 5]
        assert (found.messages[0].min_offset, found.messages[0].lag) == (1, 17)
        assert found.messages[0].broker_name == "broker-a"
        assert (found.next_offset, found.min_offset, found.max_offset) == (9, 1, 20)


@on_loop
async def test_the_next_pull_goes_where_the_broker_suggested() -> None:
    async with scene() as it:
        puller = Puller(it.instance, "G")
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
        it.master.reply = Reply(code=code, header=answer(suggest_which_broker_id=1))
        first = await puller.pull(pull(commit_offset=2))
        second = await puller.pull(pull(commit_offset=2))
        assert (first.status, second.status) == (PullStatus.NO_MATCHED_MSG, PullStatus.FOUND)
        assert [header.sys_flag for header in it.master.headers] == [1]
        assert [header.sys_flag for header in it.slave.headers] == [0]
        await puller.pull(pull())
        assert len(it.master.headers) == 2  # the slave suggested the master again


@on_loop
async def test_a_hook_leaves_messages_out_and_a_broken_one_does_not() -> None:
    async with scene() as it:
        it.master.reply = Reply(header=answer(), body=record(3, "A") + record(4, "A"))
        chosen = await Puller(it.instance, "G", [lambda m: m.queue_offset == 4]).pull(pull())
        assert [message.queue_offset for message in chosen.messages] == [4]
        kept = await Puller(it.instance, "G", [lambda m: bool(1 // 0)]).pull(pull())
        assert len(kept.messages) == 2


@on_loop
async def test_offsets_of_a_static_topic_are_moved() -> None:
    async with scene() as it:
        it.master.reply = Reply(header=answer(offset_delta=100), body=record(3, "A"))
        found = await Puller(it.instance, "G").pull(pull())
        assert [message.queue_offset for message in found.messages] == [103]


@on_loop
async def test_a_broker_that_no_route_names_is_an_error() -> None:
    async with scene() as it:
        with pytest.raises(BrokerUnknown, match="broker-z"):
            await Puller(it.instance, "G").pull(pull(queue=MessageQueue("T", "broker-z", 0)))


@on_loop
async def test_bodies_that_grow_are_inflated_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def read(*args: Any, **kwargs: Any) -> list[StoredMessage]:
        threads.append(threading.current_thread())
        return read_messages(*args, **kwargs)

    monkeypatch.setattr(pull_request, "read_messages", read)
    noise, kind = random.Random(1).randbytes(10_000), CompressionType.ZLIB
    async with scene() as it:
        puller = Puller(it.instance, "G")
        plain, packed = record(3, "A", noise), record(4, "A", compress(noise, kind), kind.flags)
        for body in (plain, plain + packed):
            it.master.reply = Reply(header=answer(), body=body)
            found = await puller.pull(pull())
            assert {message.body for message in found.messages} == {noise}
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, False]


@on_loop
async def test_a_slave_is_read_at_once_when_the_master_is_gone() -> None:
    async with scene() as it:
        puller = Puller(it.instance, "G")
        await puller.pull(pull())
        await it.stop_master()
        for _ in range(2):  # a slave suggests the master, which it believes to be there
            found = await puller.pull(pull(commit_offset=2))
            assert found.status is PullStatus.FOUND
        assert [header.sys_flag for header in it.slave.headers] == [0, 0]
        assert it.master.address in it.instance.suspects


@on_loop
async def test_readers_return_to_a_master_that_is_back() -> None:
    async with scene() as it:
        puller = Puller(it.instance, "G")
        await it.stop_master()
        await puller.pull(pull())
        port = int(it.master.address.rpartition(":")[2])
        config = ServerConfig(host="127.0.0.1", port=port, drain_timeout=0.2)
        async with RemotingServer(config, Dispatcher(it.master)):
            await until(lambda: it.master.address not in it.instance.suspects)
            await puller.pull(pull(commit_offset=2))
            assert [header.sys_flag for header in it.master.headers] == [1]


@on_loop
async def test_a_slave_that_lacks_messages_does_not_move_its_reader() -> None:
    async with scene() as it:
        puller = Puller(it.instance, "G")
        await it.stop_master()
        code = ResponseCode.PULL_OFFSET_MOVED
        it.slave.reply = Reply(code=code, header=answer(next_begin_offset=1))
        found = await puller.pull(pull(queue_offset=3))
        assert (found.status, found.next_offset) == (PullStatus.NO_NEW_MSG, 3)


@on_loop
async def test_a_slave_that_refuses_is_not_asked_again() -> None:
    async with scene() as it:
        puller = Puller(it.instance, "G")
        it.master.reply = Reply(header=answer(suggest_which_broker_id=1))
        await puller.pull(pull())
        it.slave.reply = Reply(code=ResponseCode.SYSTEM_BUSY)
        with pytest.raises(SystemBusy):
            await puller.pull(pull())
        await puller.pull(pull())
        assert len(it.master.headers) == 2
