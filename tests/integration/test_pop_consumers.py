"""Consumers that pop, with a NameServer and a broker of ours: nothing is lost, whoever dies."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import sync
from bolide.admin import AdminClient
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.pop import receipts
from bolide.client.consumer.pop.pop_consumer import PopConsumer
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.consumer.subscription import FilterFunction
from bolide.client.errors import WrongState
from bolide.client.producer.producer import Producer
from bolide.errors import ConfigError
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.pop import RequestMode
from tests.support.aio import ended, on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

GROUP = "poppers"


class Scene:
    """A cluster with topic T, a producer, and what handlers wrote down."""

    def __init__(self, cluster: OwnCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.got: list[StoredMessage] = []

    def popper(self, group: str = GROUP, **settings: Any) -> PopConsumer:
        chosen = {"consume_from": "first", "name_server": self.cluster.address}
        return PopConsumer(group, **chosen | settings)

    def pusher(self, **settings: Any) -> PushConsumer:
        chosen = {"consume_from": "first", "name_server": self.cluster.address}
        return PushConsumer(GROUP, rebalance="broker", **chosen | settings)

    async def send(self, *bodies: str, topic: str = "T", queue: int | None = None) -> None:
        where = None if queue is None else MessageQueue(topic, "broker-a", queue)
        for body in bodies:
            await self.producer.send(Message(topic, body.encode()), queue=where)

    async def set_mode(self, mode: RequestMode) -> None:
        async with AdminClient(self.cluster.address) as admin:
            await admin.pop.set_mode(self.cluster.broker.address, "T", GROUP, mode)

    async def take(self, message: StoredMessage) -> None:
        self.got.append(message)


@asynccontextmanager
async def scene(directory: Path, *, queues: int = 2, **settings: Any) -> AsyncIterator[Scene]:
    async with (
        own_cluster(directory, **settings) as cluster,
        Producer("writers", name_server=cluster.address) as producer,
    ):
        await create_topic(producer, "T", queues)
        yield Scene(cluster, producer)


def bodies(messages: Iterable[StoredMessage]) -> list[str]:
    return sorted(message.body.decode() for message in messages)


async def receive(consumer: PopConsumer, count: int, **how: Any) -> list[StoredMessage]:
    """At least so many messages, by as many calls as it takes."""
    got: list[StoredMessage] = []
    async with asyncio.timeout(20):
        while len(got) < count:
            got += await consumer.receive(32, wait=5, **how)
    return got


@on_loop
async def test_what_is_received_comes_again_to_any_member_unless_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as s, s.popper() as first, s.popper() as second:
        await s.send(*"abcdef")
        for consumer in (first, second):
            await consumer.subscribe("T")
        got = await receive(first, 6, invisible=2.0)
        assert bodies(got) == list("abcdef")
        assert await second.receive(wait=0.2) == []
        done = [message for message in got if message.body in b"abc"]
        await first.ack(*done[:2])
        await first.ack(done[2])
        again = await receive(second, 3, invisible=1.0)
        assert bodies(again) == ["d", "e", "f"]
        assert {message.reconsume_times for message in again} == {1}
        assert {message.topic for message in again} == {"T"}
        await second.ack(*again)
        assert await first.receive(wait=1.2) == []


@on_loop
async def test_a_message_may_be_kept_longer_given_back_or_buried(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=1) as s, s.popper() as c:
        await c.subscribe("T")
        await s.send("keep", "back", "bury")
        keep, back, bury = await receive(c, 3, invisible=30.0)
        await c.change_invisible(keep, 60.0)
        begun = time.monotonic()
        await c.change_invisible(back, 0.5)
        await c.send_back(bury, delay_level=-1)
        (again,) = await receive(c, 1)
        assert (again.body, again.reconsume_times) == (b"back", 1)
        assert 0.4 < time.monotonic() - begun < 10.0
        await c.ack(keep, again)
        async with s.popper("undertakers") as undertaker:
            await undertaker.subscribe(f"%DLQ%{GROUP}")
            assert bodies(await receive(undertaker, 1)) == ["bury"]
        assert await c.receive(wait=1.0) == []


@on_loop
async def test_of_several_topics_the_one_that_gets_a_message_is_heard_at_once(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as s, s.popper() as c:
        with pytest.raises(WrongState, match="has no subscription"):
            await c.receive()
        with pytest.raises(TypeError, match="does not support filter functions"):
            await c.subscribe("T", FilterFunction("any"))
        await create_topic(s.producer, "U", 1)
        await c.subscribe("T")
        await c.subscribe("U")
        for topic in ("U", "T", "U"):
            receiving = asyncio.create_task(c.receive(wait=10.0))
            await asyncio.sleep(0.1)
            begun = time.monotonic()
            await s.send("news", topic=topic)
            (message,) = await receiving
            assert message.topic == topic
            assert time.monotonic() - begun < 1.0
            await c.ack(message)


@on_loop
async def test_a_call_outlives_the_restart_of_the_broker(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, s.popper() as c:
        await c.subscribe("T")
        await s.send("before")
        (before,) = await receive(c, 1, invisible=60.0)
        receiving = asyncio.create_task(c.receive(wait=15.0))
        await asyncio.sleep(0.1)
        await s.cluster.stop_broker()
        await s.cluster.start_broker()
        await s.send("after")
        assert bodies(await receiving) == ["after"]
        await c.ack(before)


@on_loop
async def test_in_order_no_more_of_a_queue_comes_until_all_is_done(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=1) as s, s.popper(ordered=True) as c:
        await c.subscribe("T")
        await s.send(*"abcd")
        first = await c.receive(2, invisible=1.5)
        assert bodies(first) == ["a", "b"]
        assert await c.receive(wait=0.2) == []
        await c.ack(first[0])
        (again,) = await c.receive(1, invisible=30.0, wait=5.0)
        assert (again.body, again.reconsume_times) == (b"b", 1)
        await c.ack(again)
        assert bodies(await receive(c, 2)) == ["c", "d"]


@on_loop
async def test_a_consumer_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, s.popper() as survivor:
        await survivor.subscribe("T")
        await s.send(*"abcdefgh")
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", VICTIM, s.cluster.address, GROUP, stdout=asyncio.subprocess.PIPE
        )
        assert victim.stdout is not None
        line = await victim.stdout.readline()
        os.kill(victim.pid, signal.SIGKILL)
        await ended(victim)
        acked = line.decode().strip()
        got = await receive(survivor, 7)
        assert bodies(got) == sorted(set("abcdefgh") - {acked})
        await survivor.ack(*got)
        assert await survivor.receive(wait=0.5) == []


VICTIM = """
import sys, time
from bolide.sync import PopConsumer
with PopConsumer(sys.argv[2], name_server=sys.argv[1], consume_from="first") as c:
    c.subscribe("T")
    got = []
    while len(got) < 8:
        got += c.receive(invisible=2.0)
    c.ack(got[0])
    print(got[0].body.decode(), flush=True)
    time.sleep(60)
"""


def test_the_front_without_await_receives_and_acknowledges(tmp_path: Path) -> None:
    @on_loop
    async def scenario() -> None:
        async with scene(tmp_path) as s:
            await s.send("a", "b")
            assert await asyncio.to_thread(use, s.cluster.address) == ["a", "b"]

    def use(address: str) -> list[str]:
        with sync.PopConsumer(GROUP, name_server=address, consume_from="first") as c:
            c.subscribe("T")
            got = []
            for message in c:
                c.change_invisible(message, 5.0)
                c.ack(message)
                got.append(message)
                if len(got) == 2:
                    return bodies(got)
        raise AssertionError

    scenario()


# ---- the push consumer, where the broker has it pop


@on_loop
async def test_a_push_consumer_pops_where_its_broker_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "BACK_OFF", (1,))
    tries: list[int] = []

    async with scene(tmp_path) as s:

        async def handle(message: StoredMessage) -> None:
            if message.body == b"bad":
                tries.append(message.reconsume_times)
                raise Retry("never")
            if message.body == b"3" and not message.reconsume_times:
                raise Retry("once more")
            await s.take(message)

        await s.set_mode(RequestMode.POP)
        async with s.pusher(max_reconsume_times=1) as one, s.pusher() as two:
            for consumer in (one, two):
                await consumer.subscribe("T", "*", handle)
                assert consumer.assigned_queues == {MessageQueue("T", "broker-a", -1)}
            await s.send(*"0123456789")
            await until(lambda: len(s.got) == 10)
            (shown,) = one._member.running().mq_pop_table.items()
            assert (shown[0].queue_id, shown[1].wait_ack_count <= 10) == (-1, True)
            await two.close()
            await s.send("bad")
            await until(lambda: tries == [0, 1])
            async with s.popper("undertakers") as undertaker:
                await undertaker.subscribe("T")  # until there is a dead letter there is no topic
                await until(lambda: "%DLQ%" + GROUP in s.cluster.broker.parts.topics)
                await undertaker.subscribe(f"%DLQ%{GROUP}")
                await undertaker.unsubscribe("T")
                assert bodies(await receive(undertaker, 1)) == ["bad"]
        assert bodies(s.got) == list("0123456789")
        async with s.popper() as left:
            await left.subscribe("T")
            assert await left.receive(wait=0.5) == []


@on_loop
async def test_retries_of_pops_are_not_forgotten_when_a_group_goes_back_to_pulling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "BACK_OFF", (1,))

    async def fail(message: StoredMessage) -> None:
        raise Retry("not yet")

    async with scene(tmp_path) as s:
        await s.set_mode(RequestMode.POP)
        await s.send("a")
        async with s.pusher() as popping:
            await popping.subscribe("T", "*", fail)
            await until(lambda: f"%RETRY%{GROUP}_T" in s.cluster.broker.parts.topics)
        await s.set_mode(RequestMode.PULL)
        async with s.pusher() as pulling:
            await pulling.subscribe("T", "*", s.take)
            await s.send("b")
            await until(lambda: set(bodies(s.got)) >= {"a", "b"})
            assert {queue.queue_id for queue in pulling.assigned_queues} == {0, 1}
        # One that was under way when the mode changed may come in both ways.
        assert set(bodies(s.got)) == {"a", "b"}
        assert {message.topic for message in s.got} == {"T"}


@on_loop
async def test_closing_gives_back_what_no_handler_has_begun(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def dawdle(message: StoredMessage) -> None:
        begun.set()
        await asyncio.sleep(0.3)

    async with scene(tmp_path) as s:
        await s.set_mode(RequestMode.POP)
        await s.send(*"0123456789")
        async with s.pusher(concurrency=1) as slow:
            await slow.subscribe("T", "*", dawdle)
            await begun.wait()
        async with s.popper() as other:
            await other.subscribe("T")
            got = await receive(other, 7)
        assert 7 <= len(got) <= 9


def test_settings_that_do_not_go_with_pops_are_refused() -> None:
    with pytest.raises(ConfigError, match="rebalance='both'"):
        PushConsumer("g", rebalance="both")
    with pytest.raises(ConfigError, match="average_by_circle only"):
        PushConsumer("g", rebalance="broker", allocate=lambda *_: [])
    with pytest.raises(ConfigError, match="pop_batch_size=33"):
        PushConsumer("g", pop_batch_size=33)
    with pytest.raises(ConfigError, match="pop_invisible=1: must be 5 to 300"):
        PushConsumer("g", pop_invisible=1)
    with pytest.raises(ConfigError, match='begins "first" or "last"'):
        PopConsumer("g", consume_from="timestamp")
    with pytest.raises(ConfigError, match="cannot broadcast"):
        PopConsumer("g", model="broadcasting")  # type: ignore[call-arg]
