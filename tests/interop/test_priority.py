"""Priority messages and attributes of groups: Java's programs on Apache's broker and on ours."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.client.consumer.pop.pop_consumer import PopConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import MaxOffsetHeader, OffsetReply
from bolide.remoting.client import RemotingClient
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker
from tests.interop.processes import ProcessFailed
from tests.support.ports import free_port

TOPIC = "Ranked"
SENT = [
    "sent p1 1", "sent p3 3", "sent p0 0", "sent p2 2", "sent p9 3", "sent none 1",
    "sent delayed 1", "sent sharded 1",
]  # fmt: skip
"""Eight messages sent to queue 1, and the queues that the broker stored them in."""
POPPED = [
    "popped p3 3 0", "popped p9 9 0", "popped p2 2 0", "popped p1 1 0", "popped none -1 0",
    "popped sharded -1 0", "popped p0 0 0",
]  # fmt: skip
JAVA_LATER = pytest.param("java", marks=pytest.mark.long)
OURS_LATER = pytest.param("ours", marks=pytest.mark.long)
SIZES: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "messageDelayLevel": "5m 10m",
    "timerWheelEnable": True,  # a 5.x broker does not pop without it
}


class Cluster:
    """A NameServer, and one store that Apache's broker and ours have in turn."""

    def __init__(self, bench: Bench, directory: Path) -> None:
        self.bench = bench
        self.namesrv = bench.namesrv(NEWEST).address
        self.directory = directory
        self._port = free_port(BROKER_NEIGHBOURS)

    @contextmanager
    def turn(self, kind: str, **settings: str | int | bool) -> Iterator[Server]:
        root = self.directory / "store"
        given: dict[str, Any] = {
            "listenPort": self._port, "storePathRootDir": str(root), "brokerName": "broker-a",
            **SIZES, **settings,
        }  # fmt: skip
        if kind == "java":
            server = self.bench.broker(NEWEST, self.namesrv, **given)
            yield server
            server.kill()  # it takes long to stop
            (root / "lock").unlink(missing_ok=True)
            return
        with bolide_broker(self.directory / "ours", self.namesrv, **given) as server:
            yield server

    def mqadmin(self, *words: str) -> str:
        return self.bench.mqadmin(NEWEST, *words, namesrv=self.namesrv)

    def create(self, broker: Server) -> None:
        self.mqadmin(
            "updateTopic", "-b", broker.address, "-t", TOPIC, "-r", "4", "-w", "4",
            "-a", "+message.type=PRIORITY",
        )  # fmt: skip

    def play(self, broker: Server, *words: str) -> list[str]:
        program = self.bench.client(
            NEWEST, "Priorities", self.namesrv, broker.address, TOPIC, *words
        )
        return [line for line in program.wait(90) if line.startswith(("sent", "popped"))]


async def dispatched(broker: Server, count: int) -> None:
    """Wait until the queues have all messages: a Java broker builds them after its start."""
    async with RemotingClient() as client, asyncio.timeout(60):
        while True:
            ends = 0
            for queue_id in range(4):
                header = MaxOffsetHeader(topic=TOPIC, queue_id=queue_id)
                reply = await client.call(broker.address, RequestCode.GET_MAX_OFFSET, header)
                ends += OffsetReply.from_fields(reply.fields).offset
            if ends >= count:
                return
            await asyncio.sleep(0.1)


@pytest.fixture
def cluster(java_bench: Bench, tmp_path: Path) -> Cluster:
    return Cluster(java_bench, tmp_path)


@pytest.mark.parametrize("kind", ["java", "ours"])
def test_a_java_client_pops_by_priority_and_retries_last(cluster: Cluster, kind: str) -> None:
    with cluster.turn(kind) as broker:
        cluster.create(broker)
        lines = cluster.play(broker, "send", "retry", "low", "pop")
    again = [line for line in POPPED if " p3 " not in line]
    assert lines == [*SENT, "sent low 0", *again, "popped low 0 0", "popped p3 3 1"]


@pytest.mark.parametrize("kind", [JAVA_LATER, OURS_LATER])
def test_queue_0_is_the_highest_priority_if_the_setting_says_so(
    cluster: Cluster, kind: str
) -> None:
    with cluster.turn(kind, priorityOrderAsc=False) as broker:
        cluster.create(broker)
        lines = cluster.play(broker, "send", "pop")
    by_queue = [POPPED[6], *POPPED[3:6], POPPED[2], *POPPED[:2]]
    assert lines == [*SENT, *by_queue]


@pytest.mark.parametrize("kind", [JAVA_LATER, OURS_LATER])
def test_our_client_sends_and_pops_by_priority(cluster: Cluster, kind: str) -> None:
    async def exchange() -> list[str]:
        async with Producer("writers", name_server=cluster.namesrv) as producer:
            for priority in (1, 3, 0, 9):
                await producer.send(Message(TOPIC, b"%d" % priority, priority=priority))
        found: list[str] = []
        async with PopConsumer(
            "readers", name_server=cluster.namesrv, consume_from="first"
        ) as consumer:
            await consumer.subscribe(TOPIC)
            while len(found) < 4:
                messages = await consumer.receive(max_messages=16)
                found += [f"{message.priority} {message.queue_id}" for message in messages]
                await consumer.ack(*messages)
        return found

    with cluster.turn(kind) as broker:
        cluster.create(broker)
        assert asyncio.run(exchange()) == ["3 3", "9 3", "1 1", "0 0"]


@pytest.mark.parametrize(
    ("first", "second"), [("ours", "java"), pytest.param("java", "ours", marks=pytest.mark.long)]
)
def test_the_next_broker_of_a_killed_one_pops_its_store_by_priority(
    cluster: Cluster, first: str, second: str
) -> None:
    with cluster.turn(first) as broker:
        cluster.create(broker)
        assert cluster.play(broker, "send") == SENT
        broker.kill()
    with cluster.turn(second) as broker:
        asyncio.run(dispatched(broker, len(POPPED)))
        assert cluster.play(broker, "pop") == POPPED


@pytest.mark.parametrize("kind", [JAVA_LATER, OURS_LATER])
def test_attributes_of_a_group_are_changed_and_kept_alike(cluster: Cluster, kind: str) -> None:
    with cluster.turn(kind) as broker:

        def update(attributes: str) -> None:
            words = ("-b", broker.address, "-g", "readers", f"--attributes={attributes}")
            cluster.mqadmin("updateSubGroup", *words)

        def shown() -> str:
            printed = cluster.mqadmin("getConsumerConfig", "-g", "readers")
            return next(line for line in printed.splitlines() if "attributes" in line)

        update("+priority.factor=30")
        assert "{priority.factor=30}" in shown()
        for refused in ("+priority.factor=101", "+unknown=1", "-unknown", "priority.factor=1"):
            with pytest.raises(ProcessFailed):
                update(refused)
        assert "{priority.factor=30}" in shown()
        update("-priority.factor")
        assert "{}" in shown()


@pytest.mark.parametrize("kind", [JAVA_LATER, OURS_LATER])
def test_a_mixed_topic_needs_the_setting(cluster: Cluster, kind: str) -> None:
    words = ("-t", "Mixed", "-a", "+message.type=MIXED")
    with cluster.turn(kind) as broker, pytest.raises(ProcessFailed, match="MIXED message type"):
        cluster.mqadmin("updateTopic", "-b", broker.address, *words)
    with cluster.turn(kind, enableMixedMessageType=True) as broker:
        assert "success" in cluster.mqadmin("updateTopic", "-b", broker.address, *words)
