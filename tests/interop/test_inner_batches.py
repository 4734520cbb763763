"""Batches that are one record each: the same Java program on Apache's broker and on ours."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bolide.client.consumer.pop.pop_consumer import PopConsumer
from bolide.client.consumer.pull.lite_pull_consumer import LitePullConsumer
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.client.consumer.pull.pull_request import PullStatus
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.store.layout import Layout
from bolide.store.verify import verify
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker
from tests.support.aio import until
from tests.support.ports import free_port

TOPIC = "Bulk"
BROKER = "broker-a"
QUEUE = MessageQueue(TOPIC, BROKER, 0)
SIZES: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "mapperFileSizeBatchConsumeQueue": 46 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "messageDelayLevel": " ".join(["1s"] * 18),
}


class Place(NamedTuple):
    """A store directory that a Java broker and ours have in turn, on one port."""

    bench: Bench
    namesrv: str
    port: int
    directory: Path

    @property
    def root(self) -> Path:
        return self.directory / "store"

    @contextmanager
    def java(self, *, kill: bool = False) -> Iterator[Server]:
        server = self.bench.broker(
            NEWEST, self.namesrv, listenPort=self.port, storePathRootDir=str(self.root),
            brokerName=BROKER, timerWheelEnable=True, jvm=(), **SIZES,
        )  # fmt: skip
        yield server
        (server.kill if kill else server.stop)()

    @contextmanager
    def ours(self, *, kill: bool = False) -> Iterator[Server]:
        settings = {"listenPort": self.port, "storePathRootDir": self.root, "brokerName": BROKER}
        with bolide_broker(self.directory / "ours", self.namesrv, **settings, **SIZES) as server:
            yield server
            if kill:
                server.kill()

    def run(self, tasks: str) -> list[str]:
        """What the program prints that does these tasks one after the other."""
        options = ["-Drocketmq.client.rebalance.waitInterval=500"]
        client = self.bench.client(NEWEST, "InnerBatches", self.namesrv, TOPIC, tasks, jvm=options)
        return client.wait(90)


@pytest.fixture
def place(java_bench: Bench, tmp_path: Path) -> Place:
    namesrv = java_bench.namesrv(NEWEST).address
    return Place(java_bench, namesrv, free_port(BROKER_NEIGHBOURS), tmp_path)


def by_offset(lines: list[str]) -> dict[int, str]:
    found = [line.split() for line in lines if line.startswith("at ")]
    return {int(offset): body for _, offset, body, *_ in found}


PROGRAM = (
    f"send {BROKER} 0 / pull {BROKER} 2 / where {BROKER} / push all * 14 / push tagged A 7"
    f" / push failing * 14 --fail-once / pull {BROKER} 14"
)
"""On an empty topic."""


def outcome(lines: list[str]) -> list[str]:
    """What was printed, without what depends on how the client joined messages."""
    return [line for line in lines if not line.startswith("pulled FOUND")]


def test_the_same_program_has_the_same_outcome_on_apaches_broker_and_on_ours(
    java_bench: Bench, tmp_path: Path
) -> None:
    def told_by(name: str) -> list[str]:
        namesrv = java_bench.namesrv(NEWEST).address
        place = Place(java_bench, namesrv, free_port(BROKER_NEIGHBOURS), tmp_path / name)
        with getattr(place, name)(kill=True) as server:
            return outcome(place.run(f"create {server.address} / {PROGRAM}"))

    with ThreadPoolExecutor(2) as pool:  # their consumers spend most of the time waiting
        java, ours = pool.map(told_by, ("java", "ours"))
    assert ours == java
    assert java[:3] == [
        "batch SEND_OK at 0 ids 1 offset ids 1",
        "single SEND_OK at 4 ids 1 offset ids 1",
        "batch SEND_OK at 5 ids 1 offset ids 1",
    ]
    assert java[4] == "at 0 0 null key0"  # the whole record, from an offset inside it
    everything = "0=null, 1=null, 2=null, 3=null, 4=A, 5=B, 6=B, 7=B, 8=A, 9=A, 10=A, 11=A, 12=A"
    assert f"pushed true {{{everything}, 13=A}} retried 0" in java
    assert "pushed true {4=A, 8=A, 9=A, 10=A, 11=A, 12=A, 13=A} retried 0" in java
    assert f"pushed true {{{everything}, 13=A}} retried 3" in java


def test_a_store_with_batches_goes_from_java_to_ours_and_back(place: Place) -> None:
    """Each one is killed once and stopped once; nothing is lost and no offset is given twice."""
    expected: dict[int, str] = {}
    for turn, (broker, kill) in enumerate(
        [(place.java, False), (place.ours, True), (place.java, True), (place.ours, False)]
    ):
        with broker(kill=kill) as server:
            tasks = [f"send {BROKER} {14 * turn}", f"pull {BROKER} 0"]
            if turn == 0:
                tasks.insert(0, f"create {server.address}")
            found = by_offset(place.run(" / ".join(tasks)))
            expected |= {number: str(number) for number in range(14 * turn, 14 * turn + 14)}
            assert found == expected
        report = verify(Layout.read_off(place.root))
        assert not report.damages, report
    with place.java(kill=True):
        assert by_offset(place.run(f"pull {BROKER} 0")) == expected


def test_nothing_acknowledged_is_lost_when_our_broker_is_killed(place: Place) -> None:
    with place.ours(kill=True) as server:
        place.run(f"create {server.address}")
        sender = place.bench.client(
            NEWEST, "InnerBatches", place.namesrv, TOPIC, f"stream {BROKER} 0"
        )
        sender.wait_for_line("acknowledged 149", 60)
        server.kill()
    sender.kill()
    last = [int(line.split()[1]) for line in sender.stdout if line.startswith("acknowledged")][-1]
    with place.ours():
        found = by_offset(place.run(f"pull {BROKER} 0"))
    assert list(found) == list(range(len(found)))
    assert list(found.values())[: last + 1] == [str(number) for number in range(last + 1)]


async def consumed(namesrv: str) -> dict[str, list[tuple[int, str]]]:
    """What our consumers get of the topic, as offsets and bodies."""
    settings: dict[str, Any] = {"consume_from": "first", "name_server": namesrv}
    found: dict[str, list[StoredMessage]] = {"pull": [], "lite": [], "pop": [], "push": []}

    async def take(message: StoredMessage) -> None:
        found["push"].append(message)

    async with PullConsumer("pulling", name_server=namesrv) as pulling:
        at = 2
        while (pulled := await pulling.pull(QUEUE, "*", at)).status is PullStatus.FOUND:
            found["pull"] += pulled.messages
            at = pulled.next_offset
    async with LitePullConsumer("lite", **settings) as lite:
        await lite.subscribe(TOPIC)
        while len(found["lite"]) < 14:
            found["lite"] += await lite.poll(5)
    async with PushConsumer("pushing", **settings) as pushing:
        await pushing.subscribe(TOPIC, take)
        await until(lambda: len(found["push"]) == 14)
    async with PopConsumer("popping", **settings) as popping:
        await popping.subscribe(TOPIC)
        while len(found["pop"]) < 14:
            messages = await popping.receive(32, invisible=10)
            found["pop"] += messages
            await popping.ack(*messages)
    return {
        name: sorted((each.queue_offset, each.body.decode()) for each in messages)
        for name, messages in found.items()
    }


def test_our_consumers_get_single_messages_from_apaches_broker(place: Place) -> None:
    with place.java(kill=True) as server:
        place.run(f"create {server.address} / send {BROKER} 0 / pull {BROKER} 0")
        found = asyncio.run(consumed(place.namesrv))
    everything = [(number, str(number)) for number in range(14)]
    assert found == {
        "pull": everything[2:], "lite": everything, "pop": everything, "push": everything,
    }  # fmt: skip
