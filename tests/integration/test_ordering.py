"""Ordered consumption with servers of ours: by queue, by keys, with keys that are parked."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.admin.parked import NotParked
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import ConsumeVerdict
from tests.support.aio import PATIENCE, ended, on_loop, until
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
        chosen: dict[str, Any] = {
            "consume_from": "first",
            "ordered_suspend": 0.01,
            "max_reconsume_times": 1,
        }
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
        await until_told(self.parked, {key: (n, False) for key, n in counts.items()})

    async def counts(self) -> dict[int, int]:
        """How many messages are set aside of each queue."""
        return {e.queue.queue_id: e.count for e in await self.admin.parked.keys(GROUP)}

    async def count_of(self, group: str) -> int:
        return sum(each.count for each in await self.admin.parked.keys(group))

    async def commit(self, consumer: PushConsumer) -> int | None:
        await consumer.commit()
        return self.committed()

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
            await until_told(lambda: it.commit(consumer), 2)  # the broker knows before the client


@on_loop
async def test_lists_are_of_one_key_and_the_rest_of_one_comes_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        calls: list[list[str]] = []

        async def take(messages: Sequence[StoredMessage]) -> int:
            calls.append([message.body.decode() for message in messages])
            return min(2, len(messages))

        await it.send("a 1", "b 1", "a 2", "b 2", "a 3")
        async with it.consumer(max_reconsume_times=None) as consumer:
            await consumer.subscribe("T", take, ordered=True, order_by="keys", batch=9)
            await until(lambda: len(calls) == 3)
        assert sorted(calls) == [["a 1", "a 2", "a 3"], ["a 3"], ["b 1", "b 2"]]


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
            await until_told(lambda: it.commit(consumer), 4)  # the broker knows before the client
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
                await until_told(it.counts, {0: 2, 1: 2})
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
        async with it.consumer(max_reconsume_times=None) as consumer:
            await consumer.subscribe("T", give_up, ordered=True, order_by="keys", on_poison="park")
            await it.until_parked(a=1)


@on_loop
async def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    consumer = PushConsumer(GROUP, name_server="127.0.0.1:1", model="broadcasting")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"order_by": "keys"}, "give ordered=True too"),
        ({"ordered": True, "on_poison": "park"}, "give order_by='keys' too"),
        ({"ordered": True, "order_by": "luck"}, "order_by is 'luck', queue or keys are possible"),
        ({"ordered": True, "order_by": "keys", "on_poison": "park"}, "not broadcasting"),
    )
    for words, wanted in cases:
        with pytest.raises(ValueError, match=wanted):
            await consumer.subscribe("T", Desk().take, **words)


# Members that come and go


@on_loop
async def test_order_is_kept_while_members_join_leave_and_are_killed(tmp_path: Path) -> None:
    await shifts(tmp_path, total=400)


@pytest.mark.long
@pytest.mark.timeout(900)
@on_loop
async def test_order_is_kept_through_many_deaths_without_help(tmp_path: Path) -> None:
    await shifts(tmp_path, total=60_000, rounds=4, frees_locks=False)


async def shifts(directory: Path, *, total: int, rounds: int = 1, frees_locks: bool = True) -> None:
    """Produce to four queues while members change, and look at what they wrote down.

    Args:
        frees_locks: take the locks of the dead from the broker at once: else they stay a minute.
    """
    book = directory / "book"
    async with scene(directory, queues=1) as it:
        for topic in ("Q", "K"):
            await create_topic(it.producer, topic, 4)
        members = [await Member.start(it, book) for _ in range(2)]
        producing = asyncio.create_task(produce(it.producer, total, rounds * 3.0))
        for _ in range(rounds):
            members.append(await Member.start(it, book))
            await members.pop(0).kill(it, frees_locks=frees_locks)
            members.append(await Member.start(it, book))
            await members.pop(0).stop()
        await producing
        patience = 30 if frees_locks else 240
        await until(lambda: len(seen(book)) == 2 * total, within=patience)
        for member in members:
            await member.stop()
    check_order(book.read_text().splitlines())


async def produce(producer: Producer, total: int, seconds: float) -> None:
    """To Q numbers by queue, to K numbers by key: four keys in each queue."""
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for at in range(total):
        queue = at % 4
        for topic, lane in (("Q", f"q{queue}"), ("K", f"k{queue}{at // 4 % 4}")):
            body = f"{lane} {counts[topic, lane]}".encode()
            counts[topic, lane] += 1
            message = Message(topic, body, keys=lane)
            await producer.send(message, queue=MessageQueue(topic, "broker-a", queue))
        if at % 10 == 0:
            await asyncio.sleep(seconds * 10 / total)


class Member:
    """A process of `tests.support.ordered_member`."""

    def __init__(self, process: asyncio.subprocess.Process, client_id: str) -> None:
        self._process = process
        self._client_id = client_id

    @classmethod
    async def start(cls, it: Scene, book: Path) -> "Member":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.ordered_member",
            it.cluster.address,
            str(book),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        return cls(process, (await process.stdout.readline()).decode().strip())

    async def kill(self, it: Scene, *, frees_locks: bool) -> None:
        self._process.kill()
        await ended(self._process)
        if frees_locks:
            queues = [MessageQueue(t, "broker-a", number) for t in "QK" for number in range(4)]
            it.cluster.broker.parts.locks.unlock("shift", self._client_id, queues)

    async def stop(self) -> None:
        self._process.terminate()
        await ended(self._process)
        assert self._process.returncode == 0


def seen(book: Path) -> set[tuple[str, ...]]:
    lines = book.read_text().splitlines() if book.exists() else []
    return {tuple(line.split()[1:]) for line in lines}


def check_order(lines: list[str]) -> None:
    """No number before the one before it; back only with another member, and then in order."""
    last: dict[tuple[str, str], tuple[str, int]] = {}
    highest: defaultdict[tuple[str, str], int] = defaultdict(lambda: -1)
    for line in lines:
        member, topic, lane, text = line.split()
        key, number = (topic, lane), int(text)
        assert number <= highest[key] + 1, f"{line}: {highest[key] + 1} comes first"
        if key in last and last[key][0] == member:
            assert number == last[key][1] + 1, f"{line} after {last[key]}"
        last[key], highest[key] = (member, number), max(highest[key], number)
    assert len({member for member, *_ in map(str.split, lines)}) >= 4


# The rest of what RocketMQ does


@on_loop
async def test_broadcasting_members_keep_order_without_locks(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        desks = [Desk(), Desk()]
        await it.send("a 1", "b 1", "a 2")

        def member(name: str) -> PushConsumer:
            place = tmp_path / "offsets"
            return it.consumer(instance_name=name, model="broadcasting", offset_directory=place)

        async with member("one") as one, member("two") as two:
            desks[1].poison = {"b"}
            await one.subscribe("T", desks[0].take, ordered=True)
            await two.subscribe("T", desks[1].take, ordered=True, order_by="keys")
            await until(lambda: all(desk.got["a"] == [1, 2] for desk in desks))
            assert desks[0].tried == ["a 1", "b 1", "a 2"]
            # What fails there is tried again in its place, and dropped in the end.
            await until(lambda: desks[1].tried.count("b 1") == 2)
            assert not it.cluster.broker.parts.locks.holds_any(GROUP)
        assert it.committed() is None
        assert dead_letters(it) == 0
        async with member("two") as two:
            await two.subscribe("T", desks[1].take, ordered=True)
            await it.send("b 2")
            desks[1].poison = set()
            await until(lambda: desks[1].got["b"] == [2])


@on_loop
async def test_one_queue_is_one_order_for_all_members(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send(*(f"{'ab'[n % 2]} {n}" for n in range(40)))
        async with it.consumer() as one, it.consumer() as two:
            for member in (one, two):
                await member.subscribe("T", it.desk.take, ordered=True)
            await until(lambda: len(it.desk.tried) == 40)
            assert [int(each.split()[1]) for each in it.desk.tried] == list(range(40))
            assert sorted(map(len, (one.assigned_queues, two.assigned_queues))) == [0, 1]


@on_loop
async def test_an_operator_gives_ordered_and_broadcasting_handlers_a_message(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as it:
        await it.send("a 1")
        for settings in ({}, {"model": "broadcasting", "offset_directory": tmp_path / "offsets"}):
            it.desk = Desk()
            async with it.consumer(**settings) as consumer:
                await consumer.subscribe("T", it.desk.take, ordered=True, order_by="keys")
                await until(lambda: it.desk.got["a"] == [1])
                message = await it.admin.messages.at(MessageQueue("T", "broker-a", 0), 0)
                it.desk.poison = {"a"}
                verdict = await it.admin.clients.consume_directly(
                    GROUP, consumer.client_id, message.offset_message_id, str(message.store_host)
                )
                assert verdict.order
                assert verdict.consume_result is ConsumeVerdict.CR_THROW_EXCEPTION
                assert "a is bad" in (verdict.remark or "")


@on_loop
async def test_the_order_configuration_fixes_where_producers_send(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=4) as it:
        await it.admin.name_servers.update_config({"orderMessageEnable": "true"})
        await it.admin.name_servers.put_order_conf("T", {"broker-a": 2})
        async with Producer("orders", name_server=it.cluster.address) as producer:
            queues = await producer.fetch_publish_queues("T")
            assert [queue.queue_id for queue in queues] == [0, 1]
            used = {(await producer.send(Message("T", b"a 1"))).queue.queue_id for _ in range(4)}
            assert used == {0, 1}
        async with it.consumer() as consumer:  # what lies in the other queues is still read
            await consumer.subscribe("T", it.desk.take, ordered=True)
            await until(lambda: len(consumer.assigned_queues) == 4)
        await it.admin.name_servers.delete_order_conf("T")
        async with Producer("orders", name_server=it.cluster.address) as producer:
            assert len(await producer.fetch_publish_queues("T")) == 4


@on_loop
async def test_keys_are_parked_by_namespace_and_unit(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        async with Producer(
            "writers", name_server=it.cluster.address, namespace="ns", unit_mode=True
        ) as producer:
            for number in (1, 2):
                await producer.send(Message("Unit", f"a {number}".encode(), keys="a"))
        it.desk.poison = {"a"}
        settings = {"namespace": "ns", "unit_mode": True, "max_reconsume_times": 0}
        async with it.consumer(**settings) as consumer:
            await consumer.subscribe(
                "Unit", it.desk.take, ordered=True, order_by="keys", on_poison="park"
            )
            await until(lambda: len(it.desk.tried) >= 1)
            wanted = f"ns%{GROUP}"
            await until_told(lambda: it.count_of(wanted), 2)
            it.desk.poison = set()
            (seen, *_) = await it.admin.parked.resume(wanted, topic="ns%Unit")
            assert seen.queue.topic == "ns%Unit"
            await until(lambda: sorted(it.desk.got["a"]) == [1, 2])
        topics = it.cluster.broker.parts.topics
        assert topics.require("ns%Unit").topic_sys_flag == 1
        assert topics.require(f"%RETRY%ns%{GROUP}").topic_sys_flag == 2


class Forgetful:
    """Keeps no offsets: as if the member had died before it committed any."""

    async def read(self, queue: MessageQueue) -> int | None:
        return None

    async def write(self, offsets: object, *, wait: bool) -> None:
        pass


async def until_told(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    async with asyncio.timeout(PATIENCE):
        while await ask() != wanted:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)


def dead_letters(it: Scene) -> int:
    return it.cluster.broker.parts.store.max_offset(f"%DLQ%{GROUP}", 0)
