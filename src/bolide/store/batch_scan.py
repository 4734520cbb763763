"""Units of batch queues from a scan of the log, for recovery and verification.

A scan reports inner batches by position and all other records as runs of plain units. Records of a
topic with batch queues that are no inner batches hold one message each.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from bolide.kernel import QueueRun, Scan
from bolide.kernel.units import UNIT
from bolide.protocol.record import Record
from bolide.store.batch_queue import BatchUnit, unit_of


class QueuedBatch(NamedTuple):
    topic: bytes
    queue_id: int
    unit: BatchUnit


def split_batches(
    scan: Scan, batch_topics: Collection[bytes], read: Callable[[int], Record], base: int = 0
) -> tuple[list[QueueRun], list[QueuedBatch]]:
    """Divide the result of a scan into the runs of plain queues and the units of batch queues.

    Inner batches in topics without batch queues have no unit: they are left of a deleted topic.

    Args:
        read: returns the record at a physical offset that the scan has found sound.
        base: physical offset of the scanned buffer's position 0.

    Returns:
        The runs, and the units in the order of the log.
    """
    if not batch_topics:
        return scan.runs, []
    runs, places = [], [base + position for position in scan.batches]
    for run in scan.runs:
        if run.topic in batch_topics:
            places += [place for place, _, _ in UNIT.iter_unpack(run.entries)]
        else:
            runs.append(run)
    records = map(read, sorted(places))
    batches = [
        QueuedBatch(topic, record.queue_id, unit_of(record))
        for record in records
        if (topic := record.topic.encode(errors="replace")) in batch_topics
    ]
    return runs, batches
