"""Pops across the two worlds: our consumers on Apache's brokers, and beside Java's in one group."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.client.consuming import receipts
from bolide.client.consuming.consume import Retry
from bolide.client.consuming.pop_consumer import PopConsumer
from bolide.client.consuming.push_consumer import PushConsumer
from bolide.client.errors import PopNotSupported
from bolide.client.producing.producer import Producer
from bolide.model.message import Message, StoredMessage
from tests.interop.bench import Bench
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.aio import until

JAVA = "5.x"


class Cluster(NamedTuple):
    bench: Bench
    name_server: str
    broker: str


@contextmanager
def apache(directory: Path, bench: Bench) -> Iterator[Cluster]:
    namesrv = bench.namesrv(JAVA)
    # Pops of Apache's broker go through its timers.
    broker = bench.broker(JAVA, namesrv.address, timerWheelEnable=True)
    yield Cluster(bench, namesrv.address, broker.address)


@contextmanager
def own(directory: Path, bench: Bench) -> Iterator[Cluster]:
    with (
        bolide_namesrv(directory / "namesrv") as namesrv,
        bolide_broker(directory / "broker", namesrv.address) as broker,
    ):
        yield Cluster(bench, namesrv.address, broker.address)


BROKERS: dict[str, Callable[[Path, Bench], Any]] = {"apache": apache, "ours": own}


# The suite has minutes, not hours: the other half is for `make test-long`.
ON_APACHE = pytest.mark.parametrize(
    "cluster", ["apache", pytest.param("ours", marks=pytest.mark.long)], indirect=True
)
ON_OURS = pytest.mark.parametrize(
    "cluster", ["ours", pytest.param("apache", marks=pytest.mark.long)], indirect=True
)


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    java_module_bench: Bench,
) -> Iterator[Cluster]:
    with BROKERS[request.param](tmp_path_factory.mktemp("cluster"), java_module_bench) as served:
        yield served


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:60]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def send(cluster: Cluster, topic: str, *bodies: str) -> None:
    async with Producer("writers", name_server=cluster.name_server) as producer:
        await producer.create_topic(topic, 4)
        for body in bodies:
            await producer.send(Message(topic, body.encode()))


def popper(cluster: Cluster, group: str, **settings: Any) -> PopConsumer:
    chosen = {"consume_from": "first", "name_server": cluster.name_server}
    return PopConsumer(group, **chosen | settings)


async def receive(consumer: PopConsumer, count: int, **how: Any) -> list[StoredMessage]:
    got: list[StoredMessage] = []
    async with asyncio.timeout(30):
        while len(got) < count:
            got += await consumer.receive(32, wait=5, **how)
    return got


@ON_APACHE
def test_messages_are_received_acknowledged_kept_and_buried(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        await send(cluster, topic, *"0123456789")
        async with popper(cluster, f"G-{topic}") as c:
            await c.subscribe(topic)
            got = {m.body.decode(): m for m in await receive(c, 10, invisible=3.0)}
            await c.ack(*(got[body] for body in "01234"))
            await c.ack(got["5"])
            await c.change_invisible(got["6"], 60.0)
            await c.send_back(got["7"], delay_level=-1)
            again = {message.body.decode(): message for message in await receive(c, 2)}
            assert again.keys() == {"8", "9"}
            assert {(m.topic, m.reconsume_times) for m in again.values()} == {(topic, 1)}
            await c.ack(*again.values(), got["6"])
        async with popper(cluster, "undertakers") as undertaker:
            await undertaker.subscribe(f"%DLQ%G-{topic}")
            (dead,) = await receive(undertaker, 1)
            assert dead.body == b"7"

    run(scenario())


@ON_APACHE
def test_queues_are_popped_in_order_if_so_wanted(cluster: Cluster, topic: str) -> None:
    async def scenario() -> None:
        await send(cluster, topic, *map(str, range(40)))
        async with popper(cluster, f"G-{topic}", ordered=True) as c:
            await c.subscribe(topic)
            by_queue: dict[int, list[int]] = {}
            while sum(map(len, by_queue.values())) < 40:
                for message in await receive(c, 1, invisible=30.0):
                    by_queue.setdefault(message.queue_id, []).append(int(message.body))
                    await c.ack(message)
            assert all(numbers == sorted(numbers) for numbers in by_queue.values())

    run(scenario())


@ON_OURS
def test_one_group_of_java_and_python_members_pops_every_message(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "BACK_OFF", (1,))
    group, got = f"G-{topic}", list[StoredMessage]()

    run(send(cluster, topic))
    words = ("setConsumeMode", "-b", cluster.broker, "-t", topic, "-g", group, "-m", "POP")
    told = cluster.bench.mqadmin(JAVA, *words, namesrv=cluster.name_server)
    ours = CliRunner().invoke(app, ["admin", *words, "-n", cluster.name_server])
    assert ours.output.split() == told.split()

    async def take(message: StoredMessage) -> None:
        if message.body == b"once more" and not message.reconsume_times:
            raise Retry("not yet")
        got.append(message)

    async def scenario() -> None:
        java = cluster.bench.client(JAVA, "PopConsumer", cluster.name_server, topic, group, 10_000)
        await asyncio.to_thread(java.wait_for_line, "ready", 30)
        async with PushConsumer(
            group, name_server=cluster.name_server, consume_from="first", rebalance="broker"
        ) as c:
            await c.subscribe(topic, "*", take)
            assert {queue.queue_id for queue in c.assigned_queues} == {-1}

            def bodies() -> tuple[list[str], list[str]]:
                lines = [line.split() for line in java.stdout if line.startswith("got ")]
                return [m.body.decode() for m in got], [" ".join(words[1:-1]) for words in lines]

            sent: set[str] = set()
            async with asyncio.timeout(60):
                # Until each has had some: who is asked first is a matter of chance.
                while not (sent and all(bodies())):
                    fresh = [str(number) for number in range(len(sent), len(sent) + 50)]
                    await send(cluster, topic, *fresh)
                    sent.update(fresh)
            await until(lambda: set().union(*bodies()) >= sent, within=30)
            mine, theirs = bodies()
            assert len(mine) + len(theirs) == len(sent)
            java.kill()
            await send(cluster, topic, "once more")
            await until(lambda: "once more" in bodies()[0], within=60)

    run(scenario())


@pytest.mark.long
def test_brokers_of_4_9_are_told_by_name_and_a_push_consumer_pulls_there(
    java_bench: Bench, topic: str
) -> None:
    async def scenario() -> None:
        namesrv = java_bench.namesrv("4.9")
        broker = java_bench.broker("4.9", namesrv.address)
        old, got = Cluster(java_bench, namesrv.address, broker.address), list[StoredMessage]()
        await send(old, topic, *"abc")
        async with popper(old, "poppers") as c:
            await c.subscribe(topic)
            with pytest.raises(PopNotSupported, match=f"broker-a at {broker.address}"):
                await c.receive()

        async def take(message: StoredMessage) -> None:
            got.append(message)

        async with PushConsumer(
            "pushed", name_server=old.name_server, consume_from="first", rebalance="broker"
        ) as pusher:
            await pusher.subscribe(topic, "*", take)
            await until(lambda: len(got) == 3)

    run(scenario())
