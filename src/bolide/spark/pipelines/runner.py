"""Runs pipelines and jobs until they end or a stop is requested, and explains them."""

import contextlib
import io
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from threading import Event as Flag
from typing import TYPE_CHECKING

from bolide.arrow.cluster import Cluster, Connection, ask
from bolide.arrow.position_lookup import read_records
from bolide.client.errors import NameServersUnreachable
from bolide.errors import BolideError, ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.pipelines import Progress, RunState, State
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.definition import FormatSink, Job, Outcome, Pipeline, Table
from bolide.spark.pipelines.errors import AlreadyRunning, RunFailed, failure_reason
from bolide.spark.pipelines.monitoring.display import Display, Lines, RunScreen, show_text
from bolide.spark.pipelines.monitoring.query_monitor import (
    Backlog,
    QueryMonitor,
    measure_backlog,
)
from bolide.spark.pipelines.monitoring.reporter import (
    MAX_INTERVAL,
    REPORT_INTERVAL,
    NoChannel,
    Reporter,
    new_run,
)
from bolide.spark.pipelines.monitoring.status_topic import StatusTopic
from bolide.spark.session import activate
from bolide.spark.sink.columns import Columns
from bolide.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
LOOK_BACK = 3 * MAX_INTERVAL
"""Seconds of events to search for another run."""
_LAGGING_QUEUES = 16
"""Queues, those with the most unread messages, whose oldest unread message is looked at."""
_DELAY_PATIENCE = 2.0
_SECRETS = ("secret", "password", "token", "accesskey")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunControls:
    """How a run is displayed and reported."""

    display: Callable[[], Display] = Lines
    show: Callable[[Table], None] = show_text
    report: bool = True
    """Write reports to the cluster; without them nobody can ask the run to stop."""
    interval: float = REPORT_INTERVAL
    """Seconds between two reports."""
    force: bool = False
    """Run even if another run of the same name seems to be active."""


def run(
    work: Pipeline | Job,
    spark: "SparkSession",
    connection: Connection | None,
    *,
    controls: RunControls = RunControls(),  # noqa: B008  immutable
    stop: Flag | None = None,
) -> Outcome:
    """Run a pipeline or job and wait for its end.

    Args:
        work: the pipeline or job.
        spark: the session; it stays open.
        connection: the cluster that gets reports and positions; None for none.
        controls: how the run is displayed and reported.
        stop: set by the caller to end the run.

    Raises:
        AlreadyRunning: another run of the same name is active.
        NameServersUnreachable: no NameServer answers, and the pipeline reads from the cluster.
        RunFailed: the run failed.
    """
    if connection is not None and not controls.force:
        refuse_second_run(connection, work.name, needed=reads_cluster(work))
    return _Run(work, spark, connection, controls, stop or Flag()).run()


def find_connection(work: Pipeline | Job, settings: RunSettings) -> Connection | None:
    """The cluster to report to: that of the source, else of the sink, else of the settings."""
    if isinstance(work, Pipeline):
        if work.source.is_rocketmq:
            return SourceOptions.of(work.source.options).connection()
        sink = work.sink
        if isinstance(sink, FormatSink) and sink.format == "rocketmq":
            return SinkOptions.of(sink.options).connection()
    try:
        return settings.connect()
    except ConfigError:  # no NameServer is configured: run without reports
        return None


def reads_cluster(work: Pipeline | Job) -> bool:
    """Whether the run needs the cluster; a job may have another source."""
    return isinstance(work, Pipeline) and work.source.is_rocketmq


class _Run:
    def __init__(
        self,
        work: Pipeline | Job,
        spark: "SparkSession",
        connection: Connection | None,
        controls: RunControls,
        stop: Flag,
    ) -> None:
        self._work = work
        self._spark = spark
        self._connection = connection
        self._controls = controls
        self._stop = stop
        self._reporter = self._new_reporter()
        self._monitor: QueryMonitor | None = None
        self._committed: dict[MessageQueue, int] = {}
        self._commit_time: int | None = None

    def run(self) -> Outcome:
        with ExitStack() as stack:
            if self._reporter is not None:
                stack.enter_context(self._reporter)
            display = stack.enter_context(self._controls.display())
            screen = self._screen(display)
            try:
                outcome = self._execute(screen)
            except Exception as exc:
                self._report(State.FAILED, failure_reason(exc))
                if isinstance(exc, BolideError):
                    raise
                raise RunFailed(failure_reason(exc)) from exc
            self._report(self._final_state(outcome), outcome.failure)
        for table in outcome.tables:
            self._controls.show(table)
        return outcome

    def _execute(self, screen: RunScreen) -> Outcome:
        if isinstance(self._work, Job):
            self._report(State.RUNNING)
            return self._work.run(self._spark, screen)
        around = self._work.around or _no_context
        with around(self._spark, screen):
            self._stream(self._work, screen)
            summarize = self._work.summarize
            tables = summarize(self._spark, screen) if summarize is not None else ()
        return Outcome(tuple(tables))

    def _stream(self, pipeline: Pipeline, screen: RunScreen) -> None:
        backlog = self._measure_backlog(pipeline)
        query = start(pipeline, self._spark, screen)
        self._monitor = QueryMonitor(query, screen, backlog, once=pipeline.trigger.once)
        try:
            self._monitor.wait_for_end()
        finally:
            if query.isActive:  # an interrupt ended the wait
                query.stop()
            self._record_position()

    def _measure_backlog(self, pipeline: Pipeline) -> Backlog:
        try:
            return measure_backlog(self._spark, pipeline)
        except BolideError as exc:
            log.warning("cannot measure the backlog: %s", exc)
            return Backlog()

    # Reports

    def _new_reporter(self) -> Reporter | None:
        if self._connection is None:
            return None
        work = self._work
        once = isinstance(work, Job) or work.trigger.once
        interval = min(self._controls.interval, MAX_INTERVAL)
        description = new_run(
            work.name,
            text_of(work),
            once=once,
            interval=interval,
            kind=work.kind,
            spark=version("pyspark"),
            group=work.group if isinstance(work, Pipeline) and work.source.is_rocketmq else "",
        )
        channel = StatusTopic(self._connection) if self._controls.report else NoChannel()
        return Reporter(channel, description, stop=self._stop, on_tick=self._record_position)

    def _screen(self, display: Display) -> RunScreen:
        on_progress = _ignore_progress if self._reporter is None else self._reporter.record_progress
        return RunScreen(
            display, show=self._controls.show, stop=self._stop, on_progress=on_progress
        )

    def _record_position(self) -> None:
        """Commit the position of the pipeline's group, and record its age."""
        work, monitor = self._work, self._monitor
        if not isinstance(work, Pipeline) or monitor is None or self._connection is None:
            return
        position = dict(monitor.position)
        if not position or not work.source.is_rocketmq:
            return
        if position != self._committed:
            self._commit(work.group, position, self._connection)
        if self._reporter is not None and self._controls.report:
            self._reporter.record_position(
                committed=self._commit_time,
                behind_seconds=find_delays(self._connection, position, monitor.lag or {}),
            )

    def _commit(
        self, group: str, position: dict[MessageQueue, int], connection: Connection
    ) -> None:
        """Commit to the group ourselves, as Spark calls the reader one batch late."""
        try:
            ask(connection, lambda cluster: cluster.commit(group, position))
        except BolideError as exc:
            log.warning("cannot commit the position of group %s: %s", group, exc)
            if self._reporter is not None:
                self._reporter.record_problem(f"cannot commit the position: {exc}")
        else:
            self._committed = position
            self._commit_time = int(time.time() * 1000)

    def _report(self, state: State, reason: str | None = None) -> None:
        if self._reporter is not None:
            self._reporter.set_state(state, reason)

    def _final_state(self, outcome: Outcome) -> State:
        if outcome.failure:
            return State.FAILED
        return State.STOPPED if self._stop.is_set() else State.FINISHED


def find_delays(
    connection: Connection, position: Mapping[MessageQueue, int], lag: Mapping[MessageQueue, int]
) -> dict[str, float] | None:
    """Age in seconds of the oldest unread message of each topic; 0 where there is none.

    Of topics with many queues, those with the most unread messages count. None if the cluster
    does not tell.
    """
    lagging = sorted((queue for queue in lag if lag[queue] > 0), key=lambda queue: -lag[queue])

    async def first_unread(cluster: Cluster) -> dict[str, float]:
        patient = cluster.with_patience(_DELAY_PATIENCE)
        found = {queue.topic: 0.0 for queue in position}
        for queue in lagging[:_LAGGING_QUEUES]:
            at = position[queue]
            for record in await read_records(patient, queue, at, at + 1):
                age = round(time.time() - record.store_timestamp / 1000, 1)
                found[queue.topic] = max(found[queue.topic], age)
        return found

    try:
        return ask(connection, first_unread)
    except BolideError as exc:
        log.debug("cannot read the oldest unread messages: %s", exc)
        return None


def start(pipeline: Pipeline, spark: "SparkSession", screen: RunScreen) -> "StreamingQuery":
    """Start the stream of a pipeline."""
    activate(spark)
    frame = build(pipeline, spark)
    writer = pipeline.sink.writer(frame, screen).queryName(pipeline.name)
    writer = writer.option("checkpointLocation", pipeline.checkpoint)
    return pipeline.sink.start(pipeline.trigger.on(writer))


def build(pipeline: Pipeline, spark: "SparkSession") -> "DataFrame":
    """The frame of the source with all steps applied.

    Raises:
        StepFailed: a step failed; names it.
        ConfigError: a column is invalid for the sink, checked before the first batch.
    """
    frame, sink = pipeline.source.load(spark), pipeline.sink
    for step in pipeline.steps:
        frame = frame.transform(step.apply)
    if isinstance(sink, FormatSink) and sink.format == "rocketmq":
        Columns.of(dict(frame.dtypes), SinkOptions.of(sink.options))
    return frame


def text_of(work: Pipeline | Job) -> str:
    """One-line description of a run."""
    if isinstance(work, Job):
        return work.text
    options = {key.lower(): text for key, text in work.source.options.items()}
    what = options.get("topic") or options.get("topicpattern") or options.get("path") or ""
    return f"{work.source.format} {what}".strip() + f" to {work.sink.text}"


def _ignore_progress(progress: Progress) -> None:
    del progress


def _no_context(spark: "SparkSession", screen: RunScreen) -> "nullcontext[None]":
    del spark, screen
    return nullcontext()


def refuse_second_run(connection: Connection, pipeline: str, *, needed: bool = False) -> None:
    """Refuse a run whose name is in use: two runs would share a checkpoint.

    If the cluster cannot be reached nothing is refused, unless the run needs the cluster.

    Raises:
        AlreadyRunning: another run of the same name is active.
        NameServersUnreachable: no NameServer answers, and the cluster is `needed`.
    """
    try:
        with StatusTopic(connection) as status_topic:
            states = status_topic.states(LOOK_BACK)
    except BolideError as exc:
        if needed and isinstance(exc, NameServersUnreachable):
            raise
        log.warning("cannot check whether %s is already running: %s", pipeline, exc)
        return
    for state in states:
        if state.pipeline == pipeline and state.state.is_live and not _was_killed(state):
            raise AlreadyRunning(pipeline, f"process {state.pid} on {state.host}")


def _was_killed(state: RunState) -> bool:
    """Whether the process of a run on this machine is gone, so that it can be restarted at once."""
    if state.host != socket.gethostname():
        return False
    try:
        os.kill(state.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # owned by another user, so it exists
        pass
    return False


def explain(work: Pipeline | Job, spark: "SparkSession") -> str:
    """Describe source, queues and offsets, steps, sink, checkpoint and Spark's plan.

    Raises:
        BolideError: the cluster cannot be reached, or a step or column is invalid.
    """
    if isinstance(work, Job):
        return f"job       {work.name}\ndoes      {work.text}"
    backlog = measure_backlog(spark, work)
    frame = build(work, spark)
    lines = [
        f"pipeline  {work.name}: {text_of(work)}",
        f"source    {work.source.format}",
        *_indented(_option_lines(work.source.options)),
        *_indented(_range_lines(backlog)),
        "steps     " + ("" if work.steps else "none"),
        *_indented(f"{number}. {step.text}" for number, step in enumerate(work.steps, 1)),
        f"columns   {', '.join(f'{name} {kind}' for name, kind in frame.dtypes)}",
        f"sink      {work.sink.text}",
        *_indented(_option_lines(getattr(work.sink, "options", {}))),
        f"checkpoint {work.checkpoint}, {_checkpoint_text(backlog)}",
        f"trigger   {work.trigger.text}",
        f"group     {work.group}",
        "",
        _plan_text(frame),
    ]
    return "\n".join(lines)


def _option_lines(options: Mapping[str, str]) -> Iterable[str]:
    for key, value in sorted(options.items()):
        is_secret = any(word in f"{key} {value}".lower() for word in _SECRETS)
        yield f"{key}={'***' if is_secret else value}"


def _range_lines(backlog: Backlog) -> Iterable[str]:
    for queue, start, end in backlog.ranges:
        place = f"{queue.topic} {queue.broker_name} {queue.queue_id}"
        yield f"{place}: from {start:,} to {end:,}, {max(0, end - start):,} to read"
    if backlog.ranges:
        yield f"all: {backlog.rows:,} to read"


def _checkpoint_text(backlog: Backlog) -> str:
    return "new" if backlog.batch is None else f"goes on after batch {backlog.batch}"


def _plan_text(frame: "DataFrame") -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        # Spark only prints the plan, and treats a plain SQL frame as a batch without this select.
        frame.select("*").explain()
    return text.getvalue().strip()


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"          {line}" for line in lines]
