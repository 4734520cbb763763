"""Consumers that pull, poll and run on a schedule, with a NameServer and a broker of ours."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import sync
from bolide.client.consumer.pull.lite_pull_consumer import LitePullConsumer
from bolide.client.consumer.pull.pull_consumer import PullConsumer, PullSchedule, PullTurn
from bolide.client.consumer.pull.pull_request import PullStatus
from bolide.client.errors import RouteNotFound, WrongState
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import RunningConsumer
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import RunningInfoHeader
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

GROUP = "readers"
QUEUE = MessageQueue("T", "broker-a", 0)


class Scene:
    def __init__(self, cluster: OwnCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer

    def lite(self, **settings: Any) -> LitePullConsumer:
        chosen = {"consume_from": "first", "name_server": self.cluster.address}
        return LitePullConsumer(GROUP, **chosen | settings)

    def pull(self, **settings: Any) -> PullConsumer:
        return PullConsumer(GROUP, name_server=self.cluster.address, **settings)

    async def send(self, *bodies: str, queue: MessageQueue = QUEUE, tags: str = "") -> None:
        for body in bodies:
            await self.producer.send(Message("T", body.encode(), tags=tags), queue=queue)

    def committed(self, queue_id: int = 0) -> int | None:
        return self.cluster.broker.parts.offsets.find(GROUP, "T", queue_id)


@asynccontextmanager
async def scene(directory: Path, *, queues: int = 1, **settings: Any) -> AsyncIterator[Scene]:
    async with (
        own_cluster(directory, **settings) as cluster,
        Producer("writers", name_server=cluster.address) as producer,
    ):
        await create_topic(producer, "T", queues)
        yield Scene(cluster, producer)


def bodies(messages: object) -> list[str]:
    assert isinstance(messages, list | tuple)
    return [message.body.decode() for message in messages]


# Filter hooks


def not_two(message: StoredMessage) -> bool:
    return message.body != b"2"


@on_loop
async def test_a_filter_hook_chooses_the_messages_of_a_pull_consumer(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("1", "2", "3")
        async with it.pull(filter_hooks=[not_two]) as consumer:
            result = await consumer.pull(QUEUE, "*", 0)
    assert bodies(result.messages) == ["1", "3"]
    assert result.next_offset == 3


@on_loop
async def test_a_filter_hook_chooses_the_messages_of_a_lite_pull_consumer(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("1", "2", "3")
        async with it.lite(filter_hooks=[not_two]) as consumer:
            await consumer.subscribe("T")
            found: list[str] = []
            while len(found) < 2:
                found += bodies(await consumer.poll())
    assert found == ["1", "3"]


# Pull


@on_loop
async def test_a_pull_says_what_it_came_to_and_where_to_go_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.pull() as consumer:
        await it.send("0", "1", tags="A")
        found = await consumer.pull(QUEUE, "A", 0)
        assert (found.status, bodies(found.messages)) == (PullStatus.FOUND, ["0", "1"])
        assert (found.next_offset, found.min_offset, found.max_offset) == (2, 0, 2)
        none = await consumer.pull(QUEUE, "B", 0)
        assert (none.status, none.next_offset) == (PullStatus.NO_MATCHED_MSG, 2)
        end = await consumer.pull(QUEUE, "*", 2)
        assert (end.status, end.messages) == (PullStatus.NO_NEW_MSG, ())
        beyond = await consumer.pull(QUEUE, "*", 9)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 2)


@on_loop
async def test_a_blocking_pull_waits_for_a_message(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.pull() as consumer:
        waiting = asyncio.create_task(consumer.pull_block_if_not_found(QUEUE, "*", 0))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await it.send("late")
        assert bodies((await waiting).messages) == ["late"]


@on_loop
async def test_offsets_are_kept_by_the_group(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.cluster.broker.parts.offsets.commit(GROUP, "T", 0, 1)
        async with it.pull() as consumer:
            await it.send("0", "1", "2")
            await consumer.update_consume_offset(QUEUE, 2)
            assert await consumer.fetch_consume_offset(QUEUE) == 2
            assert await consumer.fetch_consume_offset(QUEUE, from_store=True) == 1
        assert it.committed() == 2


@on_loop
async def test_a_member_does_not_commit_over_another_what_it_committed_before(
    tmp_path: Path,
) -> None:
    async with (
        scene(tmp_path) as it,
        it.pull(commit_interval=0.01) as one,
        it.pull(commit_interval=60.0) as two,
    ):
        await it.send(*map(str, range(6)))
        await one.update_consume_offset(QUEUE, 1)
        await until(lambda: it.committed() == 1)
        await two.update_consume_offset(QUEUE, 5)
        await two.commit()
        await asyncio.sleep(0.05)
        assert it.committed() == 5


@on_loop
async def test_the_queues_of_a_topic_are_told_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=3) as it, it.pull() as consumer:
        queues = await consumer.fetch_subscribe_queues("T")
        assert queues == [MessageQueue("T", "broker-a", number) for number in range(3)]
        with pytest.raises(RouteNotFound, match="Missing"):
            await consumer.fetch_subscribe_queues("Missing")


@on_loop
async def test_members_that_pull_share_the_queues(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=4) as it, it.pull() as one, it.pull() as two:
        assert len(await one.fetch_balanced_queues("T")) == 4
        assert len(await two.fetch_balanced_queues("T")) == 2
        async with asyncio.timeout(10):
            while len(first := await one.fetch_balanced_queues("T")) > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert not first & await two.fetch_balanced_queues("T")


@on_loop
async def test_positions_and_messages_can_be_asked_for(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.pull() as consumer:
        await it.send("0", "1")
        assert (await consumer.min_offset(QUEUE), await consumer.max_offset(QUEUE)) == (0, 2)
        assert await consumer.search_offset(QUEUE, int(time.time() * 1000) + 60_000) == 2
        (first, _) = (await consumer.pull(QUEUE, "*", 0)).messages
        assert (await consumer.view_message(first.offset_message_id)).body == b"0"


@on_loop
async def test_a_pulled_message_can_be_sent_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.pull() as consumer:
        await it.send("0")
        (message,) = (await consumer.pull(QUEUE, "*", 0)).messages
        await consumer.send_back(message, delay_level=-1)
        assert it.cluster.broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 1


@on_loop
async def test_of_a_queue_that_belongs_to_another_nothing_is_noted(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.pull() as consumer:
        await it.send("0")
        await consumer.register_topics("T")
        stranger = MessageQueue("T", QUEUE.broker_name, 9)
        await consumer.update_consume_offset(stranger, 7)
        await consumer.update_consume_offset(QUEUE, 1)
        await consumer.commit()
        assert it.cluster.broker.parts.offsets.of(GROUP, "T") == {QUEUE.queue_id: 1}


@on_loop
async def test_a_pull_consumer_tells_of_itself(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.pull() as consumer:
        await consumer.register_topics("T")
        header = RunningInfoHeader(consumer_group=GROUP, client_id=consumer.client_id)
        async with RemotingClient() as client:
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            reply = await client.call(it.cluster.broker.address, code, header)
        shown = fastjson.decode(reply.body, RunningConsumer)
        assert shown.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert [each.topic for each in shown.subscription_set] == ["T"]


@on_loop
async def test_numbers_out_of_bounds_are_refused_here(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.pull() as consumer:
        with pytest.raises(ValueError, match="offset -1"):
            await consumer.pull(QUEUE, "*", -1)


# Lite pull


async def polled(consumer: LitePullConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += await consumer.poll(1)
    return found


@on_loop
async def test_polls_bring_the_messages_of_subscribed_topics(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=2) as it, it.lite() as consumer:
        await consumer.subscribe("T", "A")
        await it.send("0", "1", tags="A")
        await it.send("no", tags="B")
        await it.send("2", queue=MessageQueue("T", "broker-a", 1), tags="A")
        assert sorted(bodies(await polled(consumer, 3))) == ["0", "1", "2"]
        assert list(await consumer.poll(0)) == []
        assert len(consumer.assigned_queues) == 2


@on_loop
async def test_what_a_poll_returned_is_committed_by_a_later_one(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.lite(commit_interval=0.001) as consumer:
        await consumer.subscribe("T")
        await it.send("0")
        await polled(consumer, 1)
        assert it.committed() == 0
        await asyncio.sleep(0.01)
        await consumer.poll(0)
        await until(lambda: it.committed() == 1)


@on_loop
async def test_leaving_commits_what_was_polled_unless_by_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.send("0")
        with pytest.raises(ZeroDivisionError):
            async with it.lite() as consumer:
                await consumer.subscribe("T")
                await polled(consumer, 1)
                raise ZeroDivisionError
        assert it.committed() == 0
        async with it.lite() as consumer:
            await consumer.subscribe("T")
            assert bodies(await polled(consumer, 1)) == ["0"]
        assert it.committed() == 1


@on_loop
async def test_without_auto_commit_only_the_user_commits(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.cluster.broker.parts.offsets.commit(GROUP, "T", 0, 0)
        await it.send("0", "1")
        async with it.lite(auto_commit=False) as consumer:
            await consumer.subscribe("T")
            await polled(consumer, 2)
            await consumer.poll(0)
        assert it.committed() == 0
        async with it.lite(auto_commit=False) as consumer:
            await consumer.subscribe("T")
            await polled(consumer, 2)
            await consumer.commit()
            assert await consumer.committed(QUEUE) == 2
            await consumer.commit({QUEUE: 1})
            assert await consumer.committed(QUEUE) == 1


@on_loop
async def test_seeking_goes_on_at_another_offset(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.lite() as consumer:
        await it.send("0", "1", "2")
        await consumer.subscribe("T")
        await polled(consumer, 3)
        await consumer.seek(QUEUE, 1)
        assert bodies(await polled(consumer, 2)) == ["1", "2"]
        await consumer.seek_to_begin(QUEUE)
        assert bodies(await polled(consumer, 3)) == ["0", "1", "2"]
        await consumer.seek_to_begin(QUEUE)
        await consumer.seek_to_end(QUEUE)
        await it.send("3")
        assert bodies(await polled(consumer, 1)) == ["3"]
        with pytest.raises(ValueError, match="offsets 0 to 4, not 9"):
            await consumer.seek(QUEUE, 9)
        with pytest.raises(WrongState, match="not assigned"):
            await consumer.seek(MessageQueue("T", "broker-a", 7), 0)


@on_loop
async def test_assigned_queues_are_polled_whoever_else_is_there(tmp_path: Path) -> None:
    second = MessageQueue("T", "broker-a", 1)
    async with scene(tmp_path, queues=2) as it, it.lite() as consumer:
        await it.send("0")
        await it.send("1", queue=second)
        await consumer.assign([second])
        assert bodies(await polled(consumer, 1)) == ["1"]
        await consumer.assign([QUEUE])
        assert bodies(await polled(consumer, 1)) == ["0"]
        assert consumer.assigned_queues == {QUEUE}
        with pytest.raises(WrongState, match="exclude each other"):
            await consumer.subscribe("T")


@on_loop
async def test_a_queue_that_is_assigned_while_it_is_given_up_comes_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.lite() as consumer:
        await it.send("0")
        for queues in ([QUEUE], [], [QUEUE]):
            await consumer.assign(queues)
        assert bodies(await polled(consumer, 1)) == ["0"]


@on_loop
async def test_what_overlapping_polls_returned_counts_as_consumed(tmp_path: Path) -> None:
    second = MessageQueue("T", "broker-a", 1)
    async with scene(tmp_path, queues=2) as it, it.lite() as consumer:
        await consumer.assign([QUEUE, second])
        polls = [asyncio.create_task(consumer.poll(10)) for _ in range(2)]
        await asyncio.sleep(0)
        await it.send("0")
        await it.send("1", queue=second)
        assert sorted(bodies([*await polls[0], *await polls[1]])) == ["0", "1"]
        await consumer.commit()
        assert (it.committed(0), it.committed(1)) == (1, 1)


@on_loop
async def test_a_listener_for_queues_hears_names_without_the_namespace(tmp_path: Path) -> None:
    heard: list[tuple[str, frozenset[MessageQueue]]] = []
    async with (
        scene(tmp_path) as it,
        Producer("w", name_server=it.cluster.address, namespace="ns") as producer,
        it.lite(namespace="ns", topic_check_interval=0.01) as consumer,
    ):
        await create_topic(producer, "U", 1)
        consumer.listen_for_queues("U", lambda *news: heard.append(news))
        await until(lambda: heard)
        assert heard == [("U", frozenset({MessageQueue("U", "broker-a", 0)}))]


@on_loop
async def test_paused_queues_are_not_pulled(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.lite() as consumer:
        consumer.pause([QUEUE])
        await consumer.subscribe("T")
        await it.send("0")
        assert list(await consumer.poll(0.1)) == []
        consumer.resume([QUEUE])
        assert bodies(await polled(consumer, 1)) == ["0"]


@on_loop
async def test_no_more_waits_to_be_polled_than_allowed(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, it.lite(most_held=4, pull_batch_size=2) as consumer:
        await it.send(*map(str, range(20)))
        await consumer.subscribe("T")
        await until(lambda: len(consumer._buffer) == 6)  # one batch beyond the limit
        await asyncio.sleep(0.05)
        assert len(consumer._buffer) == 6
        assert len(await polled(consumer, 20)) == 20


@on_loop
async def test_an_offset_by_time_and_a_listener_for_queues(tmp_path: Path) -> None:
    heard: list[int] = []
    async with scene(tmp_path) as it, it.lite(topic_check_interval=0.01) as consumer:
        await it.send("0")
        await consumer.subscribe("T")
        assert await consumer.offset_for_timestamp(QUEUE, time.time() + 60) == 1
        consumer.listen_for_queues("T", lambda _topic, queues: heard.append(len(queues)))
        await until(lambda: heard == [1])
        await it.producer.create_topic("T", 3)
        await until(lambda: heard == [1, 3])
        await until(lambda: len(consumer.assigned_queues) == 3)


# On a schedule


@pytest.mark.parametrize("model", ["clustering", "broadcasting"])
@on_loop
async def test_each_assigned_queue_has_a_task_of_its_own(tmp_path: Path, model: str) -> None:
    async with scene(tmp_path, queues=2) as it:
        seen: dict[MessageQueue, list[str]] = {}

        async def pull(queue: MessageQueue, turn: PullTurn) -> None:
            offset = await turn.consumer.fetch_consume_offset(queue) or 0
            found = await turn.consumer.pull(queue, "*", offset)
            seen.setdefault(queue, []).extend(bodies(found.messages))
            await turn.consumer.update_consume_offset(queue, found.next_offset)
            turn.next_delay = 0.005
            if not offset:
                raise ValueError("it is called again all the same")

        async with PullSchedule(
            GROUP, name_server=it.cluster.address, model=model, offset_directory=tmp_path / "o"
        ) as schedule:
            await schedule.register("T", pull)
            await it.send("0")
            await it.send("1", queue=MessageQueue("T", "broker-a", 1))
            await until(lambda: sorted(seen.values()) == [["0"], ["1"]])
        assert (it.committed() == 1) == (model == "clustering")


@on_loop
async def test_plain_functions_pull_on_a_schedule_too(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        seen: list[str] = []

        def pull(queue: MessageQueue, turn: sync.PullTurn) -> None:
            offset = turn.consumer.fetch_consume_offset(queue) or 0
            found = turn.consumer.pull(queue, "*", offset)
            seen.extend(bodies(found.messages))
            turn.consumer.update_consume_offset(queue, found.next_offset)
            turn.next_delay = 0.005

        def consume() -> None:
            with sync.PullSchedule(GROUP, name_server=it.cluster.address) as schedule:
                schedule.register("T", pull)
                assert got_all.wait(10)

        got_all = threading.Event()
        consuming = asyncio.create_task(asyncio.to_thread(consume))
        await it.send("0", "1")
        await until(lambda: seen == ["0", "1"])
        await asyncio.sleep(0.02)
        got_all.set()
        await consuming
        assert it.committed() == 2
