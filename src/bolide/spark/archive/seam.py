"""The seam between an archive and the log: where the log continues, and whether it may.

Offsets of a topic that was deleted and created again start over, so an offset alone does not prove
that the log continues the archive. The last archived message of each queue is compared as well.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  conventional alias

from bolide.arrow.offsets import Bounds, QueueRange
from bolide.arrow.range_fetcher import ReadOptions
from bolide.arrow.topic_reader import read_ranges_blocking
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.errors import OtherLog, SeamGap
from bolide.spark.archive.manifest import DataFile, State
from bolide.spark.archive.reading import read_files
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.options import ConnectionOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUEUE = ("topic", "broker", "queue_id")


def find_shorter_queues(state: State, bounds: Mapping[MessageQueue, Bounds]) -> list[SeamGap]:
    """Queues that end before their archive does, which means that the topic was recreated."""
    return [
        SeamGap(queue, state.next_of(queue), oldest, end)
        for queue, (oldest, end) in sorted(bounds.items())
        if end < state.next_of(queue)
    ]


def refuse_shorter_log(state: State, bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises SeamGap if a queue ends before its archive does."""
    for gap in find_shorter_queues(state, bounds):
        raise gap


def refuse_gap(state: State, bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises SeamGap if messages between archive and log are in neither."""
    refuse_shorter_log(state, bounds)
    known = {*state.begin, *state.covered}
    for queue, (oldest, end) in sorted(bounds.items()):
        if queue in known and oldest > state.next_of(queue):
            raise SeamGap(queue, state.next_of(queue), oldest, end)


def log_start(state: State, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
    """Start offsets in the log, so that archive and log together have each message once."""
    return {queue: max(oldest, state.next_of(queue)) for queue, (oldest, _) in bounds.items()}


def log_ranges_before(state: State, bounds: Mapping[MessageQueue, Bounds]) -> list[QueueRange]:
    """Ranges that only the log has, before the archive begins or where retention deleted rows."""
    firsts = {queue: state.next_of(queue) for queue in bounds}
    for file in state.files_of({queue.topic for queue in bounds}):
        for span in file.spans:
            queue = file.queue_of(span)
            if queue in firsts:
                firsts[queue] = min(firsts[queue], span.first)
    return [
        QueueRange(queue, oldest, max(oldest, min(firsts[queue], end)))
        for queue, (oldest, end) in sorted(bounds.items())
    ]


def find_other_messages(
    spark: "SparkSession",
    table: ArchiveTable,
    state: State,
    bounds: Mapping[MessageQueue, Bounds],
    source: ConnectionOptions,
) -> list[OtherLog]:
    """Queues whose last archived message differs from the message in the log."""
    last_archived = _last_archived(state, bounds)
    if not last_archived:
        return []
    here = _archived(spark, table, last_archived)
    there = _logged([part for part, _ in last_archived], source)
    return [
        OtherLog(part.queue, part.start, here[part.queue], there[part.queue])
        for part, _ in last_archived
        if part.queue in here and part.queue in there and here[part.queue] != there[part.queue]
    ]


def refuse_other_messages(
    spark: "SparkSession",
    table: ArchiveTable,
    state: State,
    bounds: Mapping[MessageQueue, Bounds],
    source: ConnectionOptions,
) -> None:
    """Raises OtherLog."""
    for other in find_other_messages(spark, table, state, bounds, source):
        raise other


def _last_archived(
    state: State, bounds: Mapping[MessageQueue, Bounds]
) -> list[tuple[QueueRange, DataFile]]:
    """The last archived message of each queue and its file, if the log still has that offset."""
    found = []
    for file in state.files_of({queue.topic for queue in bounds}):
        for span in file.spans:
            queue, last = file.queue_of(span), span.last
            if queue not in bounds or last + 1 != state.covered[queue]:
                continue
            if bounds[queue].oldest <= last < bounds[queue].end:
                found.append((QueueRange(queue, last, last + 1), file))
    return found


def _archived(
    spark: "SparkSession", table: ArchiveTable, last_archived: list[tuple[QueueRange, DataFile]]
) -> dict[MessageQueue, str]:
    files = {file.path: file for _, file in last_archived}
    wanted = [
        (part.queue.topic, part.queue.broker_name, part.queue.queue_id, part.start)
        for part, _ in last_archived
    ]
    schema = "topic string, broker string, queue_id int, queue_offset bigint"
    known = F.broadcast(spark.createDataFrame(wanted, schema))
    rows = read_files(spark, table, list(files.values()), table.settings())
    found = rows.join(known, on=[*_QUEUE, "queue_offset"]).select(*_QUEUE, "message_id")
    return {MessageQueue(*row[:3]): row.message_id for row in found.collect()}


def _logged(parts: list[QueueRange], source: ConnectionOptions) -> dict[MessageQueue, str]:
    options = ReadOptions(
        include_properties=False, fail_on_data_loss=False, patience=source.patience
    )
    found = {}
    for batch in read_ranges_blocking(source.connection(), parts, options):
        for row in batch.select([*_QUEUE, "message_id"]).to_pylist():
            found[MessageQueue(row["topic"], row["broker"], row["queue_id"])] = row["message_id"]
    return found
