"""A store with open transactions goes from an Apache broker to ours, and back."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bolide import Message, TransactionProducer
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.ours import bolide_broker
from tests.support.own_cluster import create_topic
from tests.support.ports import free_port
from tests.support.transactions import Book, all_delivered, delivered

GROUP, TOPIC = "writers", "T"
QUIET = {"transactionTimeOut": 600_000, "transactionCheckInterval": 600_000}
ASKING = {
    "transactionTimeOut": 300, "transactionCheckInterval": 500, "transactionCheckMax": 1000,
}  # fmt: skip
# Java notes what has ended at intervals of 3 s; what it asks about again until then ends again.
PROMPT = {"transactionOpBatchInterval": 50}
UNMAPPING = "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED"  # without it 4.9 cannot drop files
SIZES = {
    "mappedFileSizeCommitLog": 16 * 2**20,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}


class Store:
    """A store directory, and brokers that serve it in turn, at one port."""

    def __init__(self, bench: Bench, version: str, directory: Path) -> None:
        self._bench = bench
        self._version = version
        self._directory = directory
        self._settings = {**SIZES, "listenPort": free_port(BROKER_NEIGHBOURS)}
        self.namesrv = bench.namesrv(version).address
        self.sent: set[str] = set()

    @contextmanager
    def java(self, settings: dict[str, int], *, kill: bool = False) -> Iterator[Server]:
        properties: dict[str, str | int | bool] = {**self._settings, **settings}
        broker = self._bench.broker(
            self._version, self.namesrv, jvm=[UNMAPPING],
            storePathRootDir=str(self._directory / "store"),
            **properties,
        )  # fmt: skip
        yield broker
        (broker.kill if kill else broker.stop)()

    @contextmanager
    def ours(self, settings: dict[str, int], *, kill: bool = False) -> Iterator[Server]:
        chosen = self._settings | settings
        with bolide_broker(self._directory, self.namesrv, **chosen) as broker:
            yield broker
            if kill:
                broker.kill()

    async def send(self, turn: str) -> None:
        """Begin one transaction of each kind; those that are unknown stay open."""
        async with self.producer(Book()) as producer:
            await create_topic(producer, TOPIC, 1)
            for way in ("commit-x", "rollback-x", "unknown-commit", "unknown-rollback"):
                message = Message(TOPIC, f"{way}-{turn}".encode())
                await producer.send_in_transaction(message, Book().local)
                self.sent.add(f"{way}-{turn}")

    async def answer(self, *turns: str) -> Book:
        """Have those left open by these turns ended by a producer that is asked."""
        book = Book()
        left = {f"unknown-{end}-{turn}" for turn in turns for end in ("commit", "rollback")}
        async with self.producer(book, topics=[TOPIC]):
            await book.all_known(left)
            await all_delivered(self.namesrv, TOPIC, self.committed)
        return book

    def producer(self, book: Book, topics: list[str] | None = None) -> TransactionProducer:
        return TransactionProducer(
            GROUP, check=book.check, topics=topics or (), name_server=self.namesrv,
            send_timeout=10, route_interval=1.0,
        )  # fmt: skip

    @property
    def committed(self) -> set[str]:
        return {body for body in self.sent if "commit" in body}


def test_open_transactions_go_from_java_to_ours_and_back(
    rocketmq: str, java_bench: Bench, tmp_path: Path
) -> None:
    store = Store(java_bench, rocketmq, tmp_path)
    with store.java(QUIET | PROMPT, kill=True):
        asyncio.run(store.send("java"))
        asyncio.run(asyncio.sleep(1))  # a clean stop of Java takes longer than its op messages do
    with store.ours(QUIET):
        asyncio.run(store.send("ours"))
    with store.java(ASKING | PROMPT, kill=True):
        book = asyncio.run(store.answer("java", "ours"))
        found = asyncio.run(delivered(store.namesrv, TOPIC))
    # What had ended under ours is known to Java, and what Java had ended went through ours unasked.
    assert not {body for body in book.checked if not body.startswith("unknown")}
    assert Counter(found) == Counter(store.committed)


@pytest.mark.long
@pytest.mark.parametrize("kill", [False, True])
def test_transactions_that_java_asked_about_go_on_with_ours(
    rocketmq: str, java_bench: Bench, tmp_path: Path, *, kill: bool
) -> None:
    """Java has put the halves into their queue again by then, and may have lost op messages."""
    store = Store(java_bench, rocketmq, tmp_path)
    with store.java(ASKING, kill=kill) as broker:
        asyncio.run(store.send("java"))
        asyncio.run(asyncio.sleep(3))
        assert broker.process.running
    with store.ours(ASKING):
        asyncio.run(store.answer("java"))


@pytest.mark.long
@pytest.mark.parametrize("kill", [False, True])
def test_transactions_that_ours_asked_about_go_on_with_java(
    rocketmq: str, java_bench: Bench, tmp_path: Path, *, kill: bool
) -> None:
    store = Store(java_bench, rocketmq, tmp_path)
    with store.ours(ASKING, kill=kill):
        asyncio.run(store.send("ours"))
        asyncio.run(asyncio.sleep(2))
    with store.java(ASKING):
        asyncio.run(store.answer("ours"))
        found = asyncio.run(delivered(store.namesrv, TOPIC))
    assert Counter(found) == Counter(store.committed)
