"""Ordered consumption with a NameServer and a broker of ours: by queue, by keys, with parked keys."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.admin.parked import NotParked
from bolide.client.consuming.consume import Retry
from bolide.client.consuming.push_consumer import PushConsumer
from bolide.client.producing.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

GROUP = "orderly"


class Desk:
    """Takes messages as `key number`, refuses those of poisoned keys, and may hold others up."""

    def __init__(self) -> None:
        self.got: defaultdict[str, list[int]] = defaultdict(list)
        self.poison: set[str] = set()
        self.tried: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    async def take(self, message: StoredMessage) -> None:
        key, number = message.body.decode().split()
        self.tried.append(f"{key} {number}")
        if key in self.gates:
            await self.gates[key].wait()
        if key in self.poison:
            raise ValueError(f"{key} is bad")
        self.got[key].append(int(number))


class Scene:
    """A cluster with topic T, and those who use it."""

    def __init__(self, cluster: OwnCluster, producer: Producer, admin: AdminClient) -> None:
        self.cluster = cluster
        self.producer = producer
        self.admin = admin
        self.desk = Desk()

    def consumer(self, **settings: Any) -> PushConsumer:
        chosen = {"consume_from": "first", "ordered_suspend": 0.01, "max_reconsume_times": 1}
        return PushConsumer(GROUP, name_server=self.cluster.address, **chosen | settings)

    @asynccontextmanager
    async def parking(self, **settings: Any) -> AsyncIterator[PushConsumer]:
        async with self.consumer(**settings) as consumer:
            await consumer.subscribe(
                "T", self.desk.take, ordered=True, order_by="keys", on_poison="park"
            )
            yield consumer

    async def send(self, *texts: str, queue: int = 0) -> None:
        """Texts as `key number`; the key `-` is none."""
        for text in texts:
            key = text.split()[0].replace("-", "")
            message = Message("T", text.encode(), sharding_key=key)
            await self.producer.send(message, queue=MessageQueue("T", "broker-a", queue))

    async def parked(self) -> dict[str, tuple[int, bool]]:
        """How many messages of each key are set aside, and whether it resumes."""
        return {e.key: (e.count, e.is_resuming) for e in await self.admin.parked.keys(GROUP)}

    async def until_parked(self, **counts: int) -> None:
        async with asyncio.timeout(10):
            while await self.parked() != {key: (n, False) for key, n in counts.items()}:
                await asyncio.sleep(0.01)

    async def counts(self) -> dict[int, int]:
        """How many messages are set aside of each queue."""
        return {e.queue.queue_id: e.count for e in await self.admin.parked.keys(GROUP)}

    def committed(self, queue_id: int = 0) -> int | None:
        return self.cluster.broker.parts.offsets.find(GROUP, "T", queue_id)


@asynccontextmanager
async def scene(directory: Path, *, queues: int = 1, **settings: Any) -> AsyncIterator[Scene]:
    async with (
        own_cluster(directory, **settings) as cluster,
        Producer("writers", name_server=cluster.address) as producer,
        AdminClient(cluster.address) as admin,
    ):
        await create_topic(producer, "T", queues)
        yield Scene(cluster, producer, admin)


# By keys


@on_loop
async def test_keys_of_one_queue_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.desk.gates["a"] = asyncio.Event()
        await it.send("a 1", "a 2", "b 1", "b 2", "- 1", "- 2")
        async with it.consumer() as consumer:
            await consumer.subscribe("T", it.desk.take, ordered=True, order_by="keys")
            await until(lambda: (it.desk.got["b"], it.desk.got["-"]) == ([1, 2], [1, 2]))
            assert it.desk.tried.count("a 1") == 1 and "a 2" not in it.desk.tried
            await consumer.commit()
            assert it.committed() == 0, "what is not done is not committed"
            it.desk.gates["a"].set()
            await until(lambda: it.desk.got["a"] == [1, 2])
        assert it.committed() == 6


@on_loop
async def test_a_key_that_blocks_holds_up_itself_alone(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.desk.poison = {"a"}
        await it.send("a 1", "b 1", "a 2")
        async with it.consumer(max_reconsume_times=None) as consumer:
            await consumer.subscribe("T", it.desk.take, ordered=True, order_by="keys")
            await until(lambda: it.desk.tried.count("a 1") > 3 and it.desk.got["b"] == [1])
            it.desk.poison = set()
            await until(lambda: it.desk.got["a"] == [1, 2])


@on_loop
async def test_a_blocking_key_beyond_its_tries_makes_room_as_a_dead_letter(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.desk.poison = {"a"}
        await it.send("a 1", "b 1")
        async with it.consumer() as consumer:
            await consumer.subscribe("T", it.desk.take, ordered=True, order_by="keys")
            await until(lambda: it.desk.tried.count("a 1") == 2 and it.desk.got["b"] == [1])
            await until(lambda: dead_letters(it) == 1)
            await consumer.commit()
            assert it.committed() == 2


# Parked


@on_loop
async def test_a_failing_key_is_set_aside_until_it_is_resumed(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.desk.poison = {"a"}
        await it.send("a 1", "b 1", "a 2", "b 2")
        async with it.parking() as consumer:
            await it.until_parked(a=2)
            assert it.desk.got["b"] == [1, 2]
            assert set(it.desk.tried) == {"a 1", "b 1", "b 2"}, "a 2 was not even tried"
            await consumer.commit()
            assert it.committed() == 4
            (seen,) = await it.admin.parked.keys(GROUP)
            assert (seen.error, seen.first_offset) == ("ValueError: a is bad", 0)
        async with it.parking():  # a restart changes nothing
            await it.send("a 3", "b 3")
            await until(lambda: it.desk.got["b"] == [1, 2, 3])
            await it.until_parked(a=3)
            it.desk.poison = set()
            await it.admin.parked.resume(GROUP, key="a")
            await it.send("a 4")
            await until(lambda: it.desk.got["a"] == [1, 2, 3, 4])
            await it.until_parked()
            with pytest.raises(NotParked, match="no key 'a' of group 'orderly' is parked"):
                await it.admin.parked.resume(GROUP, key="a")


@on_loop
async def test_a_key_that_fails_when_resumed_is_parked_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.desk.poison = {"a"}
        await it.send("a 1", "a 2")
        async with it.parking():
            await it.until_parked(a=2)
            await it.admin.parked.resume(GROUP, key="a")
            await until(lambda: it.desk.tried.count("a 1") == 4)
            await it.until_parked(a=2)
            it.desk.poison = set()
            await it.admin.parked.resume(GROUP)
            await until(lambda: it.desk.got["a"] == [1, 2])


@on_loop
async def test_what_is_parked_becomes_dead_letters_and_the_key_goes_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.desk.poison = {"a"}
        await it.send("a 1", "a 2")
        async with it.parking():
            await it.until_parked(a=2)
            it.desk.poison = set()
            await it.admin.parked.dead_letter(GROUP, topic="T", key="a")
            await it.send("a 3")
            await until(lambda: it.desk.got["a"] == [3])
            assert dead_letters(it) == 2
        found = await it.admin.messages.pull(MessageQueue(f"%DLQ%{GROUP}", "broker-a", 0), 0)
        assert [message.body for message in found.messages] == [b"a 1", b"a 2"]
        assert found.messages[0].sharding_key == "a"


@on_loop
async def test_a_new_owner_sets_nothing_aside_twice(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.desk.poison = {"a"}
        await it.send("a 1", "b 1", "a 2")
        async with it.parking(offset_store=Forgetful()):
            await it.until_parked(a=2)
            await until(lambda: it.desk.got["b"] == [1])
        async with it.parking(offset_store=Forgetful()):  # everything comes again
            await until(lambda: it.desk.got["b"] == [1, 1])
            await it.until_parked(a=2)
            it.desk.poison = set()
            await it.admin.parked.resume(GROUP)
            await until(lambda: it.desk.got["a"] == [1, 2])
            await it.send("a 3")
            await until(lambda: it.desk.got["a"] == [1, 2, 3])


@on_loop
async def test_parked_keys_go_with_their_queue_to_another_member(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=2) as it:
        it.desk.poison = {"a"}
        await it.send("a 1", queue=0)
        await it.send("a 5", queue=1)  # each queue has keys of its own
        async with it.parking() as first:
            await until(lambda: len(first.assigned_queues) == 2)
            await until(lambda: it.desk.tried.count("a 1") == it.desk.tried.count("a 5") == 2)
            async with it.parking() as second:
                await until(lambda: len(first.assigned_queues) == len(second.assigned_queues) == 1)
                await it.send("a 2", queue=0)
                await it.send("a 6", queue=1)
                async with asyncio.timeout(10):
                    while await it.counts() != {0: 2, 1: 2}:
                        await asyncio.sleep(0.01)
                it.desk.poison = set()
                await it.admin.parked.resume(GROUP, topic="T", key="a")
                await until(lambda: len(it.desk.got["a"]) == 4)
                assert it.desk.got["a"].index(1) < it.desk.got["a"].index(2)
                assert it.desk.got["a"].index(5) < it.desk.got["a"].index(6)


@on_loop
async def test_a_key_is_parked_at_once_if_its_handler_gives_up(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:

        async def give_up(message: StoredMessage) -> None:
            raise Retry("hopeless", delay_level=-1)

        await it.send("a 1")
        async with it.consumer(max_reconsume_times=None, namespace="") as consumer:
            await consumer.subscribe("T", give_up, ordered=True, order_by="keys", on_poison="park")
            await it.until_parked(a=1)


@on_loop
async def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    consumer = PushConsumer(GROUP, name_server="127.0.0.1:1", model="broadcasting")
    for words, wanted in (
        ({"order_by": "keys"}, "give ordered=True too"),
        ({"ordered": True, "on_poison": "park"}, "give order_by='keys' too"),
        ({"ordered": True, "order_by": "luck"}, "order_by is 'luck', queue or keys are possible"),
        ({"ordered": True, "order_by": "keys", "on_poison": "park"}, "not broadcasting"),
    ):
        with pytest.raises(ValueError, match=wanted):
            await consumer.subscribe("T", Desk().take, **words)  # type: ignore[arg-type]


class Forgetful:
    """Keeps no offsets: as if the member had died before it committed any."""

    async def read(self, queue: MessageQueue) -> int | None:
        return None

    async def write(self, offsets: object, *, wait: bool) -> None:
        pass


def dead_letters(it: Scene) -> int:
    return it.cluster.broker.parts.store.max_offset(f"%DLQ%{GROUP}", 0)
