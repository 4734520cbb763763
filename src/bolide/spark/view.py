"""Topics as tables: the messages of an archive, continued by those of the log, each once.

The manifest of an archive records the end offset of each queue; the log is read from there on. The
seam is fixed when the view is made: the view is a snapshot of the archive, and of the log up to the
moment a query first runs. Make a new view to see later messages.
"""

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  conventional alias
from pyspark.sql.pandas.functions import arrow_udf

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.json_values import decode_values
from bolide.arrow.offsets import Bounds, QueueRange, to_json
from bolide.arrow.schema import parse_ddl
from bolide.client.errors import RouteNotFound
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.errors import SeamGap
from bolide.spark.archive.manifest import State
from bolide.spark.archive.reading import columns_of, read_files
from bolide.spark.archive.seam import (
    log_ranges_before,
    log_start,
    refuse_gap,
    refuse_other_messages,
    refuse_shorter_log,
)
from bolide.spark.archive.table import ArchiveTable, Settings
from bolide.spark.options import ConnectionOptions
from bolide.spark.session import find_name_server

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)


class UnknownTopic(ConfigError):
    """Neither the cluster nor the archive has the topic."""

    def __init__(self, topic: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(topic, list(known), n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        super().__init__(f"there is no topic {topic!r}{hint}")
        self.topic = topic


def topic_view(
    spark: "SparkSession",
    topic: str,
    *,
    name_server: str | None = None,
    archive: str | None = None,
    value_schema: str | None = None,
    allow_gaps: bool = False,
    **options: str,
) -> "DataFrame":
    """The messages of a topic: those of an archive, continued by those of the log.

    Args:
        spark: the session.
        topic: name of the topic.
        name_server: as `host:port;host:port`; else those of the session or of
            `NAMESRV_ADDR`.
        archive: path of an archive; without one only the log is read.
        value_schema: columns of JSON bodies; defaults to that of the archive.
        allow_gaps: messages may be missing between the archive and the log.
        options: further options of the source `rocketmq`, such as credentials.

    Raises:
        UnknownTopic: neither the cluster nor the archive has the topic.
        NoArchive: there is no archive at the path.
        SeamGap: messages between the archive and the log are in neither.
        OtherLog: the topic was recreated since it was archived.
    """
    views = Views(spark, name_server=name_server, archive=archive, **options)
    return views.view(topic, value_schema=value_schema, allow_gaps=allow_gaps)


def topics(
    spark: "SparkSession",
    name_server: str | None = None,
    *,
    archive: str | None = None,
    pattern: str = ".*",
    allow_gaps: bool = False,
    **options: str,
) -> "DataFrame":
    """Register a temporary view of each topic for use in SQL, and return a list of the topics.

    Names with a hyphen or a percent sign are quoted in SQL: select … from `my-topic`.

    Args:
        spark: the session.
        name_server: as `host:port;host:port`; else those of the session or of
            `NAMESRV_ADDR`.
        archive: path of an archive; its messages come before those of the log.
        pattern: regular expression for whole topic names; each view takes a moment to create.
        allow_gaps: messages may be missing between the archive and the log.
        options: further options of the source `rocketmq`, such as credentials.

    Returns:
        A row for each topic: its name, queues, messages in the log, rows in the archive.
    """
    views = Views(spark, name_server=name_server, archive=archive, **options)
    names = views.names(pattern)
    for name in names:
        register(views.view(name, allow_gaps=allow_gaps), name)
    rows = [views.summary_row(name) for name in names]
    return spark.createDataFrame(rows, "topic string, queues int, in_log bigint, archived bigint")


def register(frame: "DataFrame", name: str) -> None:
    """Register a frame as a temporary view."""
    quoted = name.replace("`", "``")
    frame.createOrReplaceTempView(f"`{quoted}`")


class Views:
    """Creates views over the topics of one cluster and one archive."""

    def __init__(
        self,
        spark: "SparkSession",
        *,
        name_server: str | None = None,
        archive: str | None = None,
        **options: str,
    ) -> None:
        self._spark = spark
        self._options = options
        if servers := name_server or find_name_server(spark):
            self._options["nameServer"] = servers
        self._connection = ConnectionOptions.of(self._options)
        self._table = ArchiveTable.at(spark, archive) if archive else None
        self._state = self._table.state() if self._table else State()

    def names(self, pattern: str = ".*") -> list[str]:
        """Topics of the cluster and of the archive whose names match."""
        matching = self._cluster_topics(pattern)
        archived = [topic for topic in self._state.topics if re.fullmatch(pattern, topic)]
        return sorted({*matching, *archived})

    def has(self, topic: str) -> bool:
        return topic in self._state.topics or bool(self._bounds(topic))

    def summary_row(self, topic: str) -> tuple[str, int, int, int]:
        bounds = self._bounds(topic)
        archived = sum(file.rows for file in self._state.files_of([topic]))
        return topic, len(bounds), sum(each.end - each.oldest for each in bounds.values()), archived

    def view(
        self, topic: str, *, value_schema: str | None = None, allow_gaps: bool = False
    ) -> "DataFrame":
        """Raises UnknownTopic, SeamGap, OtherLog."""
        bounds = self._bounds(topic)
        archived = topic in self._state.topics
        if not bounds and not archived:
            raise UnknownTopic(topic, self.names())
        settings = self._settings(value_schema, archived=archived)
        if not archived:
            return self._read_log(topic, settings, "earliest")
        self._check_seam(bounds, allow_gaps=allow_gaps)
        assert self._table is not None
        refuse_other_messages(self._spark, self._table, self._state, bounds, self._connection)
        old = self._read_archive(topic, settings)
        if not bounds:
            return old
        joined = old.unionByName(
            self._read_log(topic, settings, to_json(log_start(self._state, bounds)))
        )
        before = log_ranges_before(self._state, bounds)
        if any(part.size for part in before):
            joined = joined.unionByName(self._read_log_ranges(topic, settings, before))
        return joined

    def _settings(self, value_schema: str | None, *, archived: bool) -> Settings:
        """The columns of a view; the log can produce any."""
        if self._table is None or not archived:
            return Settings(value_schema=value_schema)
        made = self._table.settings()
        return Settings(value_schema=value_schema or made.value_schema)

    def _read_log_ranges(
        self, topic: str, settings: Settings, parts: Iterable[QueueRange]
    ) -> "DataFrame":
        start = to_json({part.queue: part.start for part in parts})
        end = to_json({part.queue: part.end for part in parts})
        return self._read_log(topic, settings, start, endingOffsets=end)

    def _read_log(self, topic: str, settings: Settings, start: str, **more: str) -> "DataFrame":
        options = {**self._options, **more, "topic": topic, "startingOffsets": start}
        if settings.value_schema is not None:
            options["valueSchema"] = settings.value_schema
        return self._spark.read.format("rocketmq").options(**options).load()

    def _read_archive(self, topic: str, settings: Settings) -> "DataFrame":
        assert self._table is not None
        made, files = self._table.settings(), self._state.files_of([topic])
        frame = read_files(self._spark, self._table, files, made)
        if not made.include_properties:
            frame = frame.withColumn("properties", F.lit(None).cast("map<string,string>"))
        if settings.value_schema not in (None, made.value_schema):
            frame = frame.withColumn("value", _value_column(settings))
        return frame.select(*columns_of(settings).names)

    def _check_seam(self, bounds: Mapping[MessageQueue, Bounds], *, allow_gaps: bool) -> None:
        if not allow_gaps:
            refuse_gap(self._state, bounds)
            return
        refuse_shorter_log(self._state, bounds)
        try:
            refuse_gap(self._state, bounds)
        except SeamGap as exc:
            log.warning("%s", exc)

    def _bounds(self, topic: str) -> dict[MessageQueue, Bounds]:
        async def lookup(cluster: Cluster) -> dict[MessageQueue, Bounds]:
            try:
                return await cluster.bounds(await cluster.queues([topic]))
            except RouteNotFound:
                return {}

        return ask(self._connection.connection(), lookup, patience=self._connection.patience)

    def _cluster_topics(self, pattern: str) -> list[str]:
        connection, patience = self._connection.connection(), self._connection.patience
        return ask(connection, lambda it: it.topics_matching(pattern), patience=patience)


def _value_column(settings: Settings) -> "Column":
    """Decode bodies as the source does: from_json turns a bad body into a struct of nulls."""
    kind = parse_ddl(settings.value_schema or "")

    def decode(bodies: pa.Array) -> pa.Array:
        return decode_values(bodies, kind)

    typed: Any = arrow_udf  # its overloads reject an inferred type
    made: Column = typed(decode, columns_of(settings)["value"].dataType)("body")
    return made
