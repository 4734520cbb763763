"""The stream reader as Spark's driver uses it, with real brokers and without Spark."""

import asyncio
import json
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from bolide import AdminClient, Message
from bolide.arrow.errors import DataLost
from bolide.client.errors import RouteNotFound
from bolide.model.message_queue import MessageQueue
from bolide.spark.options import SourceOptions
from bolide.spark.planning import QueuesGone
from bolide.spark.readers import StreamReader
from tests.support.cluster_process import ClusterProcess, cluster_process

ALL = ReadAllAvailable()
Offset = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process(tmp_path_factory.mktemp("cluster")) as served:
        yield served


_numbers = count(1)


@pytest.fixture
def topic(cluster: ClusterProcess) -> str:
    """One with two queues."""
    name = f"stream-{next(_numbers)}"
    cluster.create_topic(name, 2)
    return name


def reader(cluster: ClusterProcess, **given: object) -> StreamReader:
    texts = {key: str(value) for key, value in given.items()}
    return StreamReader(SourceOptions.of({"nameServer": cluster.address} | texts))


def send(cluster: ClusterProcess, topic: str, number: int) -> None:
    """Send that many messages to each of the two queues; a producer alternates."""
    cluster.send(Message(topic, b"body %d" % n) for n in range(2 * number))


def offset(topic: str, *queues: int) -> Offset:
    return {topic: {"broker-a": {str(number): at for number, at in enumerate(queues)}}}


def bodies(stream: StreamReader, start: Offset, end: Offset) -> list[tuple[int, int]]:
    """Read as tasks do: with a pickled copy of an unused reader."""
    copy: StreamReader = pickle.loads(pickle.dumps(StreamReader(stream._options)))
    found: list[tuple[int, int]] = []
    for partition in copy.partitions(start, end):
        for batch in copy.read(pickle.loads(pickle.dumps(partition))):
            numbers, offsets = batch.column("queue_id"), batch.column("queue_offset")
            found += zip(numbers.to_pylist(), offsets.to_pylist(), strict=True)
    return found


def test_making_one_and_planning_from_offsets_asks_nobody() -> None:
    stream = StreamReader(SourceOptions.of({"nameServer": "127.0.0.1:9", "topic": "t"}))

    parts = stream.partitions(offset("t", 1), offset("t", 3, 2))

    assert [part.value[1:] for part in parts] == [(1, 3), (0, 2)]
    assert stream.partitions(offset("t", 3), offset("t", 3)) == []
    assert stream.reportLatestOffset() is None


def test_latest_is_looked_up_once(cluster: ClusterProcess, topic: str) -> None:
    send(cluster, topic, 1)
    stream = reader(cluster, topic=topic)
    first = stream.initialOffset()
    send(cluster, topic, 1)

    assert stream.initialOffset() == first == offset(topic, 1, 1)


def test_offsets_are_always_the_same_text(cluster: ClusterProcess) -> None:
    cluster.create_topic("stream-zz", 12)
    cluster.create_topic("stream-aa", 1)
    stream = reader(cluster, topic="stream-zz,stream-aa", startingOffsets="earliest")
    start = stream.initialOffset()

    texts = {
        json.dumps(each)
        for each in (start, stream.latestOffset(start, ALL), stream.reportLatestOffset())
    }
    numbers = ", ".join(f'"{number}": 0' for number in range(12))
    assert texts == {
        '{"stream-aa": {"broker-a": {"0": 0}}, "stream-zz": {"broker-a": {' + numbers + "}}}"
    }


def test_a_topic_that_nobody_has_is_an_error_at_once(cluster: ClusterProcess) -> None:
    with pytest.raises(RouteNotFound, match="stream-missing"):
        reader(cluster, topic="stream-missing").initialOffset()


def test_limits_come_from_the_options_and_are_obeyed_as_asked(
    cluster: ClusterProcess, topic: str
) -> None:
    send(cluster, topic, 10)
    rows = reader(cluster, topic=topic, maxOffsetsPerTrigger=4, startingOffsets="earliest")
    start = rows.initialOffset()

    assert rows.getDefaultReadLimit() == ReadMaxRows(4)
    assert rows.latestOffset(start, ReadMaxRows(4)) == offset(topic, 2, 2)
    assert rows.latestOffset(start, ALL) == offset(topic, 10, 10)
    assert rows.reportLatestOffset() == offset(topic, 10, 10)
    assert reader(cluster, topic=topic).getDefaultReadLimit() == ALL


def test_a_limit_of_bytes_is_judged_by_recent_messages(cluster: ClusterProcess, topic: str) -> None:
    cluster.send(Message(topic, os.urandom(10_000)) for _ in range(20))
    size = reader(cluster, topic=topic, maxBytesPerTrigger=45_000, startingOffsets="earliest")
    both = reader(cluster, topic=topic, maxBytesPerTrigger=45_000, maxOffsetsPerTrigger=9)
    start = size.initialOffset()

    assert size.getDefaultReadLimit() == ReadMaxBytes(45_000)
    assert size.latestOffset(start, ReadMaxBytes(45_000)) == offset(topic, 2, 2)
    assert both.latestOffset(start, ReadMaxRows(9)) == offset(topic, 2, 2)
    assert both.latestOffset(start, ReadMaxRows(2)) == offset(topic, 1, 1)


def test_a_run_over_what_is_there_does_not_pass_its_target(
    cluster: ClusterProcess, topic: str
) -> None:
    send(cluster, topic, 2)
    stream = reader(cluster, topic=topic, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    send(cluster, topic, 2)

    end = stream.latestOffset(stream.initialOffset(), ALL)

    assert end == offset(topic, 2, 2)
    assert stream.latestOffset(end, ALL) == end
    assert stream.reportLatestOffset() == offset(topic, 4, 4)


def test_a_plan_is_the_same_in_a_new_process(cluster: ClusterProcess, topic: str) -> None:
    send(cluster, topic, 3)
    stream = reader(cluster, topic=topic)
    start, end = offset(topic, 1, 0), offset(topic, 3, 2)
    first = bodies(stream, start, end)
    send(cluster, topic, 3)

    assert bodies(stream, start, end) == first == [(0, 1), (0, 2), (1, 0), (1, 1)]


def test_queues_and_topics_that_come_later_are_read_from_their_beginning(
    cluster: ClusterProcess,
) -> None:
    cluster.create_topic("later-1", 2)
    send(cluster, "later-1", 1)
    stream = reader(cluster, topicPattern="later-.*")
    start = stream.initialOffset()
    cluster.create_topic("later-1", 3)
    cluster.create_topic("later-2", 1)
    cluster.send(Message(name, b"x") for name in ["later-1"] * 3 + ["later-2"] * 2)

    end = stream.latestOffset(start, ALL)

    assert end == offset("later-1", 2, 2, 1) | offset("later-2", 2)
    assert bodies(stream, start, end) == [(0, 1), (1, 1), (2, 0), (0, 0), (0, 1)]


def test_a_pattern_may_match_nothing_yet(cluster: ClusterProcess) -> None:
    stream = reader(cluster, topicPattern="nothing-.*")

    assert stream.initialOffset() == stream.latestOffset({}, ALL) == {}
    cluster.create_topic("nothing-yet", 1)
    assert stream.latestOffset({}, ALL) == offset("nothing-yet", 0)


# Commit group


def test_a_group_is_told_the_position_and_consumer_progress_shows_the_lag(
    cluster: ClusterProcess, topic: str
) -> None:
    send(cluster, topic, 5)
    stream = reader(cluster, topic=topic, commitGroup="stream-told")

    stream.commit(offset(topic, 5, 2))

    async def look() -> tuple[dict[MessageQueue, int], int | None]:
        async with AdminClient(cluster.address) as admin:
            stats = await admin.offsets.progress("stream-told")
            told = {queue: each.consumer_offset for queue, each in stats.offset_table.items()}
            return told, (await admin.progress.of("stream-told")).lag

    told, lag = asyncio.run(look())
    wanted = {MessageQueue(topic, "broker-a", 0): 5, MessageQueue(topic, "broker-a", 1): 2}
    assert {queue: at for queue, at in told.items() if queue.topic == topic} == wanted
    assert lag == 3


def test_a_group_is_told_of_what_is_there_while_a_broker_is_away(own: ClusterProcess) -> None:
    own.start_broker("broker-b")
    own.create_topic("orders", 2)
    stream = reader(own, topic="orders", commitGroup="told", startingOffsets="earliest")
    start = stream.initialOffset()
    own.stop_broker("broker-b")
    end = stream.latestOffset(start, ALL)

    stream.commit(end)

    queues = [MessageQueue("orders", "broker-a", number) for number in (0, 1)]
    told = stream._query(lambda cluster: cluster.committed("told", queues))
    assert told == dict.fromkeys(queues, 2)


def test_a_group_that_cannot_be_told_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    given = {"nameServer": "127.0.0.1:9", "topic": "t", "commitGroup": "g", "patienceMs": "0"}
    stream = StreamReader(SourceOptions.of(given))

    stream.commit(offset("t", 5))

    assert "cannot commit the position of group g" in caplog.text


# Outages and losses


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    directory = tmp_path_factory.mktemp("own")
    with cluster_process(directory, **RETENTION) as served:
        served.create_topic("orders", 2)
        send(served, "orders", 2)
        yield served


RETENTION = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 10,
    "fileReservedTime": 0,
    "cleanResourceInterval": 20,
    "deleteCommitLogFilesInterval": 0,
    "deleteConsumeQueueFilesInterval": 0,
}


def test_one_of_two_brokers_is_away_for_a_while(own: ClusterProcess) -> None:
    own.start_broker("broker-b")
    own.create_topic("orders", 2)
    stream = reader(own, topic="orders", startingOffsets="earliest")
    start = stream.initialOffset()
    assert start == {"orders": {name: {"0": 0, "1": 0} for name in ("broker-a", "broker-b")}}

    own.stop_broker("broker-b")
    without = stream.latestOffset(start, ALL)
    own.start_broker("broker-b")
    send(own, "orders", 4)
    after = stream.latestOffset(without, ALL)

    assert without["orders"] == {"broker-a": {"0": 2, "1": 2}, "broker-b": {"0": 0, "1": 0}}
    assert sum(after["orders"]["broker-b"].values()) > 0
    assert len(bodies(stream, start, after)) == 4 + 8


def test_a_broker_that_hangs_holds_up_no_other_and_is_waited_for(own: ClusterProcess) -> None:
    hung = own.start_broker("broker-b")
    own.create_topic("orders", 2)
    send(own, "orders", 4)
    stream = reader(own, topic="orders", startingOffsets="earliest", callTimeoutMs=300)
    start = stream.initialOffset()

    os.killpg(hung.process.pid, signal.SIGSTOP)
    try:
        without = stream.latestOffset(start, ALL)
        stream.prepareForTriggerAvailableNow()
        back = threading.Timer(1.0, os.killpg, (hung.process.pid, signal.SIGCONT))
        back.start()
        end = stream.latestOffset(without, ALL)
        back.join()
    finally:
        os.killpg(hung.process.pid, signal.SIGCONT)

    assert without["orders"]["broker-b"] == {"0": 0, "1": 0}
    assert sum(without["orders"]["broker-a"].values()) > 0
    assert len(bodies(stream, start, end)) == 4 + 8


def test_a_run_over_what_is_there_waits_for_a_broker_that_is_away(own: ClusterProcess) -> None:
    own.stop_broker()
    stream = reader(own, topic="orders")
    stream.prepareForTriggerAvailableNow()
    back = threading.Timer(1.0, own.start_broker)
    back.start()

    try:
        end = stream.latestOffset(offset("orders", 0, 1), ALL)
    finally:
        back.join()

    assert end == offset("orders", 2, 2)


def test_queues_that_stay_away_fail_a_stream_unless_loss_is_allowed(own: ClusterProcess) -> None:
    own.stop_broker()
    start = offset("orders", 2, 2)
    strict = reader(own, topic="orders", patienceMs=0)
    lenient = reader(own, topic="orders", patienceMs=0, failOnDataLoss="false")

    with pytest.raises(QueuesGone, match="orders/broker-a/0, orders/broker-a/1"):
        strict.latestOffset(start, ALL)
    assert lenient.latestOffset(start, ALL) == start
    assert reader(own, topic="other", patienceMs=0).latestOffset(start, ALL) == start


def test_messages_deleted_before_they_were_read(own: ClusterProcess) -> None:
    stream = reader(own, topic="orders", startingOffsets="earliest")
    lenient = reader(own, topic="orders", failOnDataLoss="false")
    start = stream.initialOffset()
    own.send(Message("orders", os.urandom(20_000)) for _ in range(12))
    planned = stream.latestOffset(start, ALL)
    oldest = delete_expired(own)

    assert all(0 < at < 8 for at in oldest)
    with pytest.raises(DataLost, match="offset 0 was wanted"):
        stream.latestOffset(start, ALL)
    with pytest.raises(DataLost, match="offset 0 was wanted"):
        bodies(stream, start, planned)
    assert lenient.latestOffset(start, ReadMaxRows(2)) == offset("orders", *(n + 1 for n in oldest))
    rest = [(number, at) for number in (0, 1) for at in range(oldest[number], 8)]
    assert bodies(lenient, start, planned) == rest


def delete_expired(cluster: ClusterProcess) -> list[int]:
    """Have the broker delete all but its last log file; what is the oldest in each queue then."""

    async def delete() -> list[int]:
        address = cluster.brokers["broker-a"].address
        queues = [MessageQueue("orders", "broker-a", number) for number in (0, 1)]
        async with AdminClient(cluster.address) as admin, asyncio.timeout(10):
            while True:
                # Seldom: the audit of each request is in the log, too, and fills its last file.
                await admin.brokers.delete_expired_log(address)
                for _ in range(100):
                    oldest = [await admin.offsets.min(queue) for queue in queues]
                    if all(oldest):
                        return oldest
                    await asyncio.sleep(0.05)

    return asyncio.run(delete())
