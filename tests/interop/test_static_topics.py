"""Static topics: Java's tool, producer and consumer on Java's brokers and on ours."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.bench import Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker, bolide_namesrv

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


@pytest.mark.parametrize("kind", CLUSTERS)
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
