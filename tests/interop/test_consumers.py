"""Our consumers with Java's brokers, beside Java's consumers, and under Java's mqadmin."""

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bolide.admin import AdminClient
from bolide.client.consumer.group.assignment import (
    Strategy,
    average,
    average_by_circle,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
)
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.pull.lite_pull_consumer import LitePullConsumer
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.client.consumer.pull.pull_request import PullStatus
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.errors import RouteNotFound
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.interop.bench import Bench
from tests.interop.processes import ProcessFailed
from tests.support.aio import until

QUICK_DELAYS = " ".join(["1s"] * 18)


class Cluster(NamedTuple):
    bench: Bench
    version: str
    address: str

    def mqadmin(self, *arguments: str) -> str:
        return self.bench.mqadmin(self.version, *arguments, namesrv=self.address)


@pytest.fixture(scope="module")
def cluster(rocketmq: str, java_module_bench: Bench) -> Cluster:
    namesrv = java_module_bench.namesrv(rocketmq)
    java_module_bench.broker(rocketmq, namesrv.address, messageDelayLevel=QUICK_DELAYS)
    return Cluster(java_module_bench, rocketmq, namesrv.address)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:100]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def send(cluster: Cluster, topic: str, *bodies: str, queues: int = 4, tags: str = "") -> None:
    async with Producer("writers", name_server=cluster.address) as producer:
        await producer.create_topic(topic, queues)
        for body in bodies:
            await producer.send(Message(topic, body.encode(), tags=tags))


async def send_evenly(cluster: Cluster, topic: str, *bodies: str) -> None:
    """To the four queues in turn, none of them twice."""
    async with Producer("writers", name_server=cluster.address) as producer:
        for number, body in enumerate(bodies):
            queue = MessageQueue(topic, "broker-a", number % 4)
            await producer.send(Message(topic, body.encode()), queue=queue)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def consumer(cluster: Cluster, topic: str, **settings: Any) -> PushConsumer:
    chosen = {"consume_from": "first", "name_server": cluster.address}
    return PushConsumer(f"group-{topic}", **chosen | settings)


def test_messages_are_pushed_retried_and_left_among_the_dead(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        got: list[StoredMessage] = []
        tries: list[int] = []

        async def take(message: StoredMessage) -> None:
            if message.body == b"bad":
                tries.append(message.reconsume_times)
                raise Retry("never")
            if message.body == b"7" and message.reconsume_times == 0:
                raise Retry("once more")
            got.append(message)

        await send(cluster, topic, *numbers(20), "bad", tags="A")
        await send(cluster, topic, "no", tags="B")
        async with consumer(cluster, topic, max_reconsume_times=1) as c:
            await c.subscribe(topic, "A", take)
            await until(lambda: len(got) >= 20 and len(tries) >= 2, within=30)
            dead = f"%DLQ%group-{topic}"
            async with PullConsumer("undertaker", name_server=cluster.address) as puller:
                letter = MessageQueue(dead, "broker-a", 0)
                async with asyncio.timeout(30):
                    while not await dead_letters(puller, letter):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
        assert sorted(int(message.body) for message in got) == list(range(20))
        assert {message.topic for message in got} == {topic}
        assert tries == [0, 1]

    run(scenario())


async def dead_letters(puller: PullConsumer, queue: MessageQueue) -> Sequence[StoredMessage]:
    try:
        await puller._instance.routes.refresh(queue.topic)
    except RouteNotFound:
        return []
    found = await puller.pull(queue, "*", 0)
    return found.messages if found.status is PullStatus.FOUND else []


def test_order_is_kept_while_members_come_and_go(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        got: list[StoredMessage] = []

        async def take(message: StoredMessage) -> None:
            await asyncio.sleep(0.001)
            got.append(message)

        await send(cluster, topic, *numbers(120), queues=2)
        async with consumer(cluster, topic) as first:
            await first.subscribe(topic, "*", take, ordered=True)
            async with consumer(cluster, topic) as second:
                await second.subscribe(topic, "*", take, ordered=True)
                await until(lambda: len(second.assigned_queues) == 1, within=30)
            await until(lambda: len(got) >= 120, within=30)
        for queue in range(2):
            assert [m.queue_offset for m in got if m.queue_id == queue] == list(range(60))

    run(scenario())


def test_keys_are_parked_and_resumed_on_javas_broker(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        group, got, poison = f"group-{topic}", list[str](), {"a", "b"}

        async def take(message: StoredMessage) -> None:
            if message.sharding_key in poison:
                raise ValueError("bad")
            got.append(message.body.decode())

        async def parked() -> dict[str, int]:
            return {each.key: each.count for each in await admin.parked.keys(group)}

        async def until_parked(**wanted: int) -> None:
            async with asyncio.timeout(30):
                while await parked() != wanted:  # noqa: ASYNC110  nobody tells
                    await asyncio.sleep(0.05)

        async def send_each(number: int) -> None:
            for key in "abc":
                await producer.send(Message(topic, f"{key}{number}".encode(), sharding_key=key))

        @asynccontextmanager
        async def member() -> AsyncIterator[None]:
            settings: Any = {"ordered_suspend": 0.01, "max_reconsume_times": 1}
            async with consumer(cluster, topic, **settings) as c:
                await c.subscribe(topic, take, ordered=True, order_by="keys", on_poison="park")
                yield

        await send(cluster, topic, queues=1)
        async with (
            Producer("writers", name_server=cluster.address) as producer,
            AdminClient(cluster.address) as admin,
        ):
            await send_each(0)
            async with member():
                await until_parked(a=1, b=1)
                await until(lambda: got == ["c0"])
            await send_each(1)
            async with member():  # it knows what the first one left
                await until_parked(a=2, b=2)
                await until(lambda: got == ["c0", "c1"])
                poison.clear()
                await admin.parked.resume(group, key="a")
                await admin.parked.dead_letter(group, key="b")
                await send_each(2)
                await until(lambda: {"a0", "a1", "a2", "b2", "c2"}.issubset(got), within=30)
                await until_parked()
            assert [each for each in got if each[0] == "a"] == ["a0", "a1", "a2"]
            dead = await admin.messages.pull(MessageQueue(f"%DLQ%{group}", "broker-a", 0), 0)
            assert [message.body for message in dead.messages] == [b"b0", b"b1"]

    run(scenario())


def test_a_java_member_and_ours_share_a_group(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        got: set[bytes] = set()
        await send(cluster, topic, queues=4)
        async with PushConsumer(
            f"receive-{topic}", name_server=cluster.address, consume_from="first"
        ) as c:
            await c.subscribe(topic, "*", lambda message: got.add(message.body))
            # The Java program stops by itself when it has got as many as it was told.
            java = cluster.bench.client(
                cluster.version, "ReceiveMessages", cluster.address, topic, 10
            )
            await asyncio.to_thread(java.wait_for_line, "ready", 30)
            await until(lambda: len(c.assigned_queues) == 2, within=30)
            await send_evenly(cluster, topic, *numbers(20))
            try:
                await asyncio.to_thread(java.wait, 30)
            except ProcessFailed as exc:
                exc.add_note(f"ours has {sorted(got)} of {c.assigned_queues}")
                raise
            await until(lambda: len(c.assigned_queues) == 4, within=30)
            await send(cluster, topic, "last")
            # The Java program may leave before it has committed what it got last.
            await until(lambda: b"last" in got and len(got) >= 11, within=30)

    run(scenario())


def test_java_mqadmin_sees_a_consumer_of_ours_and_resets_it(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        got: list[bytes] = []

        async def take(message: StoredMessage) -> None:
            got.append(message.body)  # on the loop: done for `commit` as soon as it is seen here

        await send(cluster, topic, *numbers(8), queues=2)
        group = f"group-{topic}"
        async with consumer(cluster, topic, suspend=1.0) as c:
            await c.subscribe(topic, "*", take)
            await until(lambda: len(got) == 8)
            await c.commit()
            status = await asyncio.to_thread(
                cluster.mqadmin, "consumerStatus", "-g", group, "-i", c.client_id, "-s"
            )
            assert "PROP_CONSUME_TYPE" in status
            assert "CONSUME_PASSIVELY" in status
            assert re.search(rf"{topic}\s+broker-a\s+1\s+4", status)
            progress = await asyncio.to_thread(cluster.mqadmin, "consumerProgress", "-g", group)
            assert "Diff Total: 0" in progress, (progress, got, c.assigned_queues)
            await asyncio.to_thread(
                cluster.mqadmin, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "0"
            )
            await until(lambda: len(got) == 16, within=40)
        assert sorted(got[8:]) == sorted(got[:8])

    run(scenario())


def test_broadcasting_members_get_everything(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        one: list[bytes] = []
        two: list[bytes] = []
        await send(cluster, topic, *numbers(10))
        shared: Any = {"model": "broadcasting", "offset_directory": tmp_path}
        async with (
            consumer(cluster, topic, instance_name="one", **shared) as first,
            consumer(cluster, topic, instance_name="two", **shared) as second,
        ):
            await first.subscribe(topic, "*", lambda message: one.append(message.body))
            await second.subscribe(topic, "*", lambda message: two.append(message.body))
            await until(lambda: len(one) == len(two) == 10)

    run(scenario())


def test_polls_and_pulls_work_with_java_brokers(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        await send(cluster, topic, *numbers(12), queues=2, tags="A")
        group = f"group-{topic}"
        async with LitePullConsumer(
            group, name_server=cluster.address, consume_from="first"
        ) as lite:
            await lite.subscribe(topic, "A")
            got: list[StoredMessage] = []
            while len(got) < 12:
                got += await lite.poll(10)
            await lite.commit()
            assert [await lite.committed(queue) for queue in lite.assigned_queues] == [6, 6]
        async with PullConsumer(group, name_server=cluster.address) as puller:
            queue = (await puller.fetch_subscribe_queues(topic))[0]
            assert await puller.fetch_consume_offset(queue) == 6
            found = await puller.pull(queue, "A", 2)
            assert [message.queue_offset for message in found.messages] == [2, 3, 4, 5]
            waiting = asyncio.create_task(puller.pull_block_if_not_found(queue, "*", 6))
            await send(cluster, topic, "late", "later", queues=2)
            assert len((await waiting).messages) == 1

    run(scenario())


# Sharing out

CASES = [
    ("broker-a", 8, ["10.0.0.1@7", "10.0.0.2@7", "10.0.0.3@7"]),
    ("broker-a,broker-b", 16, [f"192.168.0.{n}@{n}#123" for n in range(7)]),
    ("x@a,y@b,z@c,plain", 3, ["x@1", "x@2", "y@1"]),
    ("x@a", 2, [f"x@{n}" for n in range(5)]),
]
STRATEGIES: dict[str, Strategy] = {
    "average": average,
    "circle": average_by_circle,
    "hash": consistent_hash,
    "rooms": by_machine_room({"x", "y"}),
    "nearby": machine_room_nearby(
        average,
        broker_room=lambda queue: queue.broker_name.split("@")[0],
        client_room=lambda client: client.split("@")[0],
    ),
}


def test_every_strategy_gives_what_java_gives(java_bench: Bench, rocketmq: str) -> None:
    cases = [f"{brokers}|{count}|{','.join(clients)}" for brokers, count, clients in CASES]
    printed = java_bench.client(rocketmq, "Allocations", *cases).wait(60)
    assert [line.rstrip() for line in printed] == list(ours())


def ours() -> Sequence[str]:
    lines = []
    for number, (brokers, count, clients) in enumerate(CASES):
        names = brokers.split(",")
        queues = sorted(MessageQueue("T", name, n) for name in names for n in range(count))
        for name, strategy in STRATEGIES.items():
            for client in sorted(clients):
                mine = strategy("G", client, queues, sorted(clients))
                words = [f"{queue.broker_name}/{queue.queue_id}" for queue in mine]
                lines.append(" ".join([f"{number} {name} {client}:", *words]))
    return lines
