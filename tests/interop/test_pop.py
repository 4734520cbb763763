"""Java's consumers that pop, on our broker."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from tests.interop.bench import Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess


class Cluster(NamedTuple):
    namesrv: Server
    broker: Server
    bench: Bench

    def popper(self, topic: str, count: int, *options: str, **jvm: int) -> ChildProcess:
        return self.bench.client(
            NEWEST, "PopConsumer", self.namesrv.address, topic, "G", count, *options,
            jvm=[f"-D{name}={value}" for name, value in jvm.items()],
        )  # fmt: skip


@pytest.fixture
def cluster(java_bench: Bench, tmp_path: Path) -> Iterator[Cluster]:
    with (
        bolide_namesrv(tmp_path / "namesrv") as namesrv,
        bolide_broker(
            tmp_path / "broker", namesrv.address, defaultMessageRequestMode="POP"
        ) as broker,
    ):
        yield Cluster(namesrv, broker, java_bench)


def send(cluster: Cluster, topic: str, count: int) -> list[str]:
    async def send_all() -> None:
        async with Producer("writers", name_server=cluster.namesrv.address) as producer:
            await producer.create_topic(topic, 4)
            for number in range(count):
                await producer.send(Message(topic, b"%d" % number, tags="AB"[number % 2]))

    asyncio.run(send_all())
    return [str(number) for number in range(count)]


def deliveries(lines: list[str]) -> list[tuple[str, int]]:
    """Bodies and how often they were tried before."""
    found = [line.split() for line in lines if line.startswith("got ")]
    return [(body, int(times)) for _, body, times in found]


def test_what_a_killed_java_consumer_popped_goes_to_the_next_one(cluster: Cluster) -> None:
    bodies = send(cluster, "Orders", 40)
    first = cluster.popper("Orders", 40, "--hang")
    first.wait_for_line("got ", 60)
    first.kill()
    held = dict(deliveries(first.stdout))
    assert held
    lines = cluster.popper("Orders", 40, deadline=40).wait(60)
    got = deliveries(lines)
    assert sorted({body for body, _ in got}, key=int) == bodies
    assert len(got) == len(bodies)  # nothing came twice
    again = {body for body, times in got if times == 1}
    assert held.keys() <= again


@pytest.mark.long
def test_what_a_java_consumer_fails_at_comes_again(cluster: Cluster) -> None:
    send(cluster, "Orders", 20)
    options = ("--fail-once", "--tags=A")
    lines = cluster.popper("Orders", 10, *options, deadline=60, lingerMillis=2000).wait(90)
    got = deliveries(lines)
    evens = {str(number) for number in range(0, 20, 2)}
    assert {body for body, times in got if times == 0} == evens
    assert {body for body, times in got if times == 1} == evens
    assert len(got) == 20
