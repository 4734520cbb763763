"""Static topics on two brokers of ours: logical queues keep their offsets while they move."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bolide import Message, PopConsumer, Producer, PushConsumer, TransactionProducer
from bolide.admin import AdminClient
from bolide.arrow import read_topic
from bolide.broker.server import Broker
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.client.consumer.pull.pull_request import PullStatus
from bolide.client.producer.results import SendResult, TransactionState
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.bodies.topics import MappedTopicConfig, MappingPlan, TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import QueueHeader
from bolide.protocol.headers.topics import CreateTopicHeader
from bolide.protocol.refusals import (
    GroupNotFound,
    InvalidParameter,
    NotLeaderForQueue,
    ServerError,
)
from bolide.protocol.static_topics.planning import CREATE
from bolide.protocol.static_topics.positions import led_queues
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in, pull_header
from tests.support.name_servers import name_server
from tests.support.own_cluster import QUICK_DELAYS

TOPIC = "Fixed"
LOGICAL = "__syslo__global__"
NAMES = ("broker-a", "broker-b")
BLOCK = 10_000


@dataclass
class Scene:
    """Two brokers, a producer, and what consumers have got."""

    directory: Path
    address: str
    admin: AdminClient
    brokers: dict[str, Broker] = field(default_factory=dict)
    got: list[StoredMessage] = field(default_factory=list)
    serving: dict[str, AsyncExitStack] = field(default_factory=dict)

    async def start(self, name: str, **settings: Any) -> None:
        self.serving[name] = AsyncExitStack()
        self.brokers[name] = await self.serving[name].enter_async_context(
            broker_in(
                self.directory / name,
                broker_name=name,
                name_servers=(self.address,),
                message_delay_level=QUICK_DELAYS,
                **settings,
            )
        )

    async def stop(self, name: str) -> None:
        await self.serving[name].aclose()

    async def create(self, queues: int, *brokers: str) -> None:
        topics = self.admin.static_topics
        await topics.apply(await topics.plan_creation(TOPIC, queues, brokers))

    async def move_to(self, *brokers: str) -> None:
        topics = self.admin.static_topics
        await topics.apply(await topics.plan_remapping(TOPIC, brokers))

    def producer(self, **settings: Any) -> Producer:
        return Producer("writers", name_server=self.address, **settings)

    def consumer(self, **settings: Any) -> PushConsumer:
        chosen = {"consume_from": "first", "name_server": self.address}
        return PushConsumer("readers", **chosen | settings)

    async def take(self, message: StoredMessage) -> None:
        self.got.append(message)

    @property
    def bodies(self) -> set[int]:
        return {int(message.body) for message in self.got}

    def mapping(self, name: str) -> QueueMappingDetail:
        found = self.brokers[name].parts.mappings.find(TOPIC)
        assert found is not None
        return found


@asynccontextmanager
async def two_brokers(directory: Path, **settings: Any) -> AsyncIterator[Scene]:
    (directory / "namesrv").mkdir()
    async with name_server(directory / "namesrv") as server, AdminClient(server.address) as admin:
        scene = Scene(directory, server.address, admin)
        for name in NAMES:
            (directory / name).mkdir()
            await scene.start(name, **settings)
        try:
            yield scene
        finally:
            for name in NAMES:
                await scene.stop(name)


def queue(number: int = 0) -> MessageQueue:
    return MessageQueue(TOPIC, LOGICAL, number)


@on_loop
async def test_a_client_sees_logical_queues_over_both_brokers(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene:
        await scene.create(5, *NAMES)

        async with scene.producer() as producer:
            queues = await producer.fetch_publish_queues(TOPIC)
            sent = [await producer.send(Message(TOPIC, b"x")) for _ in range(10)]

    assert queues == [queue(number) for number in range(5)]
    assert sorted((each.queue.queue_id, each.queue_offset) for each in sent) == sorted(
        (number, offset) for number in range(5) for offset in range(2)
    )


@on_loop
async def test_all_messages_arrive_in_order_while_the_queues_move(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(4, *NAMES)
        async with scene.consumer() as consumer:
            await consumer.subscribe(TOPIC, "*", scene.take)
            sent: list[SendResult] = []
            stopped = asyncio.Event()

            async def send_on() -> None:
                while not stopped.is_set():
                    sent.append(await producer.send(Message(TOPIC, b"%d" % len(sent))))

            sending = asyncio.create_task(send_on())
            await until(lambda: len(scene.got) > 100)
            await scene.move_to("broker-b")
            moved = len(sent)
            await until(lambda: len(sent) > moved + 100)
            stopped.set()
            await sending
            await until(lambda: len(scene.bodies) == len(sent))

    assert {message.broker_name for message in scene.got} == {LOGICAL}
    first_copies = {int(message.body): message for message in reversed(scene.got)}
    offsets: dict[int, list[int]] = {number: [] for number in range(4)}
    for number, result in enumerate(sent):
        message = first_copies[number]
        assert message.queue_id == result.queue.queue_id
        assert result.queue_offset in (-1, message.queue_offset)
        offsets[message.queue_id].append(message.queue_offset)
    for found in offsets.values():
        before = [offset for offset in found if offset < BLOCK]
        after = [offset for offset in found if offset >= BLOCK]
        assert found == [*range(len(before)), *range(BLOCK, BLOCK + len(after))]
    assert sum(max(found) >= BLOCK for found in offsets.values()) == 2


@on_loop
async def test_offsets_bounds_and_times_span_all_parts_of_a_queue(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        begun = int(time.time() * 1000)
        await scene.create(1, "broker-a")
        for _ in range(3):
            await producer.send(Message(TOPIC, b"old"), queue=queue())
        await asyncio.sleep(0.02)
        middle = int(time.time() * 1000)
        await scene.move_to("broker-b")
        for _ in range(2):
            await producer.send(Message(TOPIC, b"new"), queue=queue())

        assert await producer.min_offset(queue()) == 0
        assert await producer.max_offset(queue()) == BLOCK + 2
        assert await producer.search_offset(queue(), begun - 1000) == 0
        assert await producer.search_offset(queue(), middle) == BLOCK
        assert await producer.search_offset(queue(), middle + 3_600_000) == BLOCK + 2
        assert begun <= await producer.earliest_time(queue()) <= middle


@on_loop
async def test_committed_offsets_follow_the_queue_to_its_new_broker(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        for number in range(3):
            await producer.send(Message(TOPIC, b"%d" % number), queue=queue())
        consumer = PullConsumer("readers", name_server=scene.address)
        async with consumer:
            await consumer.update_consume_offset(queue(), 2)
            await consumer.commit()
            await scene.move_to("broker-b")
            assert await consumer.fetch_consume_offset(queue(), from_store=True) == 2
            await producer.send(Message(TOPIC, b"3"), queue=queue())

            at, bodies = 2, list[bytes]()
            while len(bodies) < 2:
                result = await consumer.pull(queue(), "*", at)
                assert result.status in (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG)
                at, bodies = result.next_offset, bodies + [each.body for each in result.messages]
            await consumer.update_consume_offset(queue(), at)
            await consumer.commit()

            assert (bodies, at) == ([b"2", b"3"], BLOCK + 1)
            assert await consumer.fetch_consume_offset(queue(), from_store=True) == BLOCK + 1
        here = scene.brokers["broker-b"].parts.offsets.find("readers", TOPIC, 0)
        there = scene.brokers["broker-a"].parts.offsets.find("readers", TOPIC, 0)
        assert (here, there) == (1, 2)


@on_loop
async def test_a_broker_that_does_not_lead_a_queue_refuses_it(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene:
        await scene.create(1, "broker-a")
        async with BrokerClient(scene.brokers["broker-b"].address) as client:
            with pytest.raises(NotLeaderForQueue):
                await client.send(TOPIC, queue_id=0)
            with pytest.raises(NotLeaderForQueue):
                await client.pull(TOPIC)
            with pytest.raises(NotLeaderForQueue):
                await client.call(RequestCode.GET_MIN_OFFSET, QueueHeader(TOPIC, 0))


@on_loop
async def test_a_message_that_fails_is_retried_although_its_queue_has_moved(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        await producer.send(Message(TOPIC, b"1"))
        failed = asyncio.Event()
        go_on = asyncio.Event()

        async def take(message: StoredMessage) -> None:
            scene.got.append(message)
            if message.reconsume_times == 0:
                failed.set()
                await go_on.wait()
                raise Retry(delay_level=1)

        async with scene.consumer() as consumer:
            await consumer.subscribe(TOPIC, "*", take)
            await failed.wait()
            await scene.move_to("broker-b")
            go_on.set()
            await until(lambda: any(message.reconsume_times == 1 for message in scene.got))


@on_loop
async def test_a_restarted_broker_leads_its_queues_again(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer(send_timeout=20) as producer:
        await scene.create(2, "broker-a", "broker-b")
        before = scene.mapping("broker-a")
        await scene.stop("broker-a")
        await scene.start("broker-a")

        assert scene.mapping("broker-a") == before
        for number in range(2):
            sent = await producer.send(Message(TOPIC, b"x"), queue=queue(number))
            assert sent.queue == queue(number)


@on_loop
async def test_a_deleted_static_topic_leaves_no_mapping(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene:
        await scene.create(2, *NAMES)
        await scene.admin.topics.delete(TOPIC, "DefaultCluster")

        assert [len(each.parts.mappings) for each in scene.brokers.values()] == [0, 0]
        await scene.admin.topics.create(TOPIC, "DefaultCluster", queues=1)
        async with scene.producer() as producer:
            found = await producer.fetch_publish_queues(TOPIC)
    assert found == [MessageQueue(TOPIC, name, 0) for name in NAMES]


@on_loop
async def test_an_older_epoch_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene:
        await scene.create(1, "broker-a")
        plan = await scene.admin.static_topics.plan_creation(TOPIC, 2, ["broker-b"])
        await scene.move_to("broker-b")
        before = scene.mapping("broker-b"), scene.brokers["broker-b"].parts.topics.find(TOPIC)
        for config in plan.broker_config_map.values():
            assert config.mapping_detail is not None
            config.mapping_detail.epoch -= 1_000_000

        with pytest.raises(ServerError, match="older"):
            await scene.admin.static_topics.apply(plan)
        after = scene.mapping("broker-b"), scene.brokers["broker-b"].parts.topics.find(TOPIC)
        assert after == before


@on_loop
async def test_expired_parts_of_a_queue_are_cleaned(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        await scene.move_to("broker-b")
        await producer.send(Message(TOPIC, b"x"), queue=queue())
        await scene.brokers["broker-b"].parts.mapping_cleaner.clean()

        (item,) = scene.mapping("broker-b").hosted_queues[0]
        assert (item.bname, item.logic_offset) == ("broker-b", BLOCK)
        assert await producer.min_offset(queue()) == BLOCK


@on_loop
async def test_a_part_with_messages_is_not_cleaned(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        await producer.send(Message(TOPIC, b"x"), queue=queue())
        await scene.move_to("broker-b")
        await scene.brokers["broker-b"].parts.mapping_cleaner.clean()

        assert len(scene.mapping("broker-b").hosted_queues[0]) == 2


@on_loop
async def test_a_broker_forgets_a_queue_that_its_successor_has_handed_on(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene:
        (tmp_path / "broker-c").mkdir()
        await scene.start("broker-c")
        try:
            await scene.create(1, "broker-a")
            await scene.move_to("broker-b")
            cleaner = scene.brokers["broker-a"].parts.mapping_cleaner
            await cleaner.clean()
            assert 0 in scene.mapping("broker-a").hosted_queues
            await scene.move_to("broker-c")
            await cleaner.clean()
            assert 0 not in scene.mapping("broker-a").hosted_queues
            assert led_queues(scene.mapping("broker-c")) == {0: 0}
        finally:
            await scene.stop("broker-c")


@on_loop
async def test_the_fast_path_leaves_a_topic_that_becomes_static_to_the_handlers(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as scene:
        broker = scene.brokers["broker-a"]
        path = broker.parts.fast_path
        if path is None:
            pytest.skip("the compiled fast path is not there")
        plain = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
        await scene.admin.topics.update(broker.address, plain)
        served = path.fall_throughs
        async with BrokerClient(broker.address) as client, scene.producer() as producer:
            for _ in range(3):
                physical = MessageQueue(TOPIC, "broker-a", 1)
                await producer.send(Message(TOPIC, b"x"), queue=physical)
                await client.pull(TOPIC, queue_id=1)
            before = served.served_sends, served.served_pulls
            assert min(before) > 0

            item = QueueMappingItem(gen=0, queue_id=1, bname="broker-a", logic_offset=0)
            mapping = QueueMappingDetail(
                topic=TOPIC, bname="broker-a", epoch=1, total_queues=1, hosted_queues={0: [item]}
            )
            config = MappedTopicConfig(
                topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2, mapping_detail=mapping
            )
            plan = MappingPlan(
                topic=TOPIC, type=CREATE, epoch=1, broker_config_map={"broker-a": config}
            )
            await scene.admin.static_topics.apply(plan)
            for _ in range(3):
                with pytest.raises(BolideError, match="not led"):
                    await producer.send(Message(TOPIC, b"x"), queue=physical)
                with pytest.raises(NotLeaderForQueue):
                    await client.pull(TOPIC, queue_id=1)
            for offset in range(3, 6):
                sent = await producer.send(Message(TOPIC, b"x"), queue=queue())
                assert (sent.queue, sent.queue_offset) == (queue(), offset)
                assert len((await client.pull(TOPIC, queue_id=0)).records) == offset + 1
        assert (served.served_sends, served.served_pulls) == before


@on_loop
async def test_statistics_tell_of_logical_queues(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        async with scene.consumer(commit_interval=0.05) as consumer:
            await consumer.subscribe(TOPIC, "*", scene.take)
            for number in range(3):
                await producer.send(Message(TOPIC, b"%d" % number), queue=queue())
            await until(lambda: len(scene.got) == 3)
            await scene.move_to("broker-b")
            await producer.send(Message(TOPIC, b"3"), queue=queue())
            await until(lambda: len(scene.got) == 4)
            offsets = scene.brokers["broker-b"].parts.offsets
            await until(lambda: offsets.find("readers", TOPIC, 0) == 1)

            bounds = (await scene.admin.topics.stats(TOPIC)).offset_table
            progress = (await scene.admin.offsets.progress("readers", TOPIC)).offset_table

    assert (bounds[queue()].min_offset, bounds[queue()].max_offset) == (0, BLOCK + 1)
    assert bounds[MessageQueue(TOPIC, "broker-a", 0)].max_offset == 3
    assert {each: at.consumer_offset for each, at in progress.items()} == {queue(): BLOCK + 1}
    assert progress[queue()].broker_offset == BLOCK + 1


@on_loop
async def test_a_moved_topic_is_read_as_a_table(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        await producer.send(Message(TOPIC, b"old"), queue=queue())
        await scene.move_to("broker-b")
        await producer.send(Message(TOPIC, b"new"), queue=queue())
        address = scene.address
        table = await asyncio.to_thread(
            lambda: read_topic(TOPIC, name_server=address, patience=5.0).to_table()
        )

    rows = zip(table["body"].to_pylist(), table["queue_offset"].to_pylist(), strict=True)
    assert sorted(rows, key=lambda row: row[1]) == [(b"old", 0), (b"new", BLOCK)]


@on_loop
async def test_ordered_consumers_lock_logical_queues_at_their_leaders(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(2, *NAMES)
        async with scene.consumer() as consumer:
            await consumer.subscribe(TOPIC, "*", scene.take, ordered=True)
            for number in range(10):
                await producer.send(Message(TOPIC, b"%d" % number), queue=queue(number % 2))
            await until(lambda: len(scene.got) == 10)

    for half in range(2):
        bodies = [int(each.body) for each in scene.got if each.queue_id == half]
        assert bodies == list(range(half, 10, 2))


@on_loop
async def test_a_transaction_ends_at_the_broker_that_has_its_half(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene:
        await scene.create(1, "broker-a")
        await scene.move_to("broker-b")
        producer = TransactionProducer(
            "writers", check=lambda _: TransactionState.UNKNOWN, name_server=scene.address
        )
        async with producer, scene.consumer() as consumer:
            await consumer.subscribe(TOPIC, "*", scene.take)
            async with producer.transaction(Message(TOPIC, b"1")):
                pass
            await until(lambda: len(scene.got) == 1)

    assert scene.got[0].queue_offset == BLOCK


@on_loop
async def test_pops_take_messages_from_the_physical_queues(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(2, *NAMES)
        for number in range(4):
            await producer.send(Message(TOPIC, b"%d" % number), queue=queue(number % 2))
        bodies = set[bytes]()
        async with PopConsumer(
            "poppers", name_server=scene.address, consume_from="first"
        ) as popper:
            await popper.subscribe(TOPIC)
            async with asyncio.timeout(20):
                while len(bodies) < 4:
                    messages = await popper.receive()
                    bodies |= {message.body for message in messages}
                    await popper.ack(*messages)


@on_loop
async def test_a_consumer_that_would_park_keys_is_told_that_it_cannot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        await producer.send(Message(TOPIC, b"1", keys="k"))
        async with scene.consumer() as consumer:
            await consumer.subscribe(
                TOPIC, "*", scene.take, ordered=True, order_by="keys", on_poison="park"
            )
            await until(lambda: "cannot be parked" in caplog.text)
    assert scene.got == []


@on_loop
async def test_a_send_that_waits_while_its_queue_moves_is_sent_to_the_new_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        expiring = scene.brokers["broker-a"].parts.expiring
        waiting, moved, add = asyncio.Event(), asyncio.Event(), expiring.add

        async def wait_for_the_move(topic: str) -> None:
            waiting.set()
            await moved.wait()
            await add(topic)

        monkeypatch.setattr(type(expiring), "add", lambda _, topic: wait_for_the_move(topic))
        sending = asyncio.create_task(producer.send(Message(TOPIC, b"1", expire_after=600)))
        await waiting.wait()
        await scene.move_to("broker-b")
        monkeypatch.undo()
        moved.set()
        sent = await sending
        assert scene.brokers["broker-b"].parts.store.max_offset(TOPIC, 0) == 1

    assert (sent.queue, sent.queue_offset) == (queue(), BLOCK)


@on_loop
async def test_a_message_with_a_priority_stays_in_the_queue_it_was_sent_to(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        await scene.move_to("broker-b")
        await scene.move_to("broker-a")
        await producer.send(Message(TOPIC, b"7", priority=0))
        async with scene.consumer() as consumer:
            await consumer.subscribe(TOPIC, scene.take)
            await until(lambda: scene.bodies == {7})


@on_loop
async def test_a_pull_that_is_refused_commits_nothing(tmp_path: Path) -> None:
    settings = {"auto_create_subscription_group": False}
    async with two_brokers(tmp_path, **settings) as scene, scene.producer() as producer:
        await scene.create(1, "broker-a")
        await producer.send(Message(TOPIC, b"1"))
        await scene.move_to("broker-b")
        await scene.move_to("broker-a")
        broker = scene.brokers["broker-a"]
        header = pull_header(
            TOPIC, 2 * BLOCK, consumer_group="ghost", sys_flag=1 | 4, commit_offset=1
        )
        async with BrokerClient(broker.address) as client:
            with pytest.raises(GroupNotFound):
                await client.call(RequestCode.PULL_MESSAGE, header)
        assert not broker.parts.offsets.topics_of("ghost")


@on_loop
async def test_mappings_that_no_topic_can_have_are_refused(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as scene:
        await scene.create(1, "broker-a")
        broker = scene.brokers["broker-a"]
        for total, number, item in (
            (2_000_000, 0, QueueMappingItem(bname="broker-a")),
            (1, 2**70, QueueMappingItem(bname="broker-a")),
            (1, 0, QueueMappingItem(bname="broker-a", queue_id=9)),
            (1, 0, QueueMappingItem(bname="broker-a", start_offset=2**62, logic_offset=5)),
        ):
            mapping = QueueMappingDetail(
                topic="Forged", bname="broker-a", total_queues=total, hosted_queues={number: [item]}
            )
            header = CreateTopicHeader(
                topic="Forged", read_queue_nums=1, write_queue_nums=1, perm=6,
                topic_filter_type="SINGLE_TAG",
            )  # fmt: skip
            async with BrokerClient(broker.address) as client:
                with pytest.raises((InvalidParameter, ServerError)):
                    await client.call(
                        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, fastjson.encode(mapping)
                    )
        assert "Forged" not in broker.parts.mappings
