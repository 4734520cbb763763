"""`dlq` and `replay --ids`: from real dead letters to their second life."""

import asyncio
from pathlib import Path

from pyspark.sql import SparkSession

from bolide import Message, PushConsumer, StoredMessage
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.dead_letters import DlqOptions
from bolide.spark.pipelines.dead_letters import plan as plan_dlq
from bolide.spark.pipelines.replay import ReplayOptions
from bolide.spark.pipelines.replay import plan as plan_replay
from tests.spark.archives import Archive
from tests.spark.recording import RecordingScreen, dicts
from tests.support.aio import PATIENCE
from tests.support.cluster_process import ClusterProcess

BAD = 6


async def consume_badly(address: str, topic: str, group: str, count: int) -> None:
    """All messages; those called bad fail as often as they may."""
    handled, refused = set[str](), 0
    done = asyncio.Event()

    async def handle(message: StoredMessage) -> None:
        nonlocal refused
        try:
            if message.body.startswith(b"bad"):
                refused += 1
                raise ValueError(message.body)
            handled.add(message.message_id)
        finally:
            if len(handled) == count - BAD and refused == 2 * BAD:
                done.set()

    consumer = PushConsumer(group, name_server=address, consume_from="first", max_reconsume_times=1)
    async with consumer:
        await consumer.subscribe(topic, "*", handle)
        async with asyncio.timeout(PATIENCE):
            await done.wait()


def test_dead_letters_are_grouped_listed_and_sent_again(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("mourned", 2)
    why = {"FAILURE_CAUSE": "no such customer 4711"}
    sent = cluster.send(
        [Message("mourned", b"good %d" % n, tags="new", keys=f"good-{n}") for n in range(5)]
        + [
            Message("mourned", b"bad \xff%d" % n, tags="paid", keys=f"bad-{n}",
                    properties={"shop": "7", **(why if n < 2 else {})})
            for n in range(BAD)
        ]
    )  # fmt: skip
    asyncio.run(consume_badly(cluster.address, "mourned", "mourners", len(sent)))

    lake = Archive(spark, cluster, tmp_path / "lake")
    lake.add("mourned")
    settings = RunSettings(name_server=cluster.address)
    redrive = str(tmp_path / "again.jsonl")
    screen = RecordingScreen()
    options = DlqOptions(group=("mourners", "nobody"), redrive=redrive, window="1d")
    outcome = plan_dlq(options, settings).run(spark, screen)
    assert outcome.rows == BAD
    causes, times = map(dicts, outcome.tables)
    assert [
        (row["origin_topic"], row["tags"], row["cause"], row["messages"]) for row in causes
    ] == [
        ("mourned", "paid", "given up after 2 tries", 4),
        ("mourned", "paid", "no such customer #", 2),
    ]
    assert [(row["group_name"], row["messages"]) for row in times] == [("mourners", BAD)]
    assert screen.lines == [f"{BAD} dead letters are listed in {redrive}"]

    again = RecordingScreen()
    assert plan_replay(ReplayOptions(ids=redrive), settings).run(spark, again).rows == BAD
    assert again.lines == [f"{BAD} messages to send"]
    reader = spark.read.format("rocketmq").option("nameServer", cluster.address)
    copies = [
        row
        for row in reader.option("topic", "mourned").load().collect()
        if "REPLAYED_FROM" in row.properties
    ]
    assert {(row.body, row.keys, row.tags) for row in copies} == {
        (b"bad \xff%d" % n, f"bad-{n}", "paid") for n in range(BAD)
    }
    assert len(copies) == BAD
    for row in copies:
        assert row.properties["shop"] == "7"
        assert row.properties["REPLAYED_FROM"].startswith("%DLQ%mourners/broker-a/0@")
        assert "RETRY_TOPIC" not in row.properties
        assert row.reconsume_times == 0

    cluster.create_topic("mourned-again", 1)
    options_again = ReplayOptions(archive=str(lake.path), ids=redrive, to="mourned-again")
    assert plan_replay(options_again, settings).run(spark, RecordingScreen()).rows == BAD
    rows = reader.option("topic", "mourned-again").load().collect()
    assert sorted(row.keys for row in rows) == [f"bad-{n}" for n in range(BAD)]
    assert {row.properties["REPLAYED_FROM"].split("/")[0] for row in rows} == {"mourned"}


def test_a_group_without_dead_letters_is_good_news(
    spark: SparkSession, cluster: ClusterProcess
) -> None:
    screen = RecordingScreen()
    settings = RunSettings(name_server=cluster.address)
    assert plan_dlq(DlqOptions(group=("nobody",)), settings).run(spark, screen).rows == 0
    assert screen.lines == ["there are no dead letters"]
