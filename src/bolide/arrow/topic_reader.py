"""Topics as tables: `read_topic`, and reading queue ranges as record batches.

A range yields exactly its messages, in queue order, or raises.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from bolide.arrow.batches import BatchBuilder, TableSource
from bolide.arrow.cluster import PATIENCE, Cluster, Connection, ask, open_cluster
from bolide.arrow.offsets import Position, QueueRange, between, position_of, refuse_past_end
from bolide.arrow.range_fetcher import RangeBlocks, ReadOptions, fetch_all
from bolide.client.blocking import LoopThread
from bolide.kernel.column_buffers import Wanted
from bolide.model.message_queue import MessageQueue
from bolide.remoting.tls import ClientTls, pop_client_tls

QUEUES_AT_ONCE = 4
Where = str | datetime | timedelta | Mapping[str, object] | Mapping[MessageQueue, int] | Position
"""A position: `"earliest"`, `"latest"`, `"-10m"`, `"group:NAME"`, an ISO time or JSON of offsets;
a datetime; an age as timedelta; or offsets as `{"topic": {"broker": {"0": 23}}}` or by queue."""


class ConnectionArguments(TypedDict, total=False):
    """Optional settings of the connection, as in `ClientSettings`."""

    access_key: str | None
    secret_key: str | None
    security_token: str | None
    namespace: str
    tls: ClientTls | bool | None
    trust: Path | str | None
    certificate: Path | str | None
    key: Path | str | None
    call_timeout: float


def read_topic(  # noqa: PLR0913  a public function with keyword options
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

    The start and end offsets are resolved by this call: messages stored later are not read.

    Args:
        topic: one topic name or several.
        name_server: `host:port;host:port`; NAMESRV_ADDR by default.
        start: the first messages to read; see `Where`.
        end: where to stop; the message at this position is excluded.
        tags: only messages with one of these tags, such as `"A || B"`.
        sql: only messages whose properties match a SQL92 expression, evaluated by the broker.
        value_schema: columns of JSON bodies, such as `"id bigint, name string"`; they form the
            column `value`, which is null if a body does not match.
        include_properties: whether to add a column with all properties.
        fail_on_data_loss: whether to raise DataLost if messages are deleted before they are read.
        patience: seconds that an outage of the cluster may last.
        queues_at_once: how many queues are read concurrently.
        how: credentials, TLS, namespace.

    Raises:
        ConfigError: an option is invalid; the text names it.
        RouteNotFound: the topic does not exist.
        OutOfPatience: the cluster is unreachable.
    """
    servers = name_server or os.environ.get("NAMESRV_ADDR", "")
    connection = _connection(servers, **how)
    options = ReadOptions(
        tags=tags,
        sql=sql,
        value_schema=value_schema,
        include_properties=include_properties,
        fail_on_data_loss=fail_on_data_loss,
        patience=patience,
    )
    topics = [topic] if isinstance(topic, str) else [*topic]
    positions = position_of(start, option="start"), position_of(end, option="end")
    ranges = ask(connection, lambda c: _plan(c, topics, *positions), patience=patience)
    return TopicReader(connection, ranges, options, queues_at_once)


def _connection(name_server: str, **how: Unpack[ConnectionArguments]) -> Connection:
    rest: dict[str, Any] = dict(how)
    return Connection(name_server=name_server, tls=pop_client_tls(rest), **rest)


class TopicReader(TableSource):
    """The messages of some queue ranges, in queue order within each range."""

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
    # The end is resolved first, so that a start at `latest` is never before it.
    ends = await cluster.resolve(end, queues)
    starts = await cluster.resolve(start, queues)
    bounds = await cluster.bounds(queues)
    refuse_past_end(starts, bounds, option="start")
    refuse_past_end(ends, bounds, option="end")
    return between(starts, ends)


async def read_range(
    cluster: Cluster, queue_range: QueueRange, options: ReadOptions
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The messages of a queue range, each once and in queue order; no batch is empty.

    Raises:
        DataLost: messages of the range were deleted, and data loss is not allowed.
        OutOfPatience: no progress for longer than the limit.
        Refusal: the broker refuses, for example a malformed expression.
    """
    table = _RangeTable(queue_range, options)
    async with aclosing(fetch_all(cluster, [queue_range], options)) as fetched:
        async for blocks in fetched:
            for batch in await asyncio.to_thread(list, table.add(blocks)):
                yield batch


def read_range_blocking(
    connection: Connection, queue_range: QueueRange, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """As `read_range`, blocking, for Spark tasks; connections stay open after the call."""
    return read_ranges_blocking(connection, [queue_range], options)


def read_ranges_blocking(
    connection: Connection, ranges: Sequence[QueueRange], options: ReadOptions, at_once: int = 1
) -> Iterator[pa.RecordBatch]:
    """The messages of several ranges, `at_once` of them concurrently, each in queue order."""
    tables = {
        number: _RangeTable(queue_range, options) for number, queue_range in enumerate(ranges)
    }

    async def fetch() -> AsyncGenerator[RangeBlocks, None]:
        cluster = await open_cluster(connection, options.patience)
        async with aclosing(fetch_all(cluster, ranges, options, at_once)) as fetched:
            async for blocks in fetched:
                yield blocks

    for blocks in _iterate_blocking(fetch()):
        yield from tables[blocks.number].add(blocks)
        if blocks.is_last:
            del tables[blocks.number]


def _iterate_blocking(source: AsyncGenerator[RangeBlocks, None]) -> Iterator[RangeBlocks]:
    """Iterate on this thread; the loop's thread fetches ahead meanwhile."""
    thread = LoopThread.get()

    async def step() -> RangeBlocks | None:
        return await anext(source, None)

    async def close() -> None:
        await source.aclose()

    try:
        while (blocks := thread.wait(step())) is not None:
            yield blocks
    finally:
        thread.submit(close())  # without a wait: the loop may be gone at the end of the process


class _RangeTable:
    """Builds the batches of one range."""

    def __init__(self, queue_range: QueueRange, options: ReadOptions) -> None:
        self._builder = BatchBuilder(
            broker=queue_range.queue.broker_name,
            topic=queue_range.queue.topic,
            wanted=Wanted(first_offset=queue_range.start, end_offset=queue_range.end),
            include_properties=options.include_properties,
            value=options.value,
            max_rows=options.batch_rows,
            max_bytes=options.batch_bytes,
        )
        tags = options.filter_of(queue_range.queue.topic).tags
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None

    def add(self, blocks: RangeBlocks) -> Iterator[pa.RecordBatch]:
        """Add blocks and yield the batches they complete; the last blocks flush the rest."""
        for batch in map(self._with_tags, self._decode(blocks)):
            if batch.num_rows:
                yield batch

    def _decode(self, blocks: RangeBlocks) -> Iterator[pa.RecordBatch]:
        for body, offset_delta in blocks.blocks:
            yield from self._builder.add(body, offset_delta=offset_delta)
        if blocks.is_last:
            yield from self._builder.flush()

    def _with_tags(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filter by tag: brokers compare hashes of tags only."""
        if self._tags is None:
            return batch
        return batch.filter(pc.is_in(batch.column("tags"), value_set=self._tags))
