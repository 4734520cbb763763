"""Operations on consumer groups at Apache's broker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from bolide.admin import AdminClient
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.deletion import delete_group
from bolide.operations.consumers.figures import ConsumerKind
from bolide.operations.consumers.listing import describe_group, list_groups, list_queues
from bolide.operations.consumers.members import list_members, show_stack
from bolide.operations.consumers.offsets import (
    QueueTarget,
    ResetTo,
    clone_offsets,
    plan_reset,
    reset_offsets,
)
from bolide.operations.consumers.settings import (
    change_group,
    create_group,
    pause_group,
    resume_group,
    set_topic_access,
    show_settings,
)
from bolide.operations.declaration import Operation, Role
from bolide.operations.door import CONFIRMED, AuditEntry, Caller, Door
from bolide.operations.errors import NotSupported
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.bench import Bench
from tests.support.aio import on_loop, until

T = TypeVar("T")
TOPIC, GROUP, BROKER = "Orders", "billing", "broker-a"
CALLER = Caller(name="tester", role=Role.OPERATOR, source="test")


class NoLog:
    async def write(self, entry: AuditEntry) -> None:
        pass


def test_groups_of_apache_brokers(java_bench: Bench, rocketmq: str) -> None:
    server = java_bench.namesrv(rocketmq)
    broker = java_bench.broker(rocketmq, server.address)
    _operate(server.address, broker.address, moves_members=rocketmq != "4.9")


@on_loop
async def _operate(  # noqa: PLR0915  one cluster for all, which takes long to start
    server: str, broker: str, *, moves_members: bool
) -> None:
    got: list[bytes] = []

    async def take(message: StoredMessage) -> None:
        got.append(message.body)

    def consumer(group: str) -> PushConsumer:
        return PushConsumer(group, name_server=server, consume_from="first", commit_interval=0.1)

    async with AdminClient(server) as admin, Producer("writers", name_server=server) as producer:
        cluster, door = Cluster(admin=admin, name_servers=server), Door(NoLog())

        async def do(operation: Operation[..., T], **arguments: object) -> T:
            return await door.run(operation, cluster, CALLER, arguments, confirmation=CONFIRMED)

        async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], object]) -> T:
            async with asyncio.timeout(30):
                while not good(found := await read()):
                    await asyncio.sleep(0.1)
                    cluster.forget()
                return found

        config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
        await admin.topics.update(broker, config)
        for number in range(5):
            where = MessageQueue(TOPIC, BROKER, number % 2)
            await producer.send(Message(TOPIC, b"%d" % number), queue=where)

        await do(create_group, group=GROUP, max_retries=4)
        await do(change_group, group=GROUP, retry_queues=2)
        (settings,) = await show_settings.function(cluster, group=GROUP)
        assert (settings.max_retries, settings.retry_queues) == (4, 2)

        what: dict[str, Any] = {"group": GROUP, "topic": TOPIC}
        reading = consumer(GROUP)
        await reading.subscribe(TOPIC, "*", take)
        async with reading:
            await until(lambda: len(got) == 5, within=30)
            detail = await eventually(
                lambda: describe_group.function(cluster, group=GROUP),
                lambda found: found.row.lag == 0 and found.row.clients == 1,
            )
            assert detail.row.kind is ConsumerKind.PUSH and not detail.failures
            assert detail.row.retrying == 0 and detail.row.dead_letters == 0
            page = await list_queues.function(cluster, group=GROUP, topic=TOPIC)
            assert {each.owner for each in page.items} == {reading.client_id}
            assert [each.committed_offset for each in page.items] == [3, 2]
            (member,) = (await list_members.function(cluster, group=GROUP)).members
            assert not member.silence
            stack = await show_stack.function(cluster, group=GROUP, client_id=reading.client_id)
            assert stack.text
            got.clear()
            plan = await plan_reset(cluster, to=ResetTo.EARLIEST, **what)
            assert (plan.redelivered, plan.members_follow) == (5, moves_members)
            await do(reset_offsets, to=ResetTo.EARLIEST, **what)
            await until(lambda: len(got) >= 5, within=30)
            await do(pause_group, group=GROUP)
            detail = await describe_group.function(cluster, group=GROUP)
            assert detail.row.is_paused
            await do(resume_group, group=GROUP)

        await eventually(
            lambda: describe_group.function(cluster, group=GROUP),
            lambda found: found.row.clients == 0,
        )
        one = [QueueTarget(broker=BROKER, queue_id=0, offset=1)]
        await do(reset_offsets, to=ResetTo.OFFSET, queues=one, **what)
        rows = (await list_groups.function(cluster, search=GROUP)).items
        assert [(each.name, each.lag) for each in rows] == [(GROUP, 2)]
        assert rows[0].delay_seconds is not None and 0 < rows[0].delay_seconds < 600

        await do(create_group, group="twin")
        await do(clone_offsets, group="twin", source=GROUP)
        twin = (await list_queues.function(cluster, group="twin", topic=TOPIC)).items
        assert [each.committed_offset for each in twin] == [1, 2]

        if not moves_members:  # RocketMQ 4.9, which has no such request either
            with pytest.raises(NotSupported):
                await do(set_topic_access, group=GROUP, topic=TOPIC, readable=False)
        else:
            for topic in (TOPIC, "Other"):
                await do(set_topic_access, group=GROUP, topic=topic, readable=False)
            await do(set_topic_access, group=GROUP, topic="Other", readable=True)
            detail = await describe_group.function(cluster, group=GROUP)
            assert [each.topic for each in detail.topics if each.forbidden_at] == [TOPIC]

        await do(delete_group, group=GROUP)
        rows = (await list_groups.function(cluster, search=GROUP)).items
        assert not rows
