"""The operations of the console on topics, and its sends, at brokers of RocketMQ."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from bolide.admin import AdminClient
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.operations.cluster import Cluster
from bolide.operations.errors import NotFound
from bolide.operations.messages.sending import Draft, TransactionEnd, send_message, sending_options
from bolide.operations.topics.changes import (
    MessageType,
    create_topic,
    delete_topic,
    plan_deletion,
)
from bolide.operations.topics.detail import list_groups, list_queues, show_topic
from bolide.operations.topics.listing import count_topics, list_topics
from bolide.operations.topics.table import TopicKind, TopicPermission
from bolide.operations.topics.updates import update_topic
from bolide.protocol.bodies.groups import GroupConfig
from tests.interop.bench import Bench
from tests.support.aio import PATIENCE, on_loop

T = TypeVar("T")


async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], object]) -> T:
    async with asyncio.timeout(3 * PATIENCE):
        while True:
            try:
                if good(found := await read()):
                    return found
            except BolideError:
                pass
            await asyncio.sleep(0.1)


@on_loop
async def test_topics_of_rocketmq_are_created_shown_changed_and_deleted(
    java_bench: Bench, rocketmq: str
) -> None:
    names = java_bench.namesrv(rocketmq)
    is_new = rocketmq == "5.x"
    broker = java_bench.broker(rocketmq, names.address, timerWheelEnable=is_new)
    async with AdminClient(names.address) as admin:
        cluster = Cluster(admin=admin, name_servers=names.address)
        await eventually(lambda: admin.topics.route("TBW102"), bool)
        done = await create_topic.function(
            cluster,
            topic="Orders",
            read_queues=2,
            write_queues=2,
            message_type=MessageType.FIFO if is_new else None,
        )
        assert done.failures == []
        (row,) = (await list_topics.function(cluster, search="orders")).items
        assert row.kind is (TopicKind.FIFO if is_new else TopicKind.NORMAL)
        assert (row.write_queues, row.permission) == (2, TopicPermission.READ_WRITE)
        assert (await count_topics.function(cluster)).kinds[TopicKind.SYSTEM] > 5

        queue = MessageQueue("Orders", "broker-a", 1)
        await _send_every_kind(cluster, queue, is_new=is_new)
        await admin.groups.update(broker.address, GroupConfig(group_name="readers"))
        await admin.offsets.commit(broker.address, "readers", queue, 1)
        cluster.forget()
        detail = await show_topic.function(cluster, topic="Orders")
        assert detail.failures == []
        queues = (await list_queues.function(cluster, topic="Orders")).items
        assert detail.messages == sum(each.messages for each in queues) >= 4
        (group,) = (await list_groups.function(cluster, topic="Orders")).items
        assert (group.group, group.members) == ("readers", 0)
        assert group.lag == detail.messages - 1 - queues[0].messages

        await update_topic.function(
            cluster, topic="Orders", permission=TopicPermission.READ, write_queues=3
        )
        config = await admin.topics.config(broker.address, "Orders")
        assert (config.perm, config.write_queue_nums, config.read_queue_nums) == (4, 3, 2)
        if is_new:
            assert config.attributes == {"message.type": "FIFO"}
        impact = await plan_deletion(cluster, topic="Orders")
        assert impact.messages == detail.messages
        assert [each.group for each in impact.groups] == ["readers"]
        if not is_new:  # on the Java of the tests, 4.9 cannot delete files of queues
            return
        gone = await delete_topic.function(cluster, topic="Orders")
        assert (gone.brokers, gone.failures) == (["broker-a"], [])
        cluster.forget()
        with pytest.raises(NotFound):
            await show_topic.function(cluster, topic="Orders")


async def _send_every_kind(cluster: Cluster, queue: MessageQueue, *, is_new: bool) -> None:
    """Four messages in one queue at least, the delayed ones too, and one that is rolled back."""
    topic, place = queue.topic, {"broker": queue.broker_name, "queue": queue.queue_id}
    options = await sending_options.function(cluster, topic=topic)
    assert options.delay_levels[0] == "1s"
    drafts = [
        Draft(body="plain", tags="t", keys=["k"], properties={"a": "b"}),
        Draft(body="level", delay_level=1),
        Draft(body="timed", delay_ms=1000) if is_new else Draft(body="second"),
    ]
    for draft in drafts:
        done = await send_message.function(
            cluster,
            topic=topic,
            message=draft,
            **place,  # type: ignore[arg-type]
        )
        assert done.messages[0].status == "SEND_OK"
    for end in (TransactionEnd.ROLLBACK, TransactionEnd.COMMIT):
        done = await send_message.function(
            cluster,
            topic=topic,
            message=Draft(body=end.value),
            transaction=end,
            **place,  # type: ignore[arg-type]
        )
        assert done.messages[0].transaction_confirmed

    async def bodies() -> set[bytes]:
        pulled: list[StoredMessage] = (await cluster.admin.messages.pull(queue, 0, 32)).messages
        return {each.body for each in pulled}

    expected = {draft.body.encode() for draft in drafts} | {b"commit"}
    found = await eventually(bodies, lambda found: found >= expected)
    assert found == expected
