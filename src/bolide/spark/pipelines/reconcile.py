"""`reconcile`: proves that an archive has every message of its topics exactly once.

Rows of the table are counted in its files; messages of the log are counted from the offsets at
which each hour begins, which brokers look up by time. Where the log is already deleted, the archive
is checked by itself: the offsets of a queue have no gap and no duplicate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.offsets import At, Bounds, QueueRange
from bolide.client.errors import RouteNotFound
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.audit import (
    Fault,
    HourComparison,
    QueueHour,
    check_files,
    compare,
    compare_content,
    count_rows,
    find_faults,
    find_hour_starts,
    hours_between,
    log_counts,
    ranges_still_in_log,
    start_ms,
)
from bolide.spark.archive.manifest import DataFile, State
from bolide.spark.archive.reading import read_files
from bolide.spark.archive.seam import find_other_messages, find_shorter_queues
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.options import ConnectionOptions
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option
from bolide.spark.pipelines.definition import Job, Outcome, Screen, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOptions:
    """Compare an archive with the log, per queue and hour; the exit code is 1 if they differ."""

    path: str = cli_option("Directory or URL of the archive.", metavar="PATH")
    topic: str | None = cli_option("Only these topics, with commas between them.", default=None)
    deep: bool = cli_option(
        "Read the log again, and compare the contents of messages too.", default=False
    )
    differences: bool = cli_option("Show only hours that differ.", default=False)


class ReconcileReport(NamedTuple):
    """The comparisons made, and the faults found."""

    lines: list[HourComparison]
    faults: list[Fault]
    bounds: Mapping[MessageQueue, Bounds]
    state: State

    @property
    def rows(self) -> int:
        return sum(line.rows for line in self.lines)


def plan(options: ReconcileOptions, run: RunSettings) -> Job:
    """Raises ConfigError, naming the option."""
    source = run.connection
    ConnectionOptions.of(source)

    def work(spark: "SparkSession", screen: Screen) -> Outcome:
        report = reconcile(spark, options, source)
        screen.advance(report.rows, report.rows)
        return _outcome(report, options)

    text = f"compare the archive at {options.path} with the log"
    return Job(
        kind="reconcile",
        name=run.named("reconcile"),
        text=text,
        run=work,
    )


def reconcile(
    spark: "SparkSession", options: ReconcileOptions, source: Mapping[str, str]
) -> ReconcileReport:
    """Compare an archive with the log of the cluster that the source options lead to.

    Raises:
        NoArchive: there is no archive at the path.
    """
    table = ArchiveTable.at(spark, options.path)
    state = _of_topics(table.state(), options.topic)
    files, faults = check_files(table, state)
    frame = read_files(spark, table, files, table.settings())
    connection = ConnectionOptions.of(source)
    log = _LogReader(connection)
    bounds = log.bounds(state.topics)
    others = find_other_messages(spark, table, _with_files(state, files), bounds, connection)
    faults += [
        Fault(str(each.queue), str(each)) for each in find_shorter_queues(state, bounds) + others
    ]
    parts = ranges_still_in_log(state, bounds)
    here = count_rows(frame, parts)
    if options.deep:
        there, differing = compare_content(frame, parts, bounds, source)
        faults += differing
    else:
        there = log.counts(parts, _hours_of(state, here))
    lines = compare(here, there, parts)
    return ReconcileReport(lines, faults + find_faults(state, here, lines), bounds, state)


def _of_topics(state: State, topics: str | None) -> State:
    if topics is None:
        return state
    wanted = {topic.strip() for topic in topics.split(",")}
    offsets = (
        {queue: offset for queue, offset in each.items() if queue.topic in wanted}
        for each in (state.begin, state.covered, state.dropped)
    )
    files = {file.path: file for file in state.files_of(wanted)}
    return State(state.number, files, *offsets)


def _with_files(state: State, files: Iterable[DataFile]) -> State:
    return State(
        state.number, {file.path: file for file in files},
        state.begin, state.covered, state.dropped,
    )  # fmt: skip


def _hours_of(state: State, here: Iterable[QueueHour]) -> dict[str, list[str]]:
    """All hours of each topic from the first to the last, by manifest and by files."""
    found: dict[str, set[str]] = {}
    for queue, hour in here:
        found.setdefault(queue.topic, set()).add(hour)
    for file in state.files_of():
        found.setdefault(file.topic, set()).add(file.hour)
    return {topic: hours_between(min(hours), max(hours)) for topic, hours in found.items()}


class _LogReader:
    """Looks up offsets of the log at the brokers."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._connection = options.connection()
        self._patience = options.patience

    def bounds(self, topics: list[str]) -> dict[MessageQueue, Bounds]:
        """The bounds of the topics' queues; deleted topics have none."""

        async def lookup(cluster: Cluster) -> dict[MessageQueue, Bounds]:
            found: dict[MessageQueue, Bounds] = {}
            for topic in topics:
                try:
                    found |= await cluster.bounds(await cluster.queues([topic]))
                except RouteNotFound:
                    continue
            return found

        return ask(self._connection, lookup, patience=self._patience)

    def counts(
        self, parts: Mapping[MessageQueue, QueueRange], hours: Mapping[str, list[str]]
    ) -> dict[QueueHour, int]:
        """Messages by queue and hour; `hours` has consecutive hours for each topic."""

        async def lookup(cluster: Cluster) -> dict[QueueHour, int]:
            found: dict[QueueHour, int] = {}
            for queue, part in parts.items():
                counts = await _counts(cluster, part, hours.get(queue.topic, []))
                found |= {(queue, hour): count for hour, count in counts.items()}
            return found

        return ask(self._connection, lookup, patience=self._patience)


async def _counts(cluster: Cluster, part: QueueRange, hours: list[str]) -> dict[str, int]:
    if not part.size or not hours:
        return {}

    async def search(timestamp_ms: int) -> int:
        return (await cluster.resolve(At(timestamp_ms), [part.queue]))[part.queue]

    hour_starts = await find_hour_starts([start_ms(hour) for hour in hours[1:]], search)
    return log_counts(part, hours, hour_starts)


# Result tables


def _outcome(report: ReconcileReport, options: ReconcileOptions) -> Outcome:
    tables = [_hours(report, options), _queues(report)]
    if report.faults:
        tables.append(Table("Differences", ("where", "what"), report.faults))
    failure = f"{len(report.faults)} differences" if report.faults else None
    return Outcome(tuple(tables), rows=report.rows, failure=failure)


def _hours(report: ReconcileReport, options: ReconcileOptions) -> Table:
    lines = [line for line in report.lines if line.difference or not options.differences]
    compared = sum(line.log or 0 for line in report.lines)
    count = sum(1 for line in report.lines if line.difference)
    title = (
        f"Archive at {options.path}: {report.rows:,} rows, {compared:,} messages of the log"
        f" compared, {count:,} queue-hours differ"
    )
    columns = ("topic", "broker", "queue", "hour", "log", "table", "difference", "rows")
    rows = [
        (*_names(line.queue), line.hour, line.log, line.table, line.difference, line.rows)
        for line in lines
    ]
    return Table(title, columns, rows)


def _queues(report: ReconcileReport) -> Table:
    columns = ("topic", "broker", "queue", "start", "end", "log start", "log end", "behind")
    rows = []
    for queue in sorted({*report.state.begin, *report.state.covered}):
        start, end = report.state.start_of(queue), report.state.next_of(queue)
        oldest, last = report.bounds.get(queue, (None, None))
        behind = None if last is None else max(0, last - end)
        rows.append((*_names(queue), start, end, oldest, last, behind))
    return Table("Queues", columns, rows)


def _names(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


BUILT_IN = BuiltIn("reconcile", ReconcileOptions, plan, example="--path /data/lake/orders")
