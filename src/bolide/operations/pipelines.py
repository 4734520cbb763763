"""Spark pipelines, as they report themselves on the topic BOLIDE_PIPELINE_PROGRESS.

The end of the topic is read, and further messages as they come: `_Tail` keeps the newest report and
the recent figures of a bounded number of runs. Pipelines that reported before that are not known.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from weakref import WeakKeyDictionary

from bolide.admin import AdminClient
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.names import PIPELINE_TOPIC
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change, read
from bolide.operations.errors import Conflict, NotFound
from bolide.operations.messages.sending import producer_of
from bolide.operations.views import Failure, Page, failure_of, now_ms, page_of, unknown_last
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.pipelines import (
    VERSION,
    Report,
    RunState,
    State,
    StopRequest,
    StoredReport,
    encode,
    find_message,
    latest,
    state_of,
    tag_of,
)
from bolide.protocol.refusals import TopicNotFound

MAX_MESSAGES = 5000
"""Messages of a broker that are read at most: at the first look, and at each later one."""
MAX_RUNS = 500
MAX_POINTS = 1440
"""Of one run; runs that are not among the newest keep few."""
MAX_FULL_RUNS = 40
FEW_POINTS = 60
MAX_BODY_BYTES = 64 * 1024

_FRESH_SECONDS = 2.0
_PULL_COUNT = 32


class PipelineSort(StrEnum):
    """By what a list of pipelines is sorted."""

    NAME = "name"
    STATE = "state"
    """Those that need attention first: failed, lost, then running, then ended."""
    RATE = "rate"
    BEHIND = "behind"
    STARTED = "started"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBacklog:
    """What a pipeline has not read yet of a topic, as of its last batch."""

    topic: str
    messages: int
    seconds: float | None = None
    """Age of the oldest unread message; 0 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProblem:
    """An error that did not end the run."""

    time_ms: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A run of a pipeline, as of its newest report."""

    name: str
    run: str
    kind: str
    """Name of the built-in pipeline, or file for a declared one."""
    state: State
    """`lost`: it stopped reporting without a final report; see `silent_since_ms`."""
    silent_since_ms: int | None = None
    """Of a lost run: when it reported for the last time."""
    text: str
    """What it does."""
    once: bool
    """It ends with the messages that were stored when it started."""
    host: str
    pid: int
    spark: str
    """Version of Spark."""
    group: str
    """Consumer group that gets the position; empty if there is none."""
    started_ms: int
    reported_ms: int
    interval: float
    """Seconds between two reports."""
    rows: int
    """Messages processed by this run."""
    total: int | None = None
    """Messages this run has to process, if it has an end."""
    rows_in_per_second: float
    rows_out_per_second: float | None = None
    """None if the sink does not count what it writes."""
    batch: int | None = None
    behind: int | None = None
    """Unread messages of all topics as of the last batch."""
    behind_seconds: float | None = None
    """Age of the oldest unread message."""
    topics: list[TopicBacklog] = field(default_factory=list)
    committed_ms: int | None = None
    """When the position was last committed to the group."""
    error: str = ""
    """Why the run failed."""
    problems: list[PipelineProblem] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressPoint:
    """The figures of a run at one time."""

    time_ms: int
    run: str
    rows: int
    rows_in_per_second: float
    rows_out_per_second: float | None = None
    behind: int | None = None
    behind_seconds: float | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """A pipeline with its recent runs and figures."""

    name: str
    last: PipelineRun
    runs: list[PipelineRun]
    """Those that are known, the latest start first; `last` is the first of them."""
    points: list[ProgressPoint]
    """Oldest first."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEffect:
    """The run that ends after its current batch."""

    name: str
    run: str
    text: str
    host: str
    state: State


@read("/pipelines")
async def list_pipelines(  # noqa: PLR0913  filters and paging of a list
    cluster: Cluster,
    *,
    search: str = "",
    state: State | None = None,
    sort: PipelineSort = PipelineSort.STATE,
    descending: bool = False,
    page: int = 1,
    size: int = 50,
) -> Page[PipelineRun]:
    """List the Spark pipelines that have reported recently, each with its last run.

    Pipelines report themselves every few seconds. The list is made from the newest reports, at
    most 5,000 of each broker: a pipeline that ended days ago may be missing.
    """
    tail = await _tail(cluster)
    wanted = search.casefold()
    rows = [
        run
        for run in tail.last_runs()
        if wanted in f"{run.name}\n{run.text}\n{run.host}\n{run.kind}".casefold()
        and state in {None, run.state}
    ]
    rows.sort(key=lambda run: run.name)
    rows.sort(key=unknown_last(_SORT_KEYS[sort], descending=descending), reverse=descending)
    return page_of(rows, page=page, size=size, failures=tail.failures)


@read("/pipelines/{pipeline}")
async def get_pipeline(cluster: Cluster, *, pipeline: str, minutes: int = 60) -> PipelineView:
    """Show a pipeline: its last run, earlier runs, and the figures of the last minutes.

    `points` are the reports of all runs in that time, at most 1,440 of each run.
    """
    tail = await _tail(cluster)
    runs = [run for run in tail.runs() if run.name == pipeline]
    if not runs:
        if tail.failures:
            failure = tail.failures[0]
            raise NotFound(f"pipeline {pipeline}: {failure.server} tells nothing: {failure.reason}")
        raise NotFound(f"no pipeline {pipeline} has reported recently")
    since = now_ms() - minutes * 60_000
    return PipelineView(
        name=pipeline,
        last=runs[0],
        runs=runs,
        points=tail.points(pipeline, since),
        failures=tail.failures,
    )


async def stop_effect(cluster: Cluster, *, pipeline: str, run: str = "") -> StopEffect:
    """The run that `stop_pipeline` would end."""
    view = await get_pipeline.function(cluster, pipeline=pipeline, minutes=0)
    live = [each for each in view.runs if each.state.is_live and run in {"", each.run}]
    if not live:
        raise Conflict(f"pipeline {pipeline} is not running: it is {view.last.state.value}")
    found = live[0]
    return StopEffect(
        name=pipeline, run=found.run, text=found.text, host=found.host, state=found.state
    )


@change("POST", "/pipelines/{pipeline}/stop", target="pipeline {pipeline}", preview=stop_effect)
async def stop_pipeline(cluster: Cluster, *, pipeline: str, run: str = "") -> StopEffect:
    """Ask a pipeline to end after its current batch; it is not waited for.

    Nothing is lost: the next run goes on where this one ended. `run` limits it to one run.
    """
    effect = await stop_effect(cluster, pipeline=pipeline, run=run)
    request = StopRequest(version=VERSION, pipeline=pipeline, run=effect.run)
    async with producer_of(cluster) as producer:
        await producer.send(
            Message(PIPELINE_TOPIC, encode(request), keys=pipeline, tags=tag_of(request))
        )
    return effect


_URGENCY = {
    State.FAILED: 0,
    State.LOST: 1,
    State.STOPPING: 2,
    State.STARTING: 3,
    State.RUNNING: 4,
    State.STOPPED: 5,
    State.FINISHED: 6,
}
_SORT_KEYS = {
    PipelineSort.NAME: lambda run: run.name,
    PipelineSort.STATE: lambda run: _URGENCY[run.state],
    PipelineSort.RATE: lambda run: run.rows_in_per_second,
    PipelineSort.BEHIND: lambda run: run.behind,
    PipelineSort.STARTED: lambda run: run.started_ms,
    PipelineSort.REPORTED: lambda run: run.reported_ms,
}


async def _tail(cluster: Cluster) -> "_Tail":
    """The end of the topic, not older than two seconds."""

    async def refresh() -> _Tail:
        tail = _tails.setdefault(cluster.admin, _Tail())
        await tail.refresh(cluster)
        return tail

    return await cluster.shared("pipelines.refreshed", refresh, seconds=_FRESH_SECONDS)


class _Tail:
    """The runs of which the end of the topic tells."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self._next: dict[tuple[str, int], int] = {}
        self._newest: dict[str, StoredReport] = {}
        self._points: dict[str, deque[ProgressPoint]] = {}

    async def refresh(self, cluster: Cluster) -> None:
        """Read what was written since the last time."""
        try:
            queues = await cluster.admin.topics.queues(PIPELINE_TOPIC)
        except TopicNotFound:  # no pipeline has ever reported to a RocketMQ broker
            self.failures = []
            return
        failures: dict[str, Failure] = {}

        async def read_queue(queue: MessageQueue) -> list[StoredMessage]:
            try:
                return await self._read(cluster, queue)
            except BolideError as error:
                failures[queue.broker_name] = failure_of(queue.broker_name, error)
                return []

        found = await asyncio.gather(*map(read_queue, queues))
        self.failures = list(failures.values())
        messages = [message for part in found for message in part]
        for message in sorted(messages, key=lambda each: each.store_timestamp):
            self._add(message)
        self._drop_oldest()

    async def _read(self, cluster: Cluster, queue: MessageQueue) -> list[StoredMessage]:
        key = (queue.broker_name, queue.queue_id)
        at = self._next.get(key)
        pulled = await cluster.admin.messages.pull(queue, at or 0, _PULL_COUNT)
        oldest = max(pulled.min_offset, pulled.max_offset - MAX_MESSAGES)
        if at is None or not oldest <= at <= pulled.max_offset:  # the topic may be a new one
            at = oldest
            pulled = await cluster.admin.messages.pull(queue, at, _PULL_COUNT)
        messages: list[StoredMessage] = []
        while True:
            messages += pulled.messages
            self._next[key] = max(pulled.next_offset, at)
            if pulled.next_offset <= at or len(messages) >= MAX_MESSAGES:
                return messages
            at = pulled.next_offset
            if at >= pulled.max_offset:
                return messages
            pulled = await cluster.admin.messages.pull(queue, at, _PULL_COUNT)

    def _add(self, message: StoredMessage) -> None:
        found = find_message(message.body) if len(message.body) <= MAX_BODY_BYTES else None
        if not isinstance(found, Report):
            return
        stored = StoredReport(found, message.store_timestamp)
        self._newest[found.run] = latest(self._newest.get(found.run), stored)
        progress = found.progress
        if progress is None:
            return
        points = self._points.setdefault(found.run, deque(maxlen=MAX_POINTS))
        points.append(
            ProgressPoint(
                time_ms=stored.stored,
                run=found.run,
                rows=progress.rows,
                rows_in_per_second=progress.rows_per_second,
                rows_out_per_second=progress.rows_out_per_second,
                behind=progress.backlog,
                behind_seconds=_greatest((progress.behind_seconds or {}).values()),
                batch=progress.batch,
            )
        )

    def _drop_oldest(self) -> None:
        by_age = sorted(self._newest, key=self._age)
        for run in by_age[MAX_RUNS:]:
            del self._newest[run]
            self._points.pop(run, None)
        for run in [each for each in by_age if each in self._points][MAX_FULL_RUNS:]:
            points = self._points[run]
            while len(points) > FEW_POINTS:
                points.popleft()

    def _age(self, run: str) -> tuple[int, int]:
        """A sort key that puts the newest run first."""
        newest = self._newest[run]
        return (-newest.stored, -newest.report.started)

    def runs(self) -> list[PipelineRun]:
        """All runs, the latest start first."""
        now = now_ms()
        found = [_run_of(state_of(newest, now)) for newest in self._newest.values()]
        return sorted(found, key=lambda run: (-run.started_ms, run.name))

    def last_runs(self) -> list[PipelineRun]:
        """The last run of each pipeline."""
        found: dict[str, PipelineRun] = {}
        for run in self.runs():
            found.setdefault(run.name, run)
        return list(found.values())

    def points(self, pipeline: str, since_ms: int) -> list[ProgressPoint]:
        """The figures of all runs of a pipeline, oldest first."""
        found = [
            point
            for run, points in self._points.items()
            if self._newest[run].report.pipeline == pipeline
            for point in points
            if point.time_ms >= since_ms
        ]
        return sorted(found, key=lambda point: point.time_ms)


_tails: WeakKeyDictionary[AdminClient, _Tail] = WeakKeyDictionary()
"""By connection: a change of something else must not make a console read the topic again."""


def _run_of(state: RunState) -> PipelineRun:
    progress = state.progress
    seconds = progress.behind_seconds or {}
    behind = progress.behind or {}
    return PipelineRun(
        name=state.pipeline,
        run=state.run,
        kind=state.kind,
        state=state.state,
        silent_since_ms=state.seen if state.state is State.LOST else None,
        text=state.text,
        once=state.once,
        host=state.host,
        pid=state.pid,
        spark=state.spark,
        group=state.group,
        started_ms=state.started,
        reported_ms=state.seen,
        interval=state.interval,
        rows=progress.rows,
        total=progress.total,
        rows_in_per_second=progress.rows_per_second,
        rows_out_per_second=progress.rows_out_per_second,
        batch=progress.batch,
        behind=progress.backlog,
        behind_seconds=_greatest(seconds.values()),
        topics=[
            TopicBacklog(topic=topic, messages=behind[topic], seconds=seconds.get(topic))
            for topic in sorted(behind)
        ],
        committed_ms=progress.committed,
        error=state.reason or "",
        problems=[PipelineProblem(time_ms=each.time, text=each.text) for each in state.problems],
    )


def _greatest(values: Iterable[float]) -> float | None:
    return max(values, default=None)
