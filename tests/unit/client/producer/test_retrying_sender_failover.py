"""Sends while a master is replaced, or while a broker group is dead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from bolide import Message, Producer
from bolide.client.errors import SendFailed
from bolide.client.instance import suspects
from bolide.client.instance.instance import ClientInstance
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendHeader
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop, until
from tests.support.cluster import FakeBroker, FakeNameServer, serving

MESSAGE = Message("T", b"x")


def member_route(**groups: dict[int, FakeBroker]) -> TopicRoute:
    """Two queues on each group, and its members by id."""
    return TopicRoute(
        queue_datas=[
            QueueRoute(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
            for name in groups
        ],
        broker_datas=[
            BrokerRoute(
                broker_name=name,
                cluster="c",
                broker_addrs={number: broker.address for number, broker in members.items()},
            )
            for name, members in groups.items()
        ],
    )


class Group:
    """Brokers `a1` and `a2` of one group, and `b` of another; all serve until they are stopped."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.servers = FakeNameServer()
        self.a1, self.a2, self.b = FakeBroker("a"), FakeBroker("a"), FakeBroker("b")
        self._stack = stack
        self._serving: dict[FakeBroker, AsyncExitStack] = {}

    async def start(self) -> None:
        await self._stack.enter_async_context(serving(self.servers))
        for broker in (self.a1, self.a2, self.b):
            stack = await self._stack.enter_async_context(AsyncExitStack())
            await stack.enter_async_context(serving(broker))
            self._serving[broker] = stack

    async def stop(self, broker: FakeBroker) -> None:
        await self._serving[broker].aclose()

    def route(self, **groups: dict[int, FakeBroker]) -> None:
        self.servers.routes["T"] = member_route(**groups)

    def producer(self, **settings: Any) -> Producer:
        chosen = {"send_timeout": 1.0, "route_interval": 300.0} | settings
        return Producer("G", name_server=self.servers.address, **chosen)


@asynccontextmanager
async def group() -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        it = Group(stack)
        await it.start()
        yield it


def instance_of(producer: Producer) -> ClientInstance:
    return producer._instance


@on_loop
async def test_a_send_waits_for_a_new_master_and_finds_it_soon() -> None:
    async with group() as it:
        it.route(a={0: it.a1, 1: it.a2})
        async with it.producer(send_timeout=60.0) as producer:
            await producer.send(MESSAGE)
            await it.stop(it.a1)
            before = len(it.servers.asked)
            sending = asyncio.create_task(producer.send(MESSAGE))
            await until(lambda: len(it.servers.asked) >= before + 5)
            assert not sending.done()
            it.route(a={0: it.a2})
            # Some 0.2 s. Without queries out of turn the send would wait for the poll of the
            # routes, for 300 s, or fail after 60.
            async with asyncio.timeout(10.0):
                await sending
            assert len(it.a2.sends) == 1


@on_loop
async def test_a_send_waits_while_the_route_has_slaves_only() -> None:
    async with group() as it:
        it.route(a={1: it.a2})
        async with it.producer() as producer:
            sending = asyncio.create_task(producer.send(MESSAGE))
            await asyncio.sleep(0.2)
            assert not sending.done()
            it.route(a={0: it.a2})
            await sending


@on_loop
async def test_who_waits_for_a_master_queries_the_route_a_few_times_a_second() -> None:
    async with group() as it:
        it.route(a={0: it.a1, 1: it.a2})
        async with it.producer() as producer:
            await producer.send(MESSAGE)
            await it.stop(it.a1)
            before = len(it.servers.asked)
            sends = [producer.send(MESSAGE) for _ in range(200)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert all(isinstance(each, SendFailed) for each in results)
            assert len(it.servers.asked) - before < 30


@on_loop
async def test_a_message_for_one_queue_waits_for_the_new_master_too() -> None:
    async with group() as it:
        it.route(a={0: it.a1, 1: it.a2})
        async with it.producer() as producer:
            await producer.send(MESSAGE)
            await it.stop(it.a1)
            queue = MessageQueue("T", "a", 1)
            sending = asyncio.create_task(producer.send(MESSAGE, queue=queue))
            await asyncio.sleep(0.1)
            it.route(a={0: it.a2})
            assert (await sending).queue == queue


@on_loop
async def test_a_send_is_not_repeated_without_retries() -> None:
    async with group() as it:
        it.route(a={0: it.a1})
        async with it.producer(retries=0) as producer:
            await producer.send(MESSAGE)
            await it.stop(it.a1)
            with pytest.raises(SendFailed, match="1 try"):
                await producer.send(MESSAGE)
            with pytest.raises(SendFailed, match="1 try"):
                await producer.send(MESSAGE, queue=MessageQueue("T", "a", 1))


def refuse(_header: SendHeader, _frame: Frame) -> Reply:
    return Reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="this broker is a slave")


@pytest.mark.parametrize("retries", [0, 2])
@on_loop
async def test_after_a_send_to_one_queue_that_a_slave_refused_the_next_finds_the_master(
    retries: int,
) -> None:
    async with group() as it:
        it.route(a={0: it.a1, 1: it.a2})
        async with it.producer(retries=retries) as producer:
            queue = MessageQueue("T", "a", 1)
            await producer.send(MESSAGE, queue=queue)
            it.a1.answer = refuse
            it.route(a={0: it.a2, 1: it.a1})
            with pytest.raises(SendFailed, match="1 try"):  # it may be stored, so no second one
                await producer.send(MESSAGE, queue=queue)
            found = instance_of(producer).routes
            await until(lambda: found.master_of(queue) == it.a2.address)
            await producer.send(MESSAGE, queue=queue)
            assert len(it.a2.sends) == 1


@on_loop
async def test_a_master_that_became_a_slave_is_left_for_the_new_one() -> None:
    async with group() as it:
        it.route(a={0: it.a1, 1: it.a2})
        async with it.producer() as producer:
            await producer.send(MESSAGE)
            it.a1.answer = refuse
            it.route(a={0: it.a2, 1: it.a1})
            await producer.send(MESSAGE)
            assert len(it.a2.sends) == 1


@on_loop
async def test_sends_to_a_paused_master_are_repeated_at_its_successor() -> None:
    async with group() as it:
        it.route(a={0: it.a1, 1: it.a2})
        async with it.producer() as producer:
            await producer.send(MESSAGE)
            it.a1.hold = asyncio.Event()
            with pytest.raises(SendFailed):
                await producer.send(MESSAGE, timeout=0.2)
            # It is suspected now, so its routes are watched while the next send waits.
            before = len(it.a1.sends)
            sending = asyncio.create_task(producer.send(MESSAGE, timeout=60.0))
            await until(lambda: len(it.a1.sends) == before + 1)
            it.route(a={0: it.a2})
            # Some 0.2 s. Without the watch the send would wait for its timeout, 60 s.
            async with asyncio.timeout(10.0):
                await sending
            it.a1.hold.set()
            assert len(it.a2.sends) == 1


@on_loop
async def test_a_dead_group_is_avoided_by_later_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    broker_failed = ClientInstance.broker_failed

    def count(self: ClientInstance, address: str, topic: str) -> None:
        failed.append(address)
        broker_failed(self, address, topic)

    monkeypatch.setattr(ClientInstance, "broker_failed", count)
    async with group() as it:
        it.route(a={0: it.a1}, b={0: it.b})
        async with it.producer() as producer:
            for _ in range(4):
                await producer.send(MESSAGE)
            assert len(it.a1.sends) == len(it.b.sends) == 2
            await it.stop(it.a1)
            for _ in range(20):
                assert (await producer.send(MESSAGE)).queue.broker_name == "b"
            assert failed == [it.a1.address]  # of one try: the others went to `b` at once
            instance = instance_of(producer)
            assert it.a1.address in instance.suspects
            assert it.b.address not in instance.suspects


@on_loop
async def test_a_paused_group_costs_one_send_its_time_and_is_avoided_then() -> None:
    async with group() as it:
        it.route(a={0: it.a1}, b={0: it.b})
        # Tries at `b` must not fail, too, and it is this process that answers them.
        async with it.producer(send_timeout=60.0, try_timeout=2.0) as producer:
            for _ in range(4):
                await producer.send(MESSAGE)
            it.a1.hold = asyncio.Event()
            for _ in range(10):
                await producer.send(MESSAGE)
            assert len(it.a1.sends) == 3
            it.a1.hold.set()
            await until(lambda: not instance_of(producer).suspects)
            for _ in range(4):
                await producer.send(MESSAGE)
            assert len(it.a1.sends) == 5


@on_loop
async def test_a_broker_that_only_was_slow_is_not_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "FIRST_PAUSE", 3600.0)  # a second probe would never come
    async with group() as it:
        it.route(a={0: it.a1}, b={0: it.b})
        async with it.producer() as producer:
            for _ in range(4):
                await producer.send(MESSAGE)
            instance_of(producer).broker_failed(it.a1.address, "T")
            await until(lambda: not instance_of(producer).suspects)
