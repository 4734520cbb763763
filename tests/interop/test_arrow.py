"""Topics of Apache RocketMQ's brokers as Arrow tables."""

import asyncio
from collections.abc import Callable

from bolide import Message, MessageQueue, Producer
from bolide.arrow import read_topic
from bolide.arrow.cluster import Cluster, Connection
from bolide.arrow.offsets import At, Group, Latest
from tests.interop.bench import Server
from tests.support.aio import PATIENCE

ROWS = 100


async def fill(address: str) -> None:
    """Into one queue, with times that several messages share."""
    async with Producer("P", name_server=address) as producer:
        for number in range(ROWS):
            tags, properties = "ab"[number % 2], {"n": str(number)}
            message = Message("T", b"%d" % number, tags=tags, properties=properties)
            await producer.send(message, queue=MessageQueue("T", "broker-a", 0))
    async with Cluster(Connection(name_server=address)) as cluster:
        await until_dispatched(cluster, MessageQueue("T", "broker-a", 0))


async def until_dispatched(cluster: Cluster, queue: MessageQueue) -> None:
    """RocketMQ's broker adds messages to their queue a moment after it has acknowledged them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await cluster.resolve(Latest(), [queue]) == {queue: ROWS}:
                return
            await asyncio.sleep(0.05)


def test_topics_are_read_by_time_filter_and_group(
    rocketmq: str,
    java_namesrv: Callable[..., Server],
    java_broker: Callable[..., Server],
    java_mqadmin: Callable[..., str],
) -> None:
    address = java_namesrv(rocketmq).address
    java_broker(rocketmq, address, enablePropertyFilter=True)
    asyncio.run(fill(address))
    table = read_topic("T", name_server=address).to_table()
    assert table["body"].to_pylist() == [b"%d" % number for number in range(ROWS)]
    assert table["queue_offset"].to_pylist() == [*range(ROWS)]

    odd = read_topic("T", name_server=address, tags="b").to_table()
    assert odd["queue_offset"].to_pylist() == [*range(1, ROWS, 2)]
    few = read_topic("T", name_server=address, sql="n BETWEEN 10 AND 19").to_table()
    assert few["queue_offset"].to_pylist() == [*range(10, 20)]

    stored = [int(moment.timestamp() * 1000) for moment in table["store_timestamp"].to_pylist()]
    queue = MessageQueue("T", "broker-a", 0)

    async def look() -> None:
        async with Cluster(Connection(name_server=address)) as cluster:
            for ms in {*stored, min(stored) - 1, max(stored) + 1}:
                wanted = sum(each < ms for each in stored)
                assert await cluster.resolve(At(ms), [queue]) == {queue: wanted}
            assert await cluster.topics_matching(".*") == ["T"]
            young = {} if rocketmq == "5.x" else {queue: 0}  # 4.9 says so of every group
            assert await cluster.committed("archive", [queue]) == young
            await cluster.commit("archive", {queue: 30})
            assert await cluster.resolve(Group("archive"), [queue]) == {queue: 30}

    asyncio.run(look())
    told = java_mqadmin(rocketmq, "consumerProgress", "-g", "archive", namesrv=address)
    assert f"Diff Total: {ROWS - 30}" in told
