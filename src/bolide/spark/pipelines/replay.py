"""`replay`: sends messages of an archive, or dead letters of a list, again.

Messages are sent in slices of whole minutes, in order of store time, so that a stopped run can be
continued from the start of the first slice that was not sent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bolide.arrow.schema import message_schema
from bolide.errors import ConfigError
from bolide.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from bolide.model.properties import REPLAYED_FROM, PropertyName
from bolide.spark.archive.reading import read_archive
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option, parse_key_values
from bolide.spark.pipelines.dataframes import as_table, filter_by_sql, read_message_list
from bolide.spark.pipelines.dead_letters import LOCATION
from bolide.spark.pipelines.definition import Job, Outcome, Screen
from bolide.spark.pipelines.times import parse_moment
from bolide.spark.sink.options import SinkOptions

_SLICE_ROWS = 100_000
_SLICE_SECONDS = 30
_ROWS_PER_TASK = 100.0
"""Rows per second that justify one more task."""
_REQUIRED_COLUMNS = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Send messages of an archive again: by time and filter, at a chosen rate.

    Keys, tags and the users' own properties stay as they were, and so does the order in each
    queue; a property REPLAYED_FROM says where the first copy was. What is going to be sent is
    counted first; with `--dry-run` that is all.
    """

    archive: str | None = cli_option(
        "The archive, or other Parquet with its columns; without it a list of dead letters is"
        " needed, which are read from their topics.",
        default=None,
        metavar="PATH",
    )
    ids: str | None = cli_option(
        "Only messages of this list: what `dlq --redrive` wrote, or ids line by line (.txt).",
        default=None,
        metavar="PATH",
    )
    topic: str | None = cli_option("Only messages of these topics, commas between.", default=None)
    since: str | None = cli_option(
        "Only messages stored then or later: a time such as 2026-01-31T12:00:00Z, or -1d.",
        default=None,
    )
    until: str | None = cli_option("Only messages stored before that.", default=None)
    where: str | None = cli_option(
        "Only messages of which this SQL is true, such as \"tags = 'paid'\".", default=None
    )
    to: str | None = cli_option(
        "The topic to send to; else each goes where it came from.", default=None
    )
    to_name_server: str | None = cli_option(
        "NameServers of another cluster to send to.", default=None, metavar="ADDRESSES"
    )
    to_option: tuple[str, ...] = cli_option(
        "An option of the sink, KEY=VALUE; may be given often.", default=(), metavar="KEY=VALUE"
    )
    rate: float | None = cli_option(
        "Messages a second, at most; else no limit.", default=None, low=0.1
    )
    dedup: bool = cli_option(
        "Key messages by where they came from: a topic with a dedup.window takes each once.",
        default=False,
    )
    dry_run: bool = cli_option("Only count what would be sent.", default=False)


def plan(options: ReplayOptions, run: RunSettings) -> Job:
    if options.archive is None and options.ids is None:
        raise ConfigError("replay needs --archive PATH, or --ids PATH with a list of dead letters")
    replay = Replay(
        options=options,
        settings=run,
        start=_parse_bound(options.since, "since"),
        end=_parse_bound(options.until, "until"),
    )
    replay.sink()  # reports invalid options before any message is read
    origin, target = options.archive or options.ids, options.to or "their own topics"
    return Job(
        kind="replay", name=run.named("replay"), text=f"{origin} to {target}", run=replay.run
    )


class TimeSlice(NamedTuple):
    """Messages stored from `start` up to but excluding `end`."""

    start: datetime
    end: datetime
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    options: ReplayOptions
    settings: RunSettings
    start: datetime | None = None
    end: datetime | None = None

    def run(self, spark: SparkSession, screen: Screen) -> Outcome:
        minutes = by_minute(self._selected(spark)).persist()
        try:
            counted = as_table("messages by hour", by_hour(minutes))
            slices = time_slices(minutes, self._slice_size)
        finally:
            minutes.unpersist()
        total = sum(time_slice.messages for time_slice in slices)
        missing = self._missing(spark, total)
        screen.say(f"{total:,} messages to send" + (f"; {missing}" if missing else ""))
        if self.options.dry_run:
            return Outcome((counted,), 0, missing)
        return self._send_all(spark, slices, screen, missing)

    @property
    def _slice_size(self) -> int:
        """Messages per slice: about half a minute's worth at the chosen rate."""
        rate = self.options.rate
        return _SLICE_ROWS if rate is None else min(_SLICE_ROWS, max(1, int(rate * _SLICE_SECONDS)))

    # Sending

    def _send_all(
        self, spark: SparkSession, slices: list[TimeSlice], screen: Screen, missing: str | None
    ) -> Outcome:
        sent, total = 0, sum(time_slice.messages for time_slice in slices)
        screen.advance(0, total)
        for time_slice in slices:
            if screen.stop_requested:
                return Outcome(
                    (), sent, f"stopped after {sent:,} of {total:,}: {_resume_hint(time_slice)}"
                )
            try:
                self._send(spark, time_slice)
            except Exception:
                screen.say(f"{sent:,} of {total:,} messages are sent: {_resume_hint(time_slice)}")
                raise
            sent += time_slice.messages
            screen.advance(sent, total)
        return Outcome((), sent, missing)

    def _send(self, spark: SparkSession, time_slice: TimeSlice) -> None:
        tasks = tasks_for(self.options.rate, spark.sparkContext.defaultParallelism)
        rows = sink_rows(ordered_by_queue(self._selected(spark, time_slice), tasks))
        rows.write.format("rocketmq").options(**self.sink(tasks)).mode("append").save()

    def sink(self, tasks: int = 1) -> dict[str, str]:
        """Options of the sink. Raises ConfigError for invalid options."""
        chosen = {"keepOrder": "true", "dedup": str(self.options.dedup).lower()}
        server = self.options.to_name_server
        chosen |= {"nameServer": server} if server else self.settings.connection
        if self.options.rate is not None:
            chosen["maxRowsPerMinute"] = str(max(1, int(60 * self.options.rate / tasks)))
        chosen |= parse_key_values(self.options.to_option, option="--to-option")
        SinkOptions.of(chosen)
        return chosen

    # Selection

    def _selected(self, spark: SparkSession, time_slice: TimeSlice | None = None) -> DataFrame:
        """The messages to send, of all times or of one slice."""
        start, end = self._times(time_slice)
        if self.options.ids is None:
            return self._filtered(self._messages(spark, start, end))
        # The first of several copies is chosen, so the time slice must not hide the others.
        found = self._filtered(self._messages(spark, self.start, self.end))
        return stored_between(
            select_listed(found, read_message_list(spark, self.options.ids)), start, end
        )

    def _times(self, time_slice: TimeSlice | None) -> tuple[datetime | None, datetime | None]:
        """The bounds of a slice, whose whole minutes may exceed the requested times."""
        if time_slice is None:
            return self.start, self.end
        start = max(time_slice.start, self.start or time_slice.start)
        return start, min(time_slice.end, self.end or time_slice.end)

    def _filtered(self, messages: DataFrame) -> DataFrame:
        found = with_target(messages, self.options.to)
        if self.options.topic is not None:
            names = [name.strip() for name in self.options.topic.split(",")]
            found = found.where(fn.col("topic").isin(names))
        if self.options.where is not None:
            found = filter_by_sql(found, self.options.where, option="where")
        return found

    def _messages(
        self, spark: SparkSession, start: datetime | None, end: datetime | None
    ) -> DataFrame:
        if self.options.archive is not None:
            return read_messages(spark, self.options.archive, start, end)
        return stored_between(self._dead_letters(spark), start, end)

    def _dead_letters(self, spark: SparkSession) -> DataFrame:
        """The dead letters of the topics that the list names, as they are now."""
        assert self.options.ids is not None
        ids = read_message_list(spark, self.options.ids)
        if "dead_topic" not in ids.columns:
            raise ConfigError(f"{self.options.ids} is no list of dead letters: give --archive too")
        topics = sorted(row[0] for row in ids.select("dead_topic").distinct().collect())
        source = self.settings.source(topic=",".join(topics))
        return spark.read.format(source.format).options(**source.options).load()

    def _missing(self, spark: SparkSession, found: int) -> str | None:
        """Reports listed messages that were not found; None if filters may have excluded them."""
        filters = (self.start, self.end, self.options.topic, self.options.where)
        if self.options.ids is None or any(each is not None for each in filters):
            return None
        ids = read_message_list(spark, self.options.ids)
        keys = [name for name in ("message_id", "origin_topic") if name in ids.columns]
        wanted = ids.select(*keys).distinct().count()
        return f"{wanted - found:,} of {wanted:,} listed are not there" if found < wanted else None


def tasks_for(rate: float | None, parallelism: int) -> int:
    """The number of tasks that share the rate; all of them must run concurrently."""
    if rate is None:
        return parallelism
    return max(1, min(parallelism, int(rate / _ROWS_PER_TASK)))


def _parse_bound(text: str | None, option: str) -> datetime | None:
    return None if text is None else parse_moment(text, option=option)


def _resume_hint(time_slice: TimeSlice) -> str:
    return f"go on with --since {time_slice.start.astimezone(UTC).isoformat()}"


def read_messages(
    spark: SparkSession, path: str, start: datetime | None, end: datetime | None
) -> DataFrame:
    """Messages of an archive, or of other Parquet with its columns, by store time.

    Raises:
        ConfigError: columns are missing; names them.
    """
    if ArchiveTable.at(spark, path).exists:
        return read_archive(spark, path, start=start, end=end)
    found = spark.read.parquet(path)
    if missing := [name for name in _REQUIRED_COLUMNS if name not in found.columns]:
        raise ConfigError(f"{path} is no archive, and lacks the columns {', '.join(missing)}")
    # An explicit schema: inference would read a topic named 0123 as a number.
    columns = [*from_arrow_schema(message_schema()).fields, StructField("hour", StringType())]
    return stored_between(spark.read.schema(StructType(columns)).parquet(path), start, end)


def stored_between(messages: DataFrame, start: datetime | None, end: datetime | None) -> DataFrame:
    if start is not None:
        messages = messages.where(fn.col("store_timestamp") >= start)
    return messages if end is None else messages.where(fn.col("store_timestamp") < end)


def select_listed(messages: DataFrame, ids: DataFrame) -> DataFrame:
    """The messages of a list, each once however often it was stored.

    A list with locations selects dead letters by location. Other messages are selected by id,
    within `origin_topic` if the list has that column.
    """
    is_dead = fn.col("topic").startswith(DEAD_LETTER_PREFIX)
    by_id = _by_id(messages.where(~is_dead), ids)
    if "dead_topic" not in ids.columns:
        return _first_of_each(by_id)
    locations = ids.select(fn.col("dead_topic").alias("topic"), *LOCATION[1:]).distinct()
    by_location = messages.where(is_dead).join(locations, ["topic", *LOCATION[1:]], "left_semi")
    return _first_of_each(by_id.unionByName(by_location))


def with_target(messages: DataFrame, to: str | None) -> DataFrame:
    """Add `target`, the topic to send to; retries and dead letters go to their origin topic."""
    prefixes = (DEAD_LETTER_PREFIX, RETRY_PREFIX)
    is_returned = fn.col("topic").startswith(prefixes[0]) | fn.col("topic").startswith(prefixes[1])
    origin = fn.when(is_returned, fn.col("properties")[PropertyName.RETRY_TOPIC])
    own = fn.coalesce(origin, fn.col("topic"))
    return messages.withColumn("target", own if to is None else fn.lit(to))


def ordered_by_queue(messages: DataFrame, tasks: int) -> DataFrame:
    """Each queue in one task and in order; several queues of a task are merged by time."""
    queue = ["topic", "broker", "queue_id"]
    # Running maximum per queue: a broker's clock may have been set back.
    latest = fn.expr(
        f"max(store_timestamp) over (partition by {', '.join(queue)} order by queue_offset)"
    )
    gathered = messages.repartition(tasks, *queue).withColumn("_latest", latest)
    return gathered.sortWithinPartitions("_latest", *queue, "queue_offset").drop("_latest")


def sink_rows(messages: DataFrame) -> DataFrame:
    """The columns that the sink expects."""
    position = fn.expr("concat(topic, '/', broker, '/', queue_id, '@', queue_offset)")
    properties = fn.coalesce("properties", fn.expr("cast(map() as map<string,string>)"))
    others = fn.map_filter(properties, lambda name, _: name != REPLAYED_FROM)
    origin = fn.create_map(fn.lit(REPLAYED_FROM), position)
    return messages.select(
        fn.col("target").alias("topic"),
        "body",
        "keys",
        "tags",
        "flag",
        fn.map_concat(others, origin).alias("properties"),
        fn.col("topic").alias("source_topic"),
        fn.col("broker").alias("source_broker"),
        fn.col("queue_id").alias("source_queue_id"),
        fn.col("queue_offset").alias("source_queue_offset"),
    )


def by_minute(messages: DataFrame) -> DataFrame:
    minute = fn.date_trunc("minute", "store_timestamp").alias("minute")
    return messages.groupBy("topic", "target", minute).agg(
        fn.count("*").alias("messages"), fn.sum(fn.octet_length("body")).alias("bytes")
    )


def by_hour(minutes: DataFrame) -> DataFrame:
    """Counts per topic, target and hour."""
    hour = fn.date_format("minute", "yyyy-MM-dd HH:00").alias("hour")
    counted = minutes.groupBy("topic", "target", hour)
    sums = counted.agg(fn.sum("messages").alias("messages"), fn.sum("bytes").alias("bytes"))
    return sums.orderBy("hour", "topic", "target")


def time_slices(minutes: DataFrame, size: int) -> list[TimeSlice]:
    """Group consecutive minutes into slices of about `size` messages."""
    start = fn.unix_seconds("minute").alias("start")
    rows = minutes.groupBy(start).agg(fn.sum("messages").alias("messages")).orderBy("start")
    return [*iter_time_slices(rows.collect(), size)]


def iter_time_slices(minutes: Iterable[Any], size: int) -> Iterator[TimeSlice]:
    start, end, messages = None, None, 0
    for second, count in minutes:
        start = start or datetime.fromtimestamp(second, UTC)
        end = datetime.fromtimestamp(second, UTC) + timedelta(minutes=1)
        messages += count
        if messages >= size:
            yield TimeSlice(start, end, messages)
            start, messages = None, 0
    if start is not None and end is not None:
        yield TimeSlice(start, end, messages)


def _by_id(messages: DataFrame, ids: DataFrame) -> DataFrame:
    if "origin_topic" not in ids.columns:
        return messages.join(ids.select("message_id").distinct(), "message_id", "left_semi")
    wanted = ids.select("message_id", fn.col("origin_topic").alias("topic")).distinct()
    return messages.join(wanted, ["message_id", "topic"], "left_semi")


def _first_of_each(messages: DataFrame) -> DataFrame:
    """The first copy per id and target: a message may be dead for several groups."""
    number = fn.expr(
        "row_number() over (partition by message_id, target"
        " order by store_timestamp, topic, broker, queue_id, queue_offset)"
    )
    return messages.withColumn("_number", number).where("_number = 1").drop("_number")


BUILT_IN = BuiltIn(
    "replay",
    ReplayOptions,
    plan,
    example="--archive /data/lake --topic orders --since -1d --dry-run",
)
