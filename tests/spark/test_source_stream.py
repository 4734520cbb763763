import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bolide import AdminClient, Message, MessageQueue
from bolide.spark.progress import lag, positions
from tests.spark.kinds import send_all_kinds, wait_for
from tests.support.cluster_process import ClusterProcess, cluster_process

PATIENCE = 60.0
RETENTION = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 10,
    "fileReservedTime": 0,
    "cleanResourceInterval": 20,
}
Take = Callable[[DataFrame, int], None]


def stream(spark: SparkSession, cluster: ClusterProcess, **options: Any) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", cluster.address)
    return reader.options(**options).load()


def into(table: DataFrame, take: Take, checkpoint: Path) -> DataStreamWriter:
    return table.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))


class Batches:
    """What a query has taken, by batch; the batch named by `failing` fails once it is read."""

    def __init__(self, failing: int | None = None) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.failing = failing

    def take(self, table: DataFrame, number: int) -> None:
        self.rows[number] = table.collect()
        if number == self.failing:
            raise RuntimeError("as asked for")

    @property
    def all(self) -> list[Any]:
        return [row for number in sorted(self.rows) for row in self.rows[number]]

    @property
    def bodies(self) -> Counter[bytes]:
        return Counter(bytes(row.body) for row in self.all)


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(int(PATIENCE))


def test_a_run_over_what_is_there_in_small_batches_with_a_failure_between(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("stream-kinds", 3)
    sent = send_all_kinds(cluster.address, "stream-kinds")
    wait_for(cluster.address, "stream-kinds", len(sent.rows) + 1)
    options = {"topic": "stream-kinds", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    failed, done = Batches(failing=1), Batches()
    first = once(stream(spark, cluster, **options), failed, tmp_path)
    with pytest.raises(StreamingQueryException, match="as asked for"):
        first.awaitTermination(int(PATIENCE))

    options |= {"maxOffsetsPerTrigger": 1000, "commitGroup": "stream-kinds-group"}
    with producing(cluster, "stream-kinds"):  # what comes later is not waited for
        second = once(stream(spark, cluster, **options), done, tmp_path)
        finish(second)

    assert 0 < len(failed.rows[0]) <= 5
    assert done.rows[1] == failed.rows[1], "what failed is read again just so"
    every = failed.rows[0] + done.all
    sent.check(row for row in every if row.tags != "more")
    assert len(every) == len({(row.queue_id, row.queue_offset) for row in every})
    check_progress(cluster, second)


def check_progress(cluster: ClusterProcess, query: StreamingQuery) -> None:
    """The positions and the lag are in the progress; the group is told them one batch late."""
    last = query.lastProgress
    assert last is not None
    ends = positions(last)
    assert {queue.topic for queue in ends} == {"stream-kinds"} and len(ends) == 3
    assert sum(lag(last).values()) > 0, "a producer went on"
    told = asyncio.run(committed(cluster, "stream-kinds-group"))
    assert told.keys() == ends.keys()
    assert all(0 < told[queue] <= ends[queue] for queue in ends)


async def committed(cluster: ClusterProcess, group: str) -> dict[MessageQueue, int]:
    async with AdminClient(cluster.address) as admin:
        stats = await admin.offsets.progress(group)
        return {
            queue: each.consumer_offset
            for queue, each in stats.offset_table.items()
            if not queue.topic.startswith("%")
        }


@contextmanager
def producing(cluster: ClusterProcess, topic: str) -> Iterator[None]:
    """Send without end while the block runs."""
    over = threading.Event()

    def more() -> Iterator[Message]:
        while not over.wait(0.1):
            yield Message(topic, b"more", tags="more")

    thread = threading.Thread(target=lambda: cluster.send(more()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_running_stream_bears_restarts_and_finds_what_comes_later(
    spark: SparkSession, own_cluster: ClusterProcess, tmp_path: Path
) -> None:
    """The only broker restarts, a second one comes and restarts, queues and topics are added."""
    own_cluster.create_topic("live-1", 2)
    table = stream(spark, own_cluster, topicPattern="live-.*", startingOffsets="earliest")
    taken, sent = Batches(), Counter[bytes]()
    query = into(table.select("topic", "body"), taken.take, tmp_path).start()

    def send_and_see(step: str, *topics: str) -> None:
        bodies = [f"{step} {topic} {n}".encode() for topic in topics for n in range(8)]
        own_cluster.send(Message(body.split()[1].decode(), body) for body in bodies)
        sent.update(bodies)
        deadline = time.monotonic() + PATIENCE
        while taken.bodies != sent:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, sent - taken.bodies
            time.sleep(0.05)

    try:
        send_and_see("begin", "live-1")
        own_cluster.kill_broker()
        own_cluster.start_broker()
        send_and_see("restarted", "live-1")
        own_cluster.start_broker("broker-b")
        own_cluster.create_topic("live-1", 3)
        own_cluster.create_topic("live-2", 1)
        send_and_see("more", "live-1", "live-2")
        own_cluster.stop_broker("broker-b")
        send_and_see("alone", "live-1")
        own_cluster.start_broker("broker-b")
        send_and_see("both", "live-1", "live-2")
    finally:
        query.stop()


def test_messages_that_retention_deletes_fail_a_stream_unless_loss_is_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with cluster_process(tmp_path / "cluster", **RETENTION) as cluster:
        cluster.create_topic("lost", 1)
        cluster.send([Message("lost", b"0")])
        options = {"topic": "lost", "startingOffsets": "earliest"}
        first, strict, lenient = Batches(), Batches(), Batches()
        finish(once(stream(spark, cluster, **options), first, tmp_path / "checkpoint"))
        cluster.send(Message("lost", os.urandom(20_000), tags=str(n)) for n in range(9))
        oldest = asyncio.run(delete_expired(cluster))

        failing = once(stream(spark, cluster, **options), strict, tmp_path / "checkpoint")
        with pytest.raises(StreamingQueryException, match=f"offset 1 was wanted.*{oldest} up to"):
            failing.awaitTermination(int(PATIENCE))
        allowed = stream(spark, cluster, **options, failOnDataLoss=False)
        finish(once(allowed, lenient, tmp_path / "checkpoint"))

    assert [row.queue_offset for row in first.all] == [0]
    assert strict.all == []
    assert [row.queue_offset for row in lenient.all] == list(range(oldest, 10))


def once(table: DataFrame, taken: Batches, checkpoint: Path) -> StreamingQuery:
    return into(table, taken.take, checkpoint).trigger(availableNow=True).start()


async def delete_expired(cluster: ClusterProcess) -> int:
    """Have the broker delete all but its last log file; the oldest message then."""
    queue = MessageQueue("lost", "broker-a", 0)
    async with AdminClient(cluster.address) as admin, asyncio.timeout(PATIENCE):
        while True:
            # Seldom: the audit of each request is in the log, too, and in the end fills its last
            # file, so that the one with the newest messages is deleted as well.
            await admin.brokers.delete_expired_log(cluster.brokers["broker-a"].address)
            for _ in range(100):
                oldest = await admin.offsets.min(queue)
                if oldest > 1:
                    return oldest
                await asyncio.sleep(0.05)
