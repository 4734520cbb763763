"""Audit of an archive: rows in its files, by queue and hour, compared with the log."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  conventional alias

from bolide.arrow.offsets import Bounds, QueueRange, to_json
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.manifest import DataFile, State
from bolide.spark.archive.reading import HOUR
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.archive.writing import hour_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_QUEUE = ("topic", "broker", "queue_id")


class RowCounts(NamedTuple):
    """Rows that the files have of a queue in an hour."""

    rows: int
    distinct: int
    """Distinct offsets."""
    still_in_log: int
    """Rows whose offsets the log still has."""


QueueHour = tuple[MessageQueue, str]


class HourComparison(NamedTuple):
    """One queue in one hour; `log` is None where the log has nothing left to compare."""

    queue: MessageQueue
    hour: str
    log: int | None
    table: int
    rows: int

    @property
    def difference(self) -> int:
        return 0 if self.log is None else self.table - self.log


class Fault(NamedTuple):
    """An inconsistency of an archive, and its place: a queue or a file."""

    place: str
    text: str


def ranges_still_in_log(
    state: State, bounds: Mapping[MessageQueue, Bounds]
) -> dict[MessageQueue, QueueRange]:
    """The part of each archived queue that the log still has; deleted queues have none."""
    found = {}
    for queue, end in state.covered.items():
        if queue in bounds:
            start = max(state.start_of(queue), bounds[queue].oldest)
            found[queue] = QueueRange(queue, start, max(start, min(end, bounds[queue].end)))
    return found


def hours_between(first: str, last: str) -> list[str]:
    """All hours from `first` to `last`, inclusive."""
    moment, end = (datetime.strptime(each, HOUR).replace(tzinfo=UTC) for each in (first, last))
    return [
        (moment + timedelta(hours=n)).strftime(HOUR)
        for n in range(int((end - moment) / timedelta(hours=1)) + 1)
    ]


def start_ms(hour: str) -> int:
    return int(datetime.strptime(hour, HOUR).replace(tzinfo=UTC).timestamp() * 1000)


def log_counts(
    part: QueueRange, hours: Sequence[str], hour_starts: Sequence[int]
) -> dict[str, int]:
    """Messages of a queue range by hour.

    Args:
        part: the range that both archive and log have.
        hours: consecutive hours that contain the whole range.
        hour_starts: the first offset of each hour but the first.
    """
    inner = (min(max(offset, part.start), part.end) for offset in hour_starts)
    bounds = [part.start, *inner, part.end]
    sizes = (high - low for low, high in pairwise(bounds))
    return dict(zip(hours, sizes, strict=True))


def compare(
    table: Mapping[QueueHour, RowCounts],
    log: Mapping[QueueHour, int],
    queues_in_log: Iterable[MessageQueue],
) -> list[HourComparison]:
    """Comparisons of every queue and hour that the table or the log has, in order."""
    comparisons = []
    known = set(queues_in_log)
    for queue, hour in sorted({*table, *(key for key, count in log.items() if count)}):
        here = table.get((queue, hour), RowCounts(0, 0, 0))
        there = log.get((queue, hour), 0) if queue in known else None
        if not there and not here.still_in_log:
            there = None  # older than the log
        comparisons.append(HourComparison(queue, hour, there, here.still_in_log, here.rows))
    return comparisons


def find_faults(
    state: State, table: Mapping[QueueHour, RowCounts], comparisons: Iterable[HourComparison]
) -> list[Fault]:
    """Descriptions of gaps and duplicates in queues, and of hours that differ."""
    faults = []
    for queue, end in sorted(state.covered.items()):
        rows = [found for (each, _), found in table.items() if each == queue]
        faults += [
            Fault(str(queue), text) for text in _queue_faults(state.start_of(queue), end, rows)
        ]
    for comparison in comparisons:
        if comparison.difference:
            text = (
                f"hour {comparison.hour}: the log has {comparison.log:,} messages,"
                f" the table {comparison.table:,}"
            )
            faults.append(Fault(str(comparison.queue), text))
    return faults


def _queue_faults(start: int, end: int, rows: Sequence[RowCounts]) -> Iterator[str]:
    there, distinct = sum(each.rows for each in rows), sum(each.distinct for each in rows)
    if there != distinct:
        yield f"{there - distinct:,} rows are there more than once"
    if distinct != end - start:
        yield f"{end - start - distinct:,} of the offsets {start} to {end - 1} are missing"


async def find_hour_starts(
    timestamps: Sequence[int], search: Callable[[int], Awaitable[int]]
) -> list[int]:
    """Call `search` for each timestamp, by bisection: equal neighbours are not searched between."""
    found: dict[int, int] = {}

    async def fill(low: int, high: int) -> None:
        if high - low < 2:
            return
        if found[low] == found[high]:
            found.update(dict.fromkeys(range(low + 1, high), found[low]))
            return
        middle = (low + high) // 2
        found[middle] = await search(timestamps[middle])
        await fill(low, middle)
        await fill(middle, high)

    if timestamps:
        last = len(timestamps) - 1
        found[0], found[last] = await search(timestamps[0]), await search(timestamps[last])
        await fill(0, last)
    return [found[n] for n in range(len(timestamps))]


def check_files(table: ArchiveTable, state: State) -> tuple[list[DataFile], list[Fault]]:
    """The files of the manifest that exist, and the faults of files."""
    directories = [name for name in table.files.names("") if name.startswith("topic=")]
    there = {
        found.path: found.size
        for directory in directories
        for found in table.files.walk(directory)
        if found.path.endswith(".parquet")
    }
    faults = [
        Fault(path, "is not in the manifest; readers of the directories see its rows as well")
        for path in sorted(there.keys() - table.state().files.keys())
    ]
    readable = []
    for file in state.files_of():
        if file.path not in there:
            faults.append(Fault(file.path, f"is gone, and with it {file.rows:,} rows"))
        elif there[file.path] != file.size:
            faults.append(Fault(file.path, f"has {there[file.path]} bytes instead of {file.size}"))
        else:
            readable.append(file)
    return readable, faults


def count_rows(
    frame: "DataFrame", parts: Mapping[MessageQueue, QueueRange]
) -> dict[QueueHour, RowCounts]:
    """Rows of the table by queue and hour."""
    flagged = _flag_in_log(frame.select(*_QUEUE, "hour", "queue_offset"), parts)
    counted = flagged.groupBy(*_QUEUE, "hour").agg(
        F.count("*"), F.countDistinct("queue_offset"), F.count_if("still_in_log")
    )
    return {
        (MessageQueue(topic, broker, queue_id), hour): RowCounts(*counts)
        for topic, broker, queue_id, hour, *counts in counted.collect()
    }


class HourContent(NamedTuple):
    rows: int
    sum: int


def compare_content(
    frame: "DataFrame",
    parts: Mapping[MessageQueue, QueueRange],
    bounds: Mapping[MessageQueue, Bounds],
    source: Mapping[str, str],
) -> tuple[dict[QueueHour, int], list[Fault]]:
    """Read the log again: its messages by queue and hour, and the hours whose contents differ."""
    spark = frame.sparkSession
    with_properties = "properties" in frame.columns
    log = _contents(_read_log(spark, parts, bounds, source), with_properties=with_properties)
    table = _contents(
        _flag_in_log(frame, parts).where("still_in_log"), with_properties=with_properties
    )
    faults = [
        Fault(str(key[0]), f"hour {key[1]}: contents differ although the numbers are the same")
        for key, found in sorted(log.items())
        if key in table and table[key].rows == found.rows and table[key].sum != found.sum
    ]
    return {key: found.rows for key, found in log.items()}, faults


def _read_log(
    spark: "SparkSession",
    parts: Mapping[MessageQueue, QueueRange],
    bounds: Mapping[MessageQueue, Bounds],
    source: Mapping[str, str],
) -> "DataFrame":
    """The source needs offsets for all queues; queues without archived rows get an empty range."""
    ends = {queue: QueueRange(queue, end, end) for queue, (_, end) in bounds.items()} | dict(parts)
    options = {
        **source,
        "topic": ",".join(sorted({queue.topic for queue in bounds})),
        "startingOffsets": to_json({queue: part.start for queue, part in ends.items()}),
        "endingOffsets": to_json({queue: part.end for queue, part in ends.items()}),
    }
    frame = spark.read.format("rocketmq").options(**options).load()
    return frame.withColumn("hour", hour_column())


def _contents(frame: "DataFrame", *, with_properties: bool) -> dict[QueueHour, HourContent]:
    summed = frame.groupBy(*_QUEUE, "hour").agg(
        F.count("*"), F.bit_xor(_hash(with_properties=with_properties))
    )
    return {
        (MessageQueue(topic, broker, queue_id), hour): HourContent(*found)
        for topic, broker, queue_id, hour, *found in summed.collect()
    }


def _hash(*, with_properties: bool) -> "Column":
    columns = ["queue_offset", "physical_offset", "message_id", "keys", "tags", "body"]
    columns += ["born_timestamp", "store_timestamp", "reconsume_times", "flag"]
    values = [F.col(name) for name in columns]
    if with_properties:  # Spark cannot hash maps, as they have no order
        values.append(F.array_sort(F.map_entries("properties")))
    return F.xxhash64(*values)


def _flag_in_log(frame: "DataFrame", parts: Mapping[MessageQueue, QueueRange]) -> "DataFrame":
    """Add `still_in_log`: whether the log still has the row."""
    rows = [
        (queue.topic, queue.broker_name, queue.queue_id, part.start, part.end)
        for queue, part in parts.items()
    ]
    schema = "topic string, broker string, queue_id int, low bigint, high bigint"
    known = F.broadcast(frame.sparkSession.createDataFrame(rows, schema))
    is_there = (F.col("queue_offset") >= F.col("low")) & (F.col("queue_offset") < F.col("high"))
    joined = frame.join(known, on=list(_QUEUE), how="left")
    return joined.withColumn("still_in_log", F.coalesce(is_there, F.lit(False))).drop("low", "high")
