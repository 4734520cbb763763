"""Static topics: Java's tool, producer and consumer on Java's brokers and on ours."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bolide import Message, Producer
from bolide.admin import AdminClient
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.model.message_queue import MessageQueue
from bolide.protocol.refusals import ServerError
from tests.interop.bench import BROKER_DEFAULTS, BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.ports import free_port

TOPIC = "Fixed"
QUEUES = 4
BLOCK = 10_000


class Cluster(NamedTuple):
    """A NameServer and the brokers broker-a and broker-b."""

    bench: Bench
    namesrv: str
    first: Server
    second: Server

    def mqadmin(self, *words: str | int) -> str:
        return self.bench.mqadmin(NEWEST, *words, namesrv=self.namesrv)


@contextlib.contextmanager
def apache_cluster(bench: Bench, _: Path) -> Iterator[Cluster]:
    namesrv = bench.namesrv(NEWEST)
    brokers = [bench.broker(NEWEST, namesrv.address, brokerName=name) for name in NAMES]
    yield Cluster(bench, namesrv.address, *brokers)


@contextlib.contextmanager
def bolide_cluster(bench: Bench, directory: Path) -> Iterator[Cluster]:
    with (
        bolide_namesrv(directory / "namesrv") as namesrv,
        bolide_broker(directory / "a", namesrv.address, brokerName="broker-a") as first,
        bolide_broker(directory / "b", namesrv.address, brokerName="broker-b") as second,
    ):
        yield Cluster(bench, namesrv.address, first, second)


@contextlib.contextmanager
def mixed_cluster(bench: Bench, directory: Path) -> Iterator[Cluster]:
    """Java's NameServer and first broker, and a second broker of ours."""
    namesrv = bench.namesrv(NEWEST)
    first = bench.broker(NEWEST, namesrv.address, brokerName="broker-a")
    with bolide_broker(directory / "b", namesrv.address, brokerName="broker-b") as second:
        yield Cluster(bench, namesrv.address, first, second)


NAMES = ("broker-a", "broker-b")
CLUSTERS = {"apache": apache_cluster, "bolide": bolide_cluster, "mixed": mixed_cluster}


class Stored(NamedTuple):
    body: int
    queue: int
    offset: int
    where: str


def lines_of(kind: str, lines: list[str]) -> list[Stored]:
    words = [line.split() for line in lines if line.startswith(f"{kind} ")]
    return [Stored(int(body), int(queue), int(offset), at) for _, body, queue, offset, at in words]


def by_queue(messages: list[Stored]) -> dict[int, list[Stored]]:
    found: defaultdict[int, list[Stored]] = defaultdict(list)
    for message in messages:
        found[message.queue].append(message)
    return dict(found)


def gaps(offsets: list[int]) -> list[int]:
    """The offsets that do not follow their predecessors."""
    pairs = zip([-1, *offsets], offsets, strict=False)
    return [offset for before, offset in pairs if offset != before + 1]


@pytest.mark.parametrize(
    "kind",
    [
        "bolide",
        pytest.param("apache", marks=pytest.mark.long),
        pytest.param("mixed", marks=pytest.mark.long),
    ],
)
def test_a_static_topic_moves_while_java_clients_use_it(
    kind: str, java_bench: Bench, tmp_path: Path
) -> None:
    with CLUSTERS[kind](java_bench, tmp_path) as cluster:
        cluster.mqadmin("updateStaticTopic", "-b", "broker-a,broker-b", "-t", TOPIC, "-qn", QUEUES)
        traffic = java_bench.client(
            NEWEST, "StaticTopicTraffic", cluster.namesrv, TOPIC, "readers", cluster.second.port, 20
        )
        traffic.wait_for_line("sent 40 ", 60)
        cluster.mqadmin("remappingStaticTopic", "-b", "broker-b", "-t", TOPIC)
        lines = traffic.wait(100)
        status = cluster.mqadmin("topicStatus", "-t", TOPIC)

    rows = [line.split() for line in status.splitlines() if line.startswith("__syslo__global__")]
    assert sorted((int(number), int(low)) for _, number, low, *_ in rows) == [
        (number, 0) for number in range(QUEUES)
    ]
    sent, got = lines_of("sent", lines), lines_of("got", lines)
    assert {message.queue for message in sent} == set(range(QUEUES))
    assert sorted({message.body for message in got}) == [message.body for message in sent]
    assert {message.where for message in got} == {"__syslo__global__"}
    offsets = {message.body: message.offset for message in got}
    assert [message for message in sent if message.offset not in (-1, offsets[message.body])] == []
    ports = {str(cluster.first.port), str(cluster.second.port)}
    assert {message.where for message in sent} == ports
    for number, messages in by_queue(sent).items():
        in_order = [offsets[message.body] for message in messages]
        moved = len({message.where for message in messages}) > 1
        assert gaps(in_order) == ([BLOCK] if moved else []), number


# ---- one store, brokers of both kinds

SIZES = {
    name: BROKER_DEFAULTS[name]
    for name in (
        *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"),
        *("maxHashSlotNum", "maxIndexNum"),
    )
}


async def change(namesrv: str, *, queues: int = 0, brokers: tuple[str, ...]) -> None:
    """Have a static topic with so many queues, or move it."""
    async with AdminClient(namesrv) as admin:
        topics = admin.static_topics
        if queues:
            plan = await topics.plan_creation(TOPIC, queues, brokers)
        else:
            plan = await topics.plan_remapping(TOPIC, brokers)
        await topics.apply(plan)


async def send(namesrv: str, number: int, bodies: list[str]) -> list[int]:
    """Send to one logical queue; returns the offsets."""
    queue = MessageQueue(TOPIC, "__syslo__global__", number)
    async with Producer("writers", name_server=namesrv, send_timeout=30) as producer:
        sent = [await producer.send(Message(TOPIC, each.encode()), queue=queue) for each in bodies]
    return [result.queue_offset for result in sent]


async def first_offset(consumer: PullConsumer, queue: MessageQueue) -> int:
    """Java's broker learns the addresses of others some seconds after its start."""
    while True:
        try:
            return await consumer.min_offset(queue)
        except ServerError:
            await asyncio.sleep(0.5)


async def read(namesrv: str, number: int, count: int) -> list[tuple[str, int]]:
    """The first messages of a logical queue, with their offsets."""
    queue = MessageQueue(TOPIC, "__syslo__global__", number)
    async with PullConsumer("readers", name_server=namesrv) as consumer:
        found = list[tuple[str, int]]()
        async with asyncio.timeout(60):
            at = await first_offset(consumer, queue)
            while len(found) < count:
                result = await consumer.pull(queue, "*", at)
                at = result.next_offset
                found += [(each.body.decode(), each.queue_offset) for each in result.messages]
        assert await consumer.max_offset(queue) == at
    return found


def test_a_java_broker_takes_over_the_logical_queues_of_a_killed_broker_and_hands_them_back(
    java_bench: Bench, tmp_path: Path
) -> None:
    port, root = free_port(BROKER_NEIGHBOURS), tmp_path / "b" / "store"
    old, new = [("0", 0), ("1", 1), ("2", 2)], [("3", BLOCK), ("4", BLOCK + 1)]
    of_java = [("5", BLOCK + 2)]
    with (
        bolide_namesrv(tmp_path / "namesrv") as namesrv,
        bolide_broker(tmp_path / "a", namesrv.address, brokerName="broker-a"),
    ):
        ours = {"brokerName": "broker-b", "listenPort": port, **SIZES}
        with bolide_broker(tmp_path / "b", namesrv.address, **ours) as broker:
            asyncio.run(change(namesrv.address, queues=1, brokers=("broker-a",)))
            asyncio.run(send(namesrv.address, 0, ["0", "1", "2"]))
            asyncio.run(change(namesrv.address, brokers=("broker-b",)))
            asyncio.run(send(namesrv.address, 0, ["3", "4"]))
            broker.kill()

        java = java_bench.broker(
            NEWEST, namesrv.address, brokerName="broker-b", listenPort=port,
            storePathRootDir=str(root),
        )  # fmt: skip
        assert asyncio.run(read(namesrv.address, 0, 5)) == old + new
        assert asyncio.run(send(namesrv.address, 0, ["5"])) == [BLOCK + 2]
        asyncio.run(change(namesrv.address, queues=2, brokers=("broker-b",)))
        java.kill()

        with bolide_broker(tmp_path / "b", namesrv.address, **ours):
            assert asyncio.run(read(namesrv.address, 0, 6)) == old + new + of_java
            assert asyncio.run(send(namesrv.address, 1, ["6"])) == [0]
            assert asyncio.run(send(namesrv.address, 0, ["7"])) == [BLOCK + 3]
