"""Topics as tables, for whoever is not Spark."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

import pyarrow as pa

from bolide.arrow import pooled
from bolide.arrow.cluster import PATIENCE, Cluster
from bolide.arrow.connection import Connection
from bolide.arrow.offsets import Position, position_of
from bolide.arrow.positions import refuse_past_end
from bolide.arrow.ranges import QueueRange, between
from bolide.arrow.read_options import ReadOptions
from bolide.arrow.reading import read_ranges_blocking
from bolide.arrow.table_source import TableSource
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
    parts = pooled.ask(connection, lambda c: _plan(c, topics, *places), patience=patience)
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
