"""Topics as tables: `read_topic`, and reading queue ranges as record batches.

A range yields exactly its messages, in queue order, or raises.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from bolide.arrow.batches import Batches, TableSource
from bolide.arrow.cluster import PATIENCE, Cluster, Connection, ask, open_cluster
from bolide.arrow.offsets import Position, QueueRange, between, position_of, refuse_past_end
from bolide.arrow.range_fetcher import ReadOptions, Share, fetch_all
from bolide.client.blocking import LoopThread
from bolide.kernel.column_buffers import Wanted
from bolide.model.message_queue import MessageQueue
from bolide.remoting.tls import ClientTls

QUEUES_AT_ONCE = 4
Where = str | datetime | timedelta | Mapping[str, object] | Mapping[MessageQueue, int] | Position
"""A position: `"earliest"`, `"latest"`, `"-10m"`, `"group:NAME"`, an ISO time, JSON of offsets;
or a datetime, how long ago, offsets as `{"topic": {"broker": {"0": 23}}}` or by queue."""


class ConnectionArguments(TypedDict, total=False):
    """How the cluster is reached; `ClientSettings` says what they do."""

    access_key: str | None
    secret_key: str | None
    security_token: str | None
    namespace: str
    tls: ClientTls | None
    call_timeout: float


def read_topic(  # noqa: PLR0913  the options that it has
    topic: str | Iterable[str],
    *,
    name_server: str | None = None,
    start: Where = "earliest",
    end: Where = "latest",
    tags: str = "*",
    sql: str | None = None,
    value_schema: str | None = None,
    include_properties: bool = True,
    fail_on_data_loss: bool = True,
    patience: float = PATIENCE,
    queues_at_once: int = QUEUES_AT_ONCE,
    **how: Unpack[ConnectionArguments],
) -> "TopicReader":
    """Read messages as record batches, a pandas DataFrame or a DuckDB table.

    ```python
    orders = read_topic("orders", name_server="127.0.0.1:9876", start="-1h")
    print(orders.to_pandas()["tags"].value_counts())
    ```

    Where it starts and ends is found out now, so messages that come later are not read.

    Args:
        topic: one or several.
        name_server: `host:port;host:port`; NAMESRV_ADDR by default.
        start: the first messages to read; see `Where`.
        end: where to stop; the message there is not read any more.
        tags: only messages with one of these, such as `"A || B"`.
        sql: only messages whose properties match a SQL92 expression; the broker judges.
        value_schema: columns of JSON bodies, such as `"id bigint, name string"`; they become the
            column `value`, which is null where a body does not fit.
        include_properties: whether there is a column with all properties.
        fail_on_data_loss: whether to raise DataLost if messages are deleted before they are read.
        patience: seconds that the cluster may be away.
        queues_at_once: how many queues are read at a time.
        how: credentials, TLS, namespace.

    Raises:
        ConfigError: an option cannot be used; names it.
        RouteNotFound: there is no such topic.
        OutOfPatience: the cluster cannot be reached.
    """
    servers = name_server or os.environ.get("NAMESRV_ADDR", "")
    connection = Connection(name_server=servers, **how)
    options = ReadOptions(
        tags=tags,
        sql=sql,
        value_schema=value_schema,
        include_properties=include_properties,
        fail_on_data_loss=fail_on_data_loss,
        patience=patience,
    )
    topics = [topic] if isinstance(topic, str) else [*topic]
    places = position_of(start, option="start"), position_of(end, option="end")
    parts = ask(connection, lambda c: _plan(c, topics, *places), patience=patience)
    return TopicReader(connection, parts, options, queues_at_once)


class TopicReader(TableSource):
    """The messages of parts of queues; those of one queue come in their order."""

    def __init__(
        self,
        connection: Connection,
        ranges: Sequence[QueueRange],
        options: ReadOptions,
        queues_at_once: int = QUEUES_AT_ONCE,
    ) -> None:
        self.ranges = tuple(ranges)
        self._connection = connection
        self._options = options
        self._at_once = max(1, min(queues_at_once, len(self.ranges)))

    @property
    def schema(self) -> pa.Schema:
        return self._options.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return read_ranges_blocking(self._connection, self.ranges, self._options, self._at_once)


async def _plan(
    cluster: Cluster, topics: list[str], start: Position, end: Position
) -> list[QueueRange]:
    queues = await cluster.queues(topics)
    ends = await cluster.resolve(end, queues)  # first: a start at the latest is never before it
    starts = await cluster.resolve(start, queues)
    bounds = await cluster.bounds(queues)
    refuse_past_end(starts, bounds, option="start")
    refuse_past_end(ends, bounds, option="end")
    return between(starts, ends)


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
        cluster = await open_cluster(connection, options.patience)
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
