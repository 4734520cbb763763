"""Ordered consumption beside Java's: members of one group, and one broadcasting client."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.interop.bench import Bench
from tests.support.aio import on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

GROUP = "shift"


class Book:
    """A file that members append lines to: who, topic, lane, number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def note(self, message: StoredMessage) -> None:
        await asyncio.sleep(0.001)
        os.write(self._file, b"ours %s %s\n" % (message.topic.encode(), message.body))

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()]

    def numbers(self, lane: str) -> list[int]:
        return [int(number) for _, _, of, number in self.lines() if of == lane]

    def by(self, who: str) -> int:
        return sum(1 for line in self.lines() if line[0] == who)

    async def until_all(self, *lanes: str, count: int) -> None:
        await until(lambda: all(len(set(self.numbers(each))) == count for each in lanes), within=60)


async def send(producer: Producer, first: int, end: int) -> None:
    for number in range(first, end):
        for queue in range(4):
            where = MessageQueue("Q", "broker-a", queue)
            await producer.send(Message("Q", f"q{queue} {number}".encode()), queue=where)
        await asyncio.sleep(0.01)


@on_loop
async def test_java_members_and_ours_respect_each_others_locks(
    java_bench: Bench, rocketmq: str, tmp_path: Path
) -> None:
    book = Book(tmp_path / "book")
    async with (
        own_cluster(tmp_path) as cluster,
        Producer("writers", name_server=cluster.address) as producer,
    ):
        await create_topic(producer, "Q", 4)
        async with PushConsumer(GROUP, name_server=cluster.address, consume_from="first") as ours:
            await ours.subscribe("Q", book.note, ordered=True)
            sending = asyncio.create_task(send(producer, 0, 300))
            arguments = (cluster.address, GROUP, "Q", str(book.path))
            java = java_bench.client(rocketmq, "OrderedMember", *arguments)
            await asyncio.to_thread(java.wait_for_line, "ready", 60)
            await until(lambda: len(ours.assigned_queues) == 2 and book.by("java"), within=60)
            await sending
            await send(producer, 300, 330)
            await asyncio.to_thread(java.stop)
            await until(lambda: len(ours.assigned_queues) == 4, within=90)
            await send(producer, 330, 350)
            await book.until_all("q0", "q1", "q2", "q3", count=350)
    for lane in ("q0", "q1", "q2", "q3"):
        numbers = book.numbers(lane)
        # What Java's member had not committed when it left comes again; nothing is left out.
        assert all(b <= max(numbers[: at + 1]) + 1 for at, b in enumerate(numbers[1:])), lane
        assert len(numbers) < 2 * 350
    assert book.by("java") > 50


@pytest.mark.long
@on_loop
async def test_a_broadcasting_client_of_java_and_ours_share_their_file(
    java_bench: Bench, rocketmq: str, tmp_path: Path
) -> None:
    book, place = Book(tmp_path / "book"), tmp_path / "offsets"
    jvm = (f"-Drocketmq.client.localOffsetStoreDir={place}",)
    async with (
        own_cluster(tmp_path) as cluster,
        Producer("writers", name_server=cluster.address) as producer,
    ):
        await create_topic(producer, "Q", 4)
        await send(producer, 0, 5)
        arguments = (cluster.address, GROUP, "Q", str(book.path), "--broadcast")
        java = java_bench.client(rocketmq, "OrderedMember", *arguments, jvm=jvm)
        line = await asyncio.to_thread(java.wait_for_line, "ready", 60)
        await book.until_all("q0", "q1", "q2", "q3", count=5)
        await asyncio.to_thread(java.stop)
        await send(producer, 5, 10)
        address, name = line.split()[-1].split("@")
        await take_over(cluster, book, place, client_ip=address, instance_name=name)
        await send(producer, 10, 12)
        java = java_bench.client(rocketmq, "OrderedMember", *arguments, jvm=jvm)
        await book.until_all("q0", "q1", "q2", "q3", count=12)
        await asyncio.to_thread(java.stop)
    for lane in ("q0", "q1", "q2", "q3"):
        assert book.numbers(lane) == list(range(12))


async def take_over(cluster: OwnCluster, book: Book, place: Path, **client: Any) -> None:
    async with PushConsumer(
        GROUP,
        name_server=cluster.address,
        model="broadcasting",
        offset_directory=place,
        **client,
    ) as ours:
        await ours.subscribe("Q", book.note, ordered=True)
        await book.until_all("q0", "q1", "q2", "q3", count=10)
