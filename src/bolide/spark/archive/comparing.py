"""An archive beside the log, as plain values: per queue and hour, offsets there and rows here."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from bolide.arrow.offsets import Bounds, QueueRange
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.manifest import State
from bolide.spark.archive.reading import HOUR


class Rows(NamedTuple):
    """What the files have of a queue in an hour."""

    rows: int
    distinct: int
    """Different offsets."""
    in_reach: int
    """Rows whose offsets the log still has."""


QueueHour = tuple[MessageQueue, str]


class Line(NamedTuple):
    """One queue in one hour; `log` is None where the log has nothing left to compare with."""

    queue: MessageQueue
    hour: str
    log: int | None
    table: int
    rows: int

    @property
    def difference(self) -> int:
        return 0 if self.log is None else self.table - self.log


class Fault(NamedTuple):
    """Something that an archive must not have, and where: a queue or a file."""

    place: str
    text: str


def in_reach(state: State, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, QueueRange]:
    """The part of each archived queue that the log still has; queues that are gone have none."""
    found = {}
    for queue, end in state.covered.items():
        if queue in bounds:
            start = max(state.start_of(queue), bounds[queue].oldest)
            found[queue] = QueueRange(queue, start, max(start, min(end, bounds[queue].end)))
    return found


def hours_between(first: str, last: str) -> list[str]:
    """All hours from one to another, both included."""
    moment, end = (datetime.strptime(each, HOUR).replace(tzinfo=UTC) for each in (first, last))
    return [
        (moment + timedelta(hours=n)).strftime(HOUR)
        for n in range(int((end - moment) / timedelta(hours=1)) + 1)
    ]


def start_ms(hour: str) -> int:
    return int(datetime.strptime(hour, HOUR).replace(tzinfo=UTC).timestamp() * 1000)


def log_counts(part: QueueRange, hours: Sequence[str], edges: Sequence[int]) -> dict[str, int]:
    """Messages of a part of a queue by hour.

    Args:
        part: what both have.
        hours: without a hole; nothing of the part lies before the first or after the last.
        edges: the first offset of each hour but the first.
    """
    inner = (min(max(edge, part.start), part.end) for edge in edges)
    cuts = [part.start, *inner, part.end]
    sizes = (high - low for low, high in pairwise(cuts))
    return dict(zip(hours, sizes, strict=True))


def compare(
    table: Mapping[QueueHour, Rows], log: Mapping[QueueHour, int], reach: Iterable[MessageQueue]
) -> list[Line]:
    """Lines for all that either has, in order."""
    lines = []
    known = set(reach)
    for queue, hour in sorted({*table, *(key for key, count in log.items() if count)}):
        here = table.get((queue, hour), Rows(0, 0, 0))
        there = log.get((queue, hour), 0) if queue in known else None
        if not there and not here.in_reach:
            there = None  # older than the log
        lines.append(Line(queue, hour, there, here.in_reach, here.rows))
    return lines


def find_faults(
    state: State, table: Mapping[QueueHour, Rows], lines: Iterable[Line]
) -> list[Fault]:
    """What is wrong, in words: queues with holes, offsets twice, hours that differ."""
    faults = []
    for queue, end in sorted(state.covered.items()):
        rows = [found for (each, _), found in table.items() if each == queue]
        faults += [Fault(str(queue), text) for text in _of_queue(state.start_of(queue), end, rows)]
    for line in lines:
        if line.difference:
            text = f"hour {line.hour}: the log has {line.log:,} messages, the table {line.table:,}"
            faults.append(Fault(str(line.queue), text))
    return faults


def _of_queue(start: int, end: int, rows: Sequence[Rows]) -> Iterator[str]:
    there, distinct = sum(each.rows for each in rows), sum(each.distinct for each in rows)
    if there != distinct:
        yield f"{there - distinct:,} rows are there more than once"
    if distinct != end - start:
        yield f"{end - start - distinct:,} of the offsets {start} to {end - 1} are missing"


async def find_edges(marks: Sequence[int], search: Callable[[int], Awaitable[int]]) -> list[int]:
    """`search` at each of the marks, without asking where the answers around are the same."""
    found: dict[int, int] = {}

    async def fill(low: int, high: int) -> None:
        if high - low < 2:
            return
        if found[low] == found[high]:
            found.update(dict.fromkeys(range(low + 1, high), found[low]))
            return
        middle = (low + high) // 2
        found[middle] = await search(marks[middle])
        await fill(low, middle)
        await fill(middle, high)

    if marks:
        last = len(marks) - 1
        found[0], found[last] = await search(marks[0]), await search(marks[last])
        await fill(0, last)
    return [found[n] for n in range(len(marks))]
