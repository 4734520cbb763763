"""Pipelines on a real cluster: declared in files, restarted, stopped, watched, mirrored."""

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bolide import Message
from bolide.admin import AdminClient
from bolide.arrow.cluster import Connection, ask
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.operations.cluster import Cluster as OperatedCluster
from bolide.operations.pipelines import PipelineView, get_pipeline
from bolide.protocol.bodies.pipelines import Progress, RunState, State
from bolide.spark.pipelines import runner
from bolide.spark.pipelines.builtin import BUILT_INS, RunSettings, make_options
from bolide.spark.pipelines.declared import read_pipeline
from bolide.spark.pipelines.definition import StepFailed
from bolide.spark.pipelines.errors import AlreadyRunning, RunFailed
from bolide.spark.pipelines.monitoring.status_topic import StatusTopic
from bolide.spark.pipelines.runner import RunControls, explain, refuse_second_run
from tests.support.cluster_process import ClusterProcess
from tests.support.commands import run

QUICK = 0.2
PATIENCE = 90.0


class Noted:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.updates: list[Progress] = []
        self.lines: list[str] = []

    def __enter__(self) -> "Noted":
        return self

    def __exit__(self, *reason: object) -> None: ...

    def update(self, progress: Progress) -> None:
        self.updates.append(progress)

    def line(self, text: str) -> None:
        self.lines.append(text)


STEPS = """
from pyspark.sql import functions as fn

def only_even(frame):
    is_even = fn.udf(lambda number: number % 2 == 0, "boolean")  # runs in a worker
    return frame.where(is_even("n"))
"""


def orders(topic: str, numbers: range) -> list[Message]:
    return [
        Message(topic, json.dumps({"n": n}).encode(), keys=f"k{n}", tags="made") for n in numbers
    ]


def states_of(cluster: ClusterProcess, name: str) -> list[RunState]:
    with StatusTopic(Connection(name_server=cluster.address)) as status_topic:
        return [state for state in status_topic.states(600) if state.pipeline == name]


def test_a_declared_pipeline_reads_everything_once_and_goes_on_where_it_ended(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("PipelineOrders", 2)
    cluster.send(orders("PipelineOrders", range(100)))
    (tmp_path / "steps.py").write_text(STEPS)
    file = tmp_path / "even-orders.yaml"
    file.write_text(f"""
nameServer: {cluster.address}
source:
  topic: PipelineOrders
  valueSchema: n bigint
steps:
  - sql: select keys, value.n, queue_id from input where value.n >= 10
  - python: ./steps.py:only_even
sink:
  path: {tmp_path}/table
checkpoint: {tmp_path}/checkpoint
""")
    pipeline = read_pipeline(file, RunSettings(once=True))
    connection = Connection(name_server=cluster.address)
    display = Noted()

    told = explain(pipeline, spark)
    runner.run(pipeline, spark, connection, controls=RunControls(display=lambda: display))
    first = {row.n for row in spark.read.parquet(f"{tmp_path}/table").collect()}
    cluster.send(orders("PipelineOrders", range(100, 120)))
    runner.run(pipeline, spark, connection, controls=RunControls(display=lambda: display))
    rows = [row.n for row in spark.read.parquet(f"{tmp_path}/table").collect()]

    assert "all: 100 to read" in told
    assert "1. sql: select keys" in told
    assert "Physical Plan" in told
    assert first == set(range(10, 100, 2))
    assert sorted(rows) == list(range(10, 120, 2))
    totals = [progress for progress in display.updates if progress.rows == progress.total]
    assert [progress.total for progress in totals] == [100, 20]
    queues = [MessageQueue("PipelineOrders", "broker-a", number) for number in range(2)]
    group = "bolide-pipeline-even-orders"
    assert ask(connection, lambda c: c.committed(group, queues)) == ask(
        connection, lambda c: _ends(c, queues)
    )
    assert [state.state for state in states_of(cluster, "even-orders")] == [State.FINISHED] * 2
    assert [state.progress.rows for state in states_of(cluster, "even-orders")] == [20, 100]
    check_reports(cluster, "even-orders", group)


def check_reports(cluster: ClusterProcess, name: str, group: str) -> None:
    """What the console shows of a pipeline that has read all of PipelineOrders."""

    async def fetch() -> PipelineView:
        async with AdminClient(cluster.address) as admin:
            seen = OperatedCluster(admin=admin, name_servers=cluster.address)
            return await get_pipeline.function(seen, pipeline=name)

    view = asyncio.run(fetch())
    last = view.last
    assert (last.state, last.kind, last.group, last.spark) == (
        State.FINISHED,
        "file",
        group,
        version("pyspark"),
    )
    assert [(each.topic, each.messages, each.seconds) for each in last.topics] == [
        ("PipelineOrders", 0, 0.0)
    ]
    assert last.committed_ms is not None
    assert last.started_ms <= last.committed_ms <= last.reported_ms + 1000
    assert len(view.runs) == 2
    rows = [point.rows for point in view.points]
    assert rows.count(100) >= 1
    assert rows[-1] == 20


async def _ends(cluster: object, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
    bounds = await cluster.bounds(queues)  # type: ignore[attr-defined]
    return {queue: end for queue, (_, end) in bounds.items()}


def test_a_stream_ends_after_its_batch_when_another_program_asks_for_it(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("PipelineStream", 1)
    cluster.create_topic("PipelineStreamCopy", 1)
    options = make_options(
        BUILT_INS["mirror"],
        {
            "topic": "PipelineStream",
            "to": "PipelineStreamCopy",
            "sql": "select *, 'TAG' as tags from (select * except (tags) from input)"
            " where keys <> 'k3'",
        },
    )
    settings = RunSettings(name_server=cluster.address, checkpoint=str(tmp_path / "checkpoint"))
    pipeline = BUILT_INS["mirror"].plan(options, settings)
    connection = Connection(name_server=cluster.address)
    display = Noted()
    refused: list[AlreadyRunning] = []
    stopped: list[str] = []

    def ask_for_the_end() -> None:
        cluster.send(orders("PipelineStream", range(10)))
        until(lambda: bool(display.updates) and display.updates[-1].rows == 10)
        with pytest.raises(AlreadyRunning, match="mirror-PipelineStream") as error:
            refuse_second_run(connection, pipeline.name)
        refused.append(error.value)
        stopped.append(
            run("bolide", "pipeline", "stop", pipeline.name, "-n", cluster.address).stdout
        )

    controls = RunControls(display=lambda: display, interval=QUICK)
    with ThreadPoolExecutor(1) as another:  # where Spark would not find the sink by itself
        running = another.submit(runner.run, pipeline, spark, connection, controls=controls)
        ask_for_the_end()
        running.result(PATIENCE)

    assert refused
    assert stopped == ["pipeline mirror-PipelineStream has stopped\n"]
    assert [state.state for state in states_of(cluster, pipeline.name)] == [State.STOPPED]
    copied = (
        spark.read.format("rocketmq")
        .options(nameServer=cluster.address, topic="PipelineStreamCopy")
        .load()
        .orderBy("queue_offset")
        .collect()
    )
    assert [(row.keys, row.tags) for row in copied] == [
        (f"k{n}", "TAG") for n in range(10) if n != 3
    ]
    assert bytes(copied[0].body) == b'{"n": 0}'


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_that_fails_says_why_in_a_line_and_reports_it(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("PipelineFails", 1)
    cluster.send(orders("PipelineFails", range(3)))
    file = tmp_path / "fails.yaml"
    text = f"""
source: PipelineFails
nameServer: {cluster.address}
steps:
  - sql: select * from input
  - sql: select STEP from input
sink: {{format: noop}}
checkpoint: {tmp_path}/checkpoint
"""
    settings = RunSettings(once=True)
    connection = Connection(name_server=cluster.address)

    file.write_text(text.replace("STEP", "keys"))
    assert "Physical Plan" in explain(read_pipeline(file, settings), spark)
    file.write_text(text.replace("STEP", "body, keys as kees").replace("format: noop", "topic: x"))
    with pytest.raises(ConfigError, match=r"column kees .*did you mean keys\?"):
        runner.run(read_pipeline(file, settings), spark, None)
    file.write_text(text.replace("STEP", "nothing_such"))
    with pytest.raises(StepFailed, match=r"fails.yaml:6:10: step 2: .*nothing_such"):
        explain(read_pipeline(file, settings), spark)
    file.write_text(text.replace("STEP", "raise_error('too bad')"))
    with pytest.raises(RunFailed, match="too bad") as failed:
        runner.run(read_pipeline(file, settings), spark, connection)

    assert "\n" not in str(failed.value)
    (state,) = states_of(cluster, "fails")
    assert state.state is State.FAILED
    assert state.reason == str(failed.value)
