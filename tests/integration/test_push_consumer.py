"""Push consumers with a NameServer and a broker of ours: what is sent is handled, at least once."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.client.consumer.group.held_queue import FlowLimits
from bolide.client.consumer.handlers import concurrent
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.handlers.invocation import ConsumeContext
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.errors import GroupTaken, WrongState
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ConsumeVerdict, DirectConsumption, RunningConsumer
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import ConsumeDirectlyHeader, RunningInfoHeader
from bolide.protocol.headers.offsets import ResetOffsetHeader
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.tags import BadTagExpression
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

GROUP = "readers"


class Scene:
    """A cluster, a producer, and what consumers wrote down."""

    def __init__(self, cluster: OwnCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.got: list[StoredMessage] = []

    def consumer(self, group: str = GROUP, **settings: Any) -> PushConsumer:
        chosen = {"consume_from": "first", "name_server": self.cluster.address}
        return PushConsumer(group, **chosen | settings)

    async def send(self, *bodies: str, topic: str = "T", **said: Any) -> None:
        queue = said.pop("queue", None)
        for body in bodies:
            message = Message(topic, body.encode(), **said)
            if queue is None:
                await self.producer.send(message)
            else:
                where = MessageQueue(topic, "broker-a", queue)
                await self.producer.send(message, queue=where)

    async def take(self, message: StoredMessage) -> None:
        self.got.append(message)

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.got]

    async def until_got(self, count: int) -> None:
        await until(lambda: len(self.got) >= count)

    def committed(self, topic: str = "T", queue_id: int = 0, group: str = GROUP) -> int | None:
        return self.cluster.broker.parts.offsets.find(group, topic, queue_id)


@asynccontextmanager
async def scene(directory: Path, *, queues: int = 1, **settings: Any) -> AsyncIterator[Scene]:
    async with (
        own_cluster(directory, **settings) as cluster,
        Producer("writers", name_server=cluster.address) as producer,
    ):
        await create_topic(producer, "T", queues)
        yield Scene(cluster, producer)


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


# Delivery


@on_loop
async def test_what_is_sent_is_handled_in_each_place(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=4) as it:
        threads: list[str] = []
        inline: list[str] = []
        async with it.consumer("a") as a, it.consumer("b") as b, it.consumer("c") as c:
            await a.subscribe("T", "*", it.take)
            await b.subscribe("T", "*", lambda message: threads.append(message.body.decode()))
            await c.subscribe("T", "*", lambda m: inline.append(m.body.decode()), inline=True)
            await it.send(*numbers(0, 20))
            await until(lambda: min(len(it.got), len(threads), len(inline)) >= 20)
        assert sorted(it.bodies) == sorted(threads) == sorted(inline) == sorted(numbers(0, 20))


@on_loop
async def test_only_wanted_tags_come_and_the_others_are_passed_by(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer(commit_interval=0.05) as consumer:
        await it.send("no", tags="C")
        await consumer.subscribe("T", "A || B", it.take)
        await it.send("a", tags="A")
        await it.send("b", tags="B")
        await it.until_got(2)
        await it.send("no", tags="C")
        await until(lambda: it.committed() == 3)
        assert it.bodies == ["a", "b"]
        assert [message.tags for message in it.got] == ["A", "B"]


@on_loop
async def test_the_position_advances_when_nothing_matches(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send(*numbers(0, 5), tags="C")
        async with it.consumer(commit_interval=0.05) as consumer:
            await consumer.subscribe("T", "A", it.take)
            await until(lambda: it.committed() == 5)
        assert it.got == []


@on_loop
async def test_a_message_knows_how_far_behind_it_is(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("first", "second", "third")
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.until_got(3)
        assert [message.lag for message in it.got] == [3, 2, 1]


@on_loop
async def test_a_new_group_begins_where_it_says(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("old")
        await asyncio.sleep(0.01)
        since = time.time()
        await it.send("young")
        last: list[StoredMessage] = []
        timed: list[StoredMessage] = []
        async with (
            it.consumer("l", consume_from="last", offset_store=Forgetful()) as a,
            it.consumer(
                "t", consume_from="timestamp", consume_timestamp=since, offset_store=Forgetful()
            ) as b,
        ):
            await a.subscribe("T", "*", last.append)
            await b.subscribe("T", "*", timed.append)
            await it.send("new")
            await until(lambda: last and len(timed) >= 2)
        assert [message.body for message in last] == [b"new"]
        assert [message.body for message in timed] == [b"young", b"new"]


class Forgetful:
    """An offset store of one's own, which keeps what it is told for later looks only."""

    def __init__(self) -> None:
        self.written: dict[MessageQueue, int] = {}

    async def read(self, queue: MessageQueue) -> int | None:
        return None

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        self.written.update(offsets)


@on_loop
async def test_an_offset_store_of_ones_own_is_told_of_progress(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("one", "two")
        store = Forgetful()
        async with it.consumer(offset_store=store) as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.until_got(2)
        assert store.written[MessageQueue("T", "broker-a", 0)] == 2
        assert it.committed() is None


@on_loop
async def test_a_batch_handler_gets_lists(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send(*numbers(0, 10))
        sizes: list[int] = []

        async def take_all(messages: Sequence[StoredMessage]) -> None:
            sizes.append(len(messages))
            it.got.extend(messages)

        async with it.consumer(pull_batch_size=10) as consumer:
            await consumer.subscribe("T", "*", take_all, batch=4)
            await it.until_got(10)
        assert sizes == [4, 4, 2]


@on_loop
async def test_namespaces_are_taken_off_for_handlers(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        async with (
            Producer("p", name_server=it.cluster.address, namespace="blue") as producer,
            it.consumer(namespace="blue") as consumer,
        ):
            await create_topic(producer, "T", 1)
            failed: list[str] = []

            async def take(message: StoredMessage) -> None:
                if not failed:
                    failed.append(message.topic)
                    raise Retry
                await it.take(message)

            await consumer.subscribe("T", "*", take)
            await producer.send(Message("T", b"blue"))
            await it.until_got(1)
            assert consumer.assigned_queues == {MessageQueue("T", "broker-a", 0)}
        assert [(m.topic, m.reconsume_times) for m in it.got] == [("T", 1)]
        assert failed == ["T"]


# Retries


@on_loop
async def test_what_fails_comes_again_with_its_topic_until_it_succeeds(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        tries: list[int] = []

        def fail_twice(message: StoredMessage) -> None:
            tries.append(message.reconsume_times)
            if len(tries) < 3:
                raise ValueError("not yet")
            it.got.append(message)

        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", fail_twice)
            await it.send("letter", tags="A", keys=["k"])
            await it.until_got(1)
        assert tries == [0, 1, 2]
        assert (it.got[0].topic, it.got[0].tags, it.got[0].keys) == ("T", "A", ("k",))


@on_loop
async def test_what_never_succeeds_is_a_dead_letter(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        tries: list[int] = []

        async def fail(message: StoredMessage) -> None:
            tries.append(message.reconsume_times)
            raise Retry("never")

        async with it.consumer(max_reconsume_times=1) as consumer:
            await consumer.subscribe("T", "*", fail)
            await it.send("letter")
            await until(lambda: it.cluster.broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 1)
        assert tries == [0, 1]


@on_loop
async def test_a_handler_may_give_up_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer() as consumer:

        async def give_up(message: StoredMessage) -> None:
            raise Retry("hopeless", delay_level=-1)

        await consumer.subscribe("T", "*", give_up)
        await it.send("letter")
        await until(lambda: it.cluster.broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 1)


@on_loop
async def test_the_rest_of_a_batch_that_was_not_done_is_sent_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("0", "1", "2")
        calls: list[list[str]] = []

        def do_one(messages: Sequence[StoredMessage]) -> int:
            calls.append([f"{m.body.decode()}/{m.reconsume_times}" for m in messages])
            return 1

        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", do_one, batch=8)
            await until(lambda: sum(map(len, calls)) >= 5)
        assert calls[0] == ["0/0", "1/0", "2/0"]
        assert {word for call in calls[1:] for word in call} >= {"1/1", "2/1"}


@on_loop
async def test_messages_are_sent_back_on_demand(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.send("again")
            await it.until_got(1)
            await consumer.send_back(it.got[0], delay_level=1)
            await it.until_got(2)
        assert [message.reconsume_times for message in it.got] == [0, 1]


@on_loop
async def test_what_cannot_be_sent_back_is_tried_again_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "RETRY_DELAY", 0.05)
    async with scene(tmp_path) as it:
        tries: list[int] = []

        async def fail_once(message: StoredMessage) -> None:
            tries.append(message.reconsume_times)
            if len(tries) == 1:
                raise Retry

        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", fail_once)

            async def refuse(*_: object) -> None:
                raise BolideError("no")

            monkeypatch.setattr("bolide.client.consumer.send_back.SendBack.send", refuse)
            await it.send("letter")
            await until(lambda: len(tries) == 2)
        assert tries == [0, 1]
        assert it.committed() == 1


@on_loop
async def test_a_message_that_takes_too_long_is_sent_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        release = asyncio.Event()

        async def hang_once(message: StoredMessage) -> None:
            it.got.append(message)
            if message.reconsume_times == 0:
                await release.wait()

        async with it.consumer(consume_timeout=0.1) as consumer:
            await consumer.subscribe("T", "*", hang_once)
            await it.send("letter")
            await it.until_got(2)
            await consumer.commit()
            assert it.committed() == 1
            release.set()
        assert [message.reconsume_times for message in it.got] == [0, 1]


# Order


@on_loop
async def test_an_ordered_handler_gets_each_queue_in_order_one_at_a_time(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=3) as it:
        running: set[int] = set()

        async def take(message: StoredMessage) -> None:
            assert message.queue_id not in running
            running.add(message.queue_id)
            await asyncio.sleep(0.001)
            running.discard(message.queue_id)
            it.got.append(message)

        for queue in range(3):
            await it.send(*numbers(0, 15), queue=queue)
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", take, ordered=True)
            await it.until_got(45)
        for queue in range(3):
            mine = [m.queue_offset for m in it.got if m.queue_id == queue]
            assert mine == list(range(15))


@on_loop
async def test_a_failing_ordered_handler_holds_its_queue(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        seen: list[tuple[str, int]] = []

        def fail_twice(message: StoredMessage) -> None:
            seen.append((message.body.decode(), message.reconsume_times))
            if message.body == b"1" and message.reconsume_times < 2:
                raise Retry("wait", suspend=0.02)

        await it.send("0", "1", "2")
        async with it.consumer(ordered_suspend=0.01) as consumer:
            await consumer.subscribe("T", "*", fail_twice, ordered=True)
            await until(lambda: len(seen) == 5)
        assert seen == [("0", 0), ("1", 0), ("1", 1), ("1", 2), ("2", 0)]


@on_loop
async def test_an_ordered_message_beyond_its_tries_makes_room_as_a_dead_letter(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as it:

        async def fail_first(message: StoredMessage) -> None:
            if message.body == b"bad":
                raise Retry
            it.got.append(message)

        async with it.consumer(max_reconsume_times=1, ordered_suspend=0.01) as consumer:
            await consumer.subscribe("T", "*", fail_first, ordered=True)
            await it.send("bad", "good")
            await it.until_got(1)
            await until(lambda: it.cluster.broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 1)
        assert it.bodies == ["good"]


@on_loop
async def test_an_ordered_queue_moves_to_another_member_in_order(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=2) as it:

        async def take(message: StoredMessage) -> None:
            await asyncio.sleep(0.002)
            it.got.append(message)

        for queue in range(2):
            await it.send(*numbers(0, 60), queue=queue)
        first = it.consumer()
        await first.subscribe("T", "*", take, ordered=True)
        async with first:
            await it.until_got(10)
            async with it.consumer() as second:
                await second.subscribe("T", "*", take, ordered=True)
                await until(lambda: len(second.assigned_queues) == 1)
                await it.until_got(70)
            await it.until_got(120)
        for queue in range(2):
            assert [m.queue_offset for m in it.got if m.queue_id == queue] == list(range(60))


# Members


@on_loop
async def test_members_share_and_take_over_without_repeating_anything(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=4) as it, it.consumer() as first:
        await first.subscribe("T", "*", it.take)
        async with it.consumer() as second:
            await second.subscribe("T", "*", it.take)
            await until(lambda: len(first.assigned_queues) == len(second.assigned_queues) == 2)
            assert not first.assigned_queues & second.assigned_queues
            await it.send(*numbers(0, 40))
            await it.until_got(40)
        await until(lambda: len(first.assigned_queues) == 4)
        await it.send(*numbers(40, 60))
        await it.until_got(60)
        assert sorted(map(int, it.bodies)) == list(range(60))


@on_loop
async def test_a_listener_hears_which_queues_are_assigned(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []

    async def listen(topic: str, queues: frozenset[object], mine: frozenset[object]) -> None:
        heard.append((topic, len(queues), len(mine)))

    async with scene(tmp_path, queues=4) as it, it.consumer(on_assignment=listen) as consumer:
        await consumer.subscribe("T", "*", it.take)
        await until(lambda: heard == [("T", 4, 4)])
        await consumer.unsubscribe("T")
        await until(lambda: heard[1:] == [("T", 0, 0)])


@on_loop
async def test_a_listener_may_change_what_is_subscribed_to(tmp_path: Path) -> None:
    async def listen(topic: str, _all: object, mine: frozenset[object]) -> None:
        if mine:
            await consumer.unsubscribe(topic)

    async with scene(tmp_path) as it:
        consumer = it.consumer(on_assignment=listen)
        async with consumer, asyncio.timeout(10):
            await consumer.subscribe("T", "*", it.take)
            await until(lambda: not consumer.assigned_queues)


@on_loop
async def test_the_order_of_a_topic_is_changed_between_two_rounds(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer() as consumer:
        await consumer.subscribe("T", "*", it.take)
        async with consumer._engine.rebalancer.between_rounds():
            changing = asyncio.create_task(consumer.subscribe("T", "*", it.take, ordered=True))
            await asyncio.sleep(0.05)
            assert len(consumer.assigned_queues) == 1  # a round that is under way still holds it
        await changing
        await until(lambda: len(consumer.assigned_queues) == 1)
        await it.send("0")
        await it.until_got(1)
        assert all(
            held.consuming for held in consumer._engine.held_queues if held.queue.topic == "T"
        )


@on_loop
async def test_closing_waits_for_handlers_and_commits_what_they_did(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        begun = asyncio.Event()

        async def slow(message: StoredMessage) -> None:
            begun.set()
            await asyncio.sleep(0.1)
            it.got.append(message)

        async with it.consumer(concurrency=1) as consumer:
            await consumer.subscribe("T", "*", slow)
            await it.send("0", "1", "2")
            await begun.wait()
        done = len(it.got)
        assert 1 <= done < 3
        assert it.committed() == done
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.until_got(3)
        assert it.bodies == ["0", "1", "2"]


@on_loop
async def test_closing_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        begun = asyncio.Event()

        async def hang(message: StoredMessage) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with it.consumer(close_timeout=0.1) as consumer:
            await consumer.subscribe("T", "*", hang)
            await it.send("0")
            await begun.wait()
        assert it.committed() == 0


@on_loop
async def test_topics_come_and_go_while_it_runs(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await create_topic(it.producer, "U", 1)
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", it.take)
            await consumer.subscribe("U", "*", it.take)
            await it.send("t")
            await it.send("u", topic="U")
            await it.until_got(2)
            await consumer.unsubscribe("T")
            assert {queue.topic for queue in consumer.assigned_queues} == {"U"}
            await it.send("missed")
            await it.send("u2", topic="U")
            await it.until_got(3)
            await consumer.subscribe("T", "*", it.take)
            await it.until_got(4)
        assert it.bodies == [*sorted(it.bodies[:2]), "u2", "missed"]


@on_loop
async def test_a_subscription_may_become_ordered(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer() as consumer:
        await consumer.subscribe("T", "*", it.take)
        await it.send("0")
        await it.until_got(1)
        await consumer.subscribe("T", "*", it.take, ordered=True)
        await it.send("1", "2")
        await it.until_got(3)
        assert it.bodies == ["0", "1", "2"]


@on_loop
async def test_a_second_consumer_of_a_group_in_one_instance_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer(instance_name="one"):
        with pytest.raises(GroupTaken, match="instance_name"):
            await it.consumer(instance_name="one").start()


@on_loop
async def test_use_outside_of_its_life_is_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        consumer = it.consumer()
        with pytest.raises(WrongState, match="not started"):
            consumer.pause()
        async with consumer:
            with pytest.raises(WrongState, match="started already"):
                await consumer.start()
            with pytest.raises(BadTagExpression):
                await consumer.subscribe("T", "||", it.take)
        with pytest.raises(WrongState, match="closed"):
            await consumer.subscribe("T", "*", it.take)
        await consumer.close()


@on_loop
async def test_it_starts_without_a_name_server_and_consumes_when_one_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as it:
        await it.send("letter")
        async with it.consumer(name_server="127.0.0.1:1") as consumer:
            await consumer.subscribe("T", "*", it.take)
            assert consumer.assigned_queues == frozenset()
            consumer.set_name_servers(it.cluster.address)
            await it.until_got(1)
    assert "waits for topic T" in caplog.text


# Broadcasting


@on_loop
async def test_every_broadcasting_member_gets_everything_and_goes_on_later(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        other: list[StoredMessage] = []

        def member(name: str) -> PushConsumer:
            place = tmp_path / "offsets"
            return it.consumer(instance_name=name, model="broadcasting", offset_directory=place)

        async with member("one") as one, member("two") as two:
            await one.subscribe("T", "*", it.take)
            await two.subscribe("T", "*", other.append)
            await it.send(*numbers(0, 10))
            await it.until_got(10)
            await until(lambda: len(other) >= 10)
        await it.send("next")
        async with member("one") as one:
            await one.subscribe("T", "*", it.take)
            await it.until_got(11)
        assert it.bodies[-1] == "next"
        assert it.committed() is None


@on_loop
async def test_a_broadcasting_member_drops_what_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as it:

        async def fail_first(message: StoredMessage) -> None:
            await it.take(message)
            raise ValueError("no")

        settings: Any = {"model": "broadcasting", "offset_directory": tmp_path / "offsets"}
        async with it.consumer(**settings) as consumer:
            await consumer.subscribe("T", "*", fail_first)
            await it.send("0", "1")
            await it.until_got(2)
        assert "is dropped" in caplog.text
        async with it.consumer(**settings) as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.send("2")
            await it.until_got(3)
        assert it.bodies == ["0", "1", "2"]


# Flow


@on_loop
async def test_pausing_stops_pulling_and_resuming_goes_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer() as consumer:
        consumer.pause()
        await consumer.subscribe("T", "*", it.take)
        await it.send("0")
        await asyncio.sleep(0.1)
        assert it.got == []
        assert consumer.is_paused
        consumer.resume()
        await it.until_got(1)


@on_loop
async def test_no_more_is_held_than_the_limits_allow(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        gate = asyncio.Event()

        async def wait(message: StoredMessage) -> None:
            await gate.wait()
            it.got.append(message)

        await it.send(*numbers(0, 40))
        limits = FlowLimits(count=8)
        async with it.consumer(flow_limits=limits, pull_batch_size=4) as consumer:
            await consumer.subscribe("T", "*", wait)
            (held,) = [h for h in consumer._engine.held_queues if h.queue.topic == "T"]
            await until(lambda: len(held.process) == 12)  # one batch beyond the limit
            await asyncio.sleep(0.05)
            assert len(held.process) == 12
            gate.set()
            await it.until_got(40)


@on_loop
async def test_concurrency_changes_while_it_runs(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        gate, now = asyncio.Event(), [0]

        async def wait(message: StoredMessage) -> None:
            now[0] += 1
            await gate.wait()
            it.got.append(message)

        await it.send(*numbers(0, 10))
        async with it.consumer(concurrency=2) as consumer:
            await consumer.subscribe("T", "*", wait)
            await until(lambda: now[0] == 2)
            consumer.concurrency = 5
            await until(lambda: now[0] == 5)
            assert consumer.concurrency == 5
            gate.set()
            await it.until_got(10)


# Trouble


@on_loop
async def test_it_goes_on_after_its_broker_restarted(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.send("before")
            await it.until_got(1)
            await it.cluster.stop_broker()
            await it.cluster.start_broker()
            await it.send("after")
            await until(lambda: len(it.got) >= 2, within=30)
        assert it.bodies == ["before", "after"]


@on_loop
async def test_an_ordered_consumer_has_its_lock_from_a_broker_that_restarted(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as it, it.consumer() as consumer:
        await consumer.subscribe("T", "*", it.take, ordered=True)
        await it.send("before")
        await it.until_got(1)
        (held,) = [each for each in consumer._engine.held_queues if each.queue.topic == "T"]
        await it.cluster.stop_broker()
        await until(lambda: not held.is_locked)
        await it.cluster.start_broker()
        locks = it.cluster.broker.parts.locks
        await until(lambda: locks.is_locked(GROUP, held.queue) and held.is_locked)
        await it.send("after")
        await it.until_got(2)


@on_loop
async def test_an_offset_that_is_not_there_is_corrected(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("0")
        it.cluster.broker.parts.offsets.commit(GROUP, "T", 0, 500)
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", it.take)
            await until(lambda: it.committed() == 1)
            await it.send("1")
            await it.until_got(1)
        assert it.bodies == ["1"]


@on_loop
async def test_hooks_see_every_call_and_choose_messages(tmp_path: Path) -> None:
    class Hook:
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def before(self, context: ConsumeContext) -> None:
            context.state["begun"] = True

        def after(self, context: ConsumeContext) -> None:
            assert context.state == {"begun": True}
            assert context.outcome is not None
            self.seen.append((context.group, context.outcome.done))

    def not_two(message: StoredMessage) -> bool:
        return message.body != b"2"

    async with scene(tmp_path) as it:
        hook = Hook()
        async with it.consumer(consume_hooks=[hook], filter_hooks=[not_two]) as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.send("1", "2", "3")
            await it.until_got(2)
        assert it.bodies == ["1", "3"]
        assert hook.seen == [(GROUP, 1)] * 2
        assert it.committed() == 3


@on_loop
async def test_a_queue_without_matching_messages_is_committed_past_them(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer(suspend=0.2, commit_interval=0.05) as consumer:
        await consumer.subscribe("T", "wanted", it.take)
        await it.send("1", "2")
        await until(lambda: it.committed() == 2)
    assert it.bodies == []


@pytest.mark.parametrize("post", [False, True])
@on_loop
async def test_pulls_carry_the_subscription_if_they_are_told_to(
    tmp_path: Path, *, post: bool
) -> None:
    seen: list[str] = []

    class Watcher:
        def after_pull(self, peer: str, header: PullHeader, count: int, size: int) -> None:
            seen.append(header.subscription or "")

    async with scene(tmp_path) as it:
        it.cluster.broker.gate.hooks.consume += (Watcher(),)
        async with it.consumer(post_subscription_when_pull=post) as consumer:
            await consumer.subscribe("T", "a || b", it.take)
            await it.producer.send(Message("T", b"1", tags="a"))
            await it.until_got(1)
    assert ("a || b" in seen) is post


# Requests of brokers


async def ask(it: Scene, code: RequestCode, header: Any) -> bytes:
    async with RemotingClient() as client:
        return (await client.call(it.cluster.broker.address, code, header)).body


@on_loop
async def test_an_operator_resets_the_offset_of_a_running_group(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer(suspend=0.2) as consumer:
        await consumer.subscribe("T", "*", it.take)
        await it.send("0", "1")
        await it.until_got(2)
        header = ResetOffsetHeader(topic="T", group=GROUP, timestamp=0, is_force=True)
        await ask(it, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        await it.until_got(4)
        assert it.bodies == ["0", "1", "0", "1"]


@on_loop
async def test_a_broker_without_resets_of_its_own_has_the_client_do_it(tmp_path: Path) -> None:
    async with scene(tmp_path, use_server_side_reset_offset=False) as it:
        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", it.take)
            await it.send("0", "1")
            await it.until_got(2)
            header = ResetOffsetHeader(topic="T", group=GROUP, timestamp=0, is_force=True)
            await ask(it, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            await it.until_got(4)
        assert it.bodies == ["0", "1", "0", "1"]
        assert it.committed() == 2


@on_loop
async def test_it_tells_of_itself_and_tries_a_message_when_asked(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer() as consumer:
        await consumer.subscribe("T", "A", it.take)
        await it.send("0", tags="A")
        await it.until_got(1)
        await until(lambda: it.committed() is not None)
        info = RunningInfoHeader(consumer_group=GROUP, client_id=consumer.client_id)
        body = await ask(it, RequestCode.GET_CONSUMER_RUNNING_INFO, info)
        shown = fastjson.decode(body, RunningConsumer)
        assert shown.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {each.topic for each in shown.subscription_set} == {"T", f"%RETRY%{GROUP}"}
        assert shown.mq_table[MessageQueue("T", "broker-a", 0)].commit_offset == 1
        trial = ConsumeDirectlyHeader(
            consumer_group=GROUP,
            client_id=consumer.client_id,
            msg_id=it.got[0].offset_message_id,
            broker_name="broker-a",
        )
        body = await ask(it, RequestCode.CONSUME_MESSAGE_DIRECTLY, trial)
        verdict = fastjson.decode(body, DirectConsumption).consume_result
        assert verdict is ConsumeVerdict.CR_SUCCESS
        assert it.bodies == ["0", "0"]


@on_loop
async def test_a_retry_of_a_topic_without_a_handler_waits_and_is_sent_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "RETRY_DELAY", 0.05)
    async with scene(tmp_path) as it:
        await create_topic(it.producer, "U", 1)

        async def fail(message: StoredMessage) -> None:
            it.got.append(message)
            if message.reconsume_times == 0:
                raise Retry

        async with it.consumer() as consumer:
            await consumer.subscribe("T", "*", fail)
            await consumer.subscribe("U", "*", it.take)
            await it.send("0")
            await it.until_got(1)
            await consumer.unsubscribe("T")
            retries = f"%RETRY%{GROUP}"
            await until(lambda: it.cluster.broker.store.max_offset(retries, 0) == 2)
            await consumer.subscribe("T", "*", fail)
            await it.until_got(2)
        assert it.got[1].reconsume_times >= 2


@on_loop
async def test_a_queue_given_up_waits_for_its_handlers(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.consumer() as consumer:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def wait(message: StoredMessage) -> None:
            begun.set()
            await gate.wait()
            it.got.append(message)

        await consumer.subscribe("T", "*", wait)
        await it.send("0")
        await begun.wait()
        await consumer.unsubscribe("T")
        assert it.committed() == 0
        gate.set()
        await until(lambda: it.committed() == 1)
        assert it.bodies == ["0"]


@on_loop
async def test_a_group_that_dies_before_its_first_message_keeps_its_place(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("old")
        store = Forgetful()
        async with it.consumer(consume_from="last", offset_store=store) as consumer:
            await consumer.subscribe("T", "*", it.take)
            assert store.written[MessageQueue("T", "broker-a", 0)] == 1


@on_loop
async def test_what_a_member_got_and_did_not_finish_goes_to_another_when_it_dies(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as it:
        begun = asyncio.Event()

        async def hang(message: StoredMessage) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with it.consumer(close_timeout=0.0) as dying:
            await dying.subscribe("T", "*", hang)
            await it.send(*numbers(0, 5))
            await begun.wait()
        async with it.consumer() as heir:
            await heir.subscribe("T", "*", it.take)
            await it.until_got(5)
        assert it.bodies == numbers(0, 5)
