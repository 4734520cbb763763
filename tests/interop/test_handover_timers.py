"""A store with messages that wait goes from our broker to an Apache broker, and back."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import AdminClient, Message, Producer
from bolide.model.properties import PropertyName
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.record import Record
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.broker import BrokerClient
from tests.support.own_cluster import create_topic
from tests.support.ports import free_port

TOPIC = "Later"
COUNT = 40
FAR = 3 * 24 * 3600 - 60.0
"""Behind the window in which both keep what waits; Apache's broker allows no more."""
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 16 * 2**20,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "timerWheelEnable": True,
    "recallMessageEnable": True,
}


class Store:
    """A store directory, and brokers that serve it in turn, at one port."""

    def __init__(self, bench: Bench, namesrv: str, directory: Path) -> None:
        self._bench = bench
        self._directory = directory
        self._settings = SETTINGS | {"listenPort": free_port(BROKER_NEIGHBOURS)}
        self.namesrv = namesrv
        self.due: dict[str, float] = {}
        self.recalled: dict[str, float] = {}
        self.handles: dict[str, str] = {}

    @contextmanager
    def java(self, *, kill: bool = False) -> Iterator[Server]:
        root = str(self._directory / "store")
        broker = self._bench.broker(NEWEST, self.namesrv, storePathRootDir=root, **self._settings)
        yield broker
        (broker.kill if kill else broker.stop)()

    @contextmanager
    def ours(self, *, kill: bool = False) -> Iterator[Server]:
        with bolide_broker(self._directory, self.namesrv, **self._settings) as broker:
            yield broker
            if kill:
                broker.kill()

    def producer(self) -> Producer:
        return Producer("later", name_server=self.namesrv, send_timeout=10, route_interval=1.0)

    async def send(self, who: str, after: float, recalled_after: float) -> None:
        """Messages for one second, one that is to be recalled, one for a later day."""
        async with self.producer() as producer:
            await create_topic(producer, TOPIC, 1)
            begin = time.time() + after
            dues = {f"{who}-{at}": begin + at / COUNT for at in range(COUNT)}
            dues |= {
                f"{who}-recalled": time.time() + recalled_after,
                f"{who}-far": time.time() + FAR,
            }
            for body, due in dues.items():
                result = await producer.send(Message(TOPIC, body.encode(), deliver_at=due))
                self.handles[body] = result.recall_handle or ""
        self.due |= dues

    async def recall(self, body: str) -> None:
        async with self.producer() as producer:
            await producer.fetch_publish_queues(TOPIC)
            await producer.recall(TOPIC, self.handles[body])
        self.recalled[body] = self.due.pop(body)

    async def delivered(self, broker: Server, who: set[str]) -> list[Record]:
        """All that is in the topic when all of these senders' messages are."""
        wanted = {body for body in self.due if body.partition("-")[0] in who and "far" not in body}
        deadline = time.monotonic() + 60
        async with BrokerClient(broker.address) as client:
            while time.monotonic() < deadline:
                records = await everything(client)
                if wanted <= {bytes(record.body).decode() for record in records}:
                    await asyncio.sleep(1)  # and what should not come has its chance
                    return await everything(client)
                await asyncio.sleep(0.2)
        raise AssertionError(f"{wanted - {bytes(r.body).decode() for r in records}} did not come")

    async def waiting(self, broker: Server) -> set[str]:
        """What our broker says that waits."""
        async with AdminClient(self.namesrv) as admin:
            ids = {each.message_id async for each in admin.timers.each(broker.address, TOPIC)}
        return {body for body in (*self.due, *self.recalled) if self.id_of(body) in ids}

    def id_of(self, body: str) -> str:
        return RecallHandle.decode(self.handles[body]).unique_id

    def check(self, records: list[Record], *, duplicates: bool = False) -> None:
        """Nothing early, nothing recalled, nothing lost; twice only where a crash allows it."""
        came = Counter(bytes(record.body).decode() for record in records)
        wanted = {body for body in self.due if "far" not in body}
        assert came.keys() == wanted
        assert duplicates or set(came.values()) == {1}
        for record in records:
            asked = int(record.decode_properties()[PropertyName.TIMER_DELIVER_MS])
            assert record.store_timestamp >= asked


async def everything(client: BrokerClient) -> list[Record]:
    records: list[Record] = []
    while (pulled := await client.pull(TOPIC, len(records))).records:
        records += pulled.records
    return records


@pytest.fixture
def store(java_bench: Bench, tmp_path: Path) -> Iterator[Store]:
    with bolide_namesrv(tmp_path / "namesrv") as namesrv:
        yield Store(java_bench, namesrv.address, tmp_path)


def test_what_waits_goes_from_ours_to_java_and_back(store: Store) -> None:
    with store.ours():
        asyncio.run(store.send("ours", after=4, recalled_after=3600))
    with store.java(kill=True) as java:
        asyncio.run(store.recall("ours-recalled"))
        asyncio.run(store.send("java", after=4, recalled_after=3600))
        asyncio.run(store.delivered(java, {"ours"}))
    with store.ours() as ours:
        assert asyncio.run(store.waiting(ours)) >= {"ours-far", "java-far", "java-recalled"}
        asyncio.run(store.recall("java-recalled"))
        store.check(asyncio.run(store.delivered(ours, {"ours", "java"})), duplicates=True)
        assert asyncio.run(store.waiting(ours)) == {"ours-far", "java-far"}


@pytest.mark.long
def test_what_waits_goes_from_java_to_ours_and_back_however_they_end(store: Store) -> None:
    with store.java():
        asyncio.run(store.send("java", after=15, recalled_after=60))
    with store.ours(kill=True) as ours:
        asyncio.run(store.recall("java-recalled"))
        asyncio.run(store.send("ours", after=15, recalled_after=45))
        asyncio.run(store.delivered(ours, {"java"}))
    with store.java() as java:
        asyncio.run(store.recall("ours-recalled"))
        asyncio.run(asyncio.sleep(max(store.recalled.values()) + 2 - time.time()))
        store.check(asyncio.run(store.delivered(java, {"ours", "java"})), duplicates=True)
    with store.ours() as ours:
        assert asyncio.run(store.waiting(ours)) == {"ours-far", "java-far"}
