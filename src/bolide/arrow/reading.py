"""Read parts of queues as record batches: exactly their messages, in order, or an error."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import pyarrow as pa
import pyarrow.compute as pc

from bolide.arrow import pooled
from bolide.arrow.batches import Batches
from bolide.arrow.cluster import PATIENCE, READER_GROUP, Cluster
from bolide.arrow.connection import Connection
from bolide.arrow.fetching import Share, fetch_all
from bolide.arrow.ranges import QueueRange
from bolide.arrow.read_options import ReadOptions
from bolide.client.blocking import LoopThread
from bolide.kernel.column_buffers import Wanted

__all__ = [
    "PATIENCE",
    "READER_GROUP",
    "ReadOptions",
    "read_range",
    "read_range_blocking",
    "read_ranges_blocking",
]


async def read_range(
    cluster: Cluster, part: QueueRange, options: ReadOptions
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The messages of a part of a queue, in order and each once; never empty batches.

    Raises:
        DataLost: messages of the part are gone and that is not allowed.
        OutOfPatience: nothing could be read for too long.
        Refusal: the broker refuses, such as an expression that it cannot read.
    """
    table = _Table(part, options)
    async with aclosing(fetch_all(cluster, [part], options)) as shares:
        async for share in shares:
            for batch in await asyncio.to_thread(list, table.take(share)):
                yield batch


def read_range_blocking(
    connection: Connection, part: QueueRange, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The same without `await`, for Spark's tasks: connections outlive the call."""
    return read_ranges_blocking(connection, [part], options)


def read_ranges_blocking(
    connection: Connection, parts: Sequence[QueueRange], options: ReadOptions, at_once: int = 1
) -> Iterator[pa.RecordBatch]:
    """The messages of several parts, so many at once: batches of a part come in order."""
    tables = {number: _Table(part, options) for number, part in enumerate(parts)}

    async def shares() -> AsyncGenerator[Share, None]:
        cluster = await pooled.open_cluster(connection, options.patience)
        async with aclosing(fetch_all(cluster, parts, options, at_once)) as fetched:
            async for share in fetched:
                yield share

    for share in _blocking(shares()):
        yield from tables[share.number].take(share)
        if share.is_last:
            del tables[share.number]


def _blocking(source: AsyncGenerator[Share, None]) -> Iterator[Share]:
    """Each is waited for here; while this thread has one, the loop's thread gets the next."""
    thread = LoopThread.get()

    async def step() -> Share | None:
        return await anext(source, None)

    async def close() -> None:
        await source.aclose()

    try:
        while (share := thread.wait(step())) is not None:
            yield share
    finally:
        thread.submit(close())  # not waited for: at the end of a process nobody would answer


class _Table:
    """The batches of one part."""

    def __init__(self, part: QueueRange, options: ReadOptions) -> None:
        self._batches = Batches(
            broker=part.queue.broker_name,
            topic=part.queue.topic,
            wanted=Wanted(first_offset=part.start, end_offset=part.end),
            include_properties=options.include_properties,
            value=options.value,
            max_rows=options.batch_rows,
            max_bytes=options.batch_bytes,
        )
        tags = options.filter_of(part.queue.topic).tags
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None

    def take(self, share: Share) -> Iterator[pa.RecordBatch]:
        """The batches that are full with this, at the end of the part what is left too."""
        for batch in map(self._with_tags, self._cut(share)):
            if batch.num_rows:
                yield batch

    def _cut(self, share: Share) -> Iterator[pa.RecordBatch]:
        for body, offset_delta in share.replies:
            yield from self._batches.add(body, offset_delta=offset_delta)
        if share.is_last:
            yield from self._batches.rest()

    def _with_tags(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Brokers compare the hashes of tags only."""
        if self._tags is None:
            return batch
        return batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags))
