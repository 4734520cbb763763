"""`replay`: messages of an archive, or dead letters of a list, sent again.

Messages go in chunks of whole minutes, one chunk after the other in the order of time, so that a
run that was stopped can be told where to go on.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, choice
from bolide.spark.pipelines.frames import as_table, chosen_by
from bolide.spark.pipelines.lists import read_list
from bolide.spark.pipelines.pairs import pairs
from bolide.spark.pipelines.replay_rows import (
    Chunk,
    archived,
    by_hour,
    by_minute,
    chunks,
    in_order,
    listed,
    outgoing,
    stored_between,
    with_target,
)
from bolide.spark.pipelines.spans import parse_moment
from bolide.spark.pipelines.work import Job, Outcome, Screen
from bolide.spark.sink_options import SinkOptions

_CHUNK = 100_000
_CHUNK_SECONDS = 30
_WORTH_A_TASK = 100.0
"""Rows a second below which one more task is not worth its while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Send messages of an archive again: by time and filter, at a chosen rate.

    Keys, tags and the users' own properties stay as they were, and so does the order in each
    queue; a property REPLAYED_FROM says where the first copy was. What is going to be sent is
    counted first; with `--dry-run` that is all.
    """

    archive: str | None = choice(
        "The archive, or other Parquet with its columns; without it a list of dead letters is"
        " needed, which are read from their topics.",
        default=None,
        metavar="PATH",
    )
    ids: str | None = choice(
        "Only messages of this list: what `dlq --redrive` wrote, or ids line by line (.txt).",
        default=None,
        metavar="PATH",
    )
    topic: str | None = choice("Only messages of these topics, commas between.", default=None)
    since: str | None = choice(
        "Only messages stored then or later: a time such as 2026-01-31T12:00:00Z, or -1d.",
        default=None,
    )
    until: str | None = choice("Only messages stored before that.", default=None)
    where: str | None = choice(
        "Only messages of which this SQL is true, such as \"tags = 'paid'\".", default=None
    )
    to: str | None = choice(
        "The topic to send to; else each goes where it came from.", default=None
    )
    to_name_server: str | None = choice(
        "NameServers of another cluster to send to.", default=None, metavar="ADDRESSES"
    )
    to_option: tuple[str, ...] = choice(
        "An option of the sink, KEY=VALUE; may be given often.", default=(), metavar="KEY=VALUE"
    )
    rate: float | None = choice("Messages a second, at most; else no limit.", default=None, low=0.1)
    dedup: bool = choice(
        "Key messages by where they came from: a topic with a dedup.window takes each once.",
        default=False,
    )
    dry_run: bool = choice("Only count what would be sent.", default=False)


def plan(options: ReplayOptions, run: RunSettings) -> Job:
    if options.archive is None and options.ids is None:
        raise ConfigError("replay needs --archive PATH, or --ids PATH with a list of dead letters")
    replay = Replay(
        options=options,
        settings=run,
        start=_moment(options.since, "since"),
        end=_moment(options.until, "until"),
    )
    replay.sink()  # what is wrong with it is said before anything is read
    origin, target = options.archive or options.ids, options.to or "their own topics"
    return Job(name=run.named("replay"), text=f"{origin} to {target}", run=replay.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    options: ReplayOptions
    settings: RunSettings
    start: datetime | None = None
    end: datetime | None = None

    def run(self, spark: SparkSession, screen: Screen) -> Outcome:
        minutes = by_minute(self._chosen(spark)).persist()
        try:
            counted = as_table("messages by hour", by_hour(minutes))
            parts = chunks(minutes, self._size)
        finally:
            minutes.unpersist()
        total = sum(chunk.messages for chunk in parts)
        missing = self._missing(spark, total)
        screen.say(f"{total:,} messages to send" + (f"; {missing}" if missing else ""))
        if self.options.dry_run:
            return Outcome((counted,), 0, missing)
        return self._send_all(spark, parts, screen, missing)

    @property
    def _size(self) -> int:
        """Messages of a chunk: about what is sent in half a minute."""
        rate = self.options.rate
        return _CHUNK if rate is None else min(_CHUNK, max(1, int(rate * _CHUNK_SECONDS)))

    # Sending

    def _send_all(
        self, spark: SparkSession, parts: list[Chunk], screen: Screen, missing: str | None
    ) -> Outcome:
        sent, total = 0, sum(chunk.messages for chunk in parts)
        screen.advance(0, total)
        for chunk in parts:
            if screen.stop_asked:
                return Outcome((), sent, f"stopped after {sent:,} of {total:,}: {_go_on(chunk)}")
            try:
                self._send(spark, chunk)
            except Exception:
                screen.say(f"{sent:,} of {total:,} messages are sent: {_go_on(chunk)}")
                raise
            sent += chunk.messages
            screen.advance(sent, total)
        return Outcome((), sent, missing)

    def _send(self, spark: SparkSession, chunk: Chunk) -> None:
        tasks = tasks_for(self.options.rate, spark.sparkContext.defaultParallelism)
        rows = outgoing(in_order(self._chosen(spark, chunk), tasks))
        rows.write.format("rocketmq").options(**self.sink(tasks)).mode("append").save()

    def sink(self, tasks: int = 1) -> dict[str, str]:
        """Options of the sink; raises ConfigError for those that cannot be used."""
        chosen = {"keepOrder": "true", "dedup": str(self.options.dedup).lower()}
        server = self.options.to_name_server
        chosen |= {"nameServer": server} if server else self.settings.connection
        if self.options.rate is not None:
            chosen["maxRowsPerMinute"] = str(max(1, int(60 * self.options.rate / tasks)))
        chosen |= pairs(self.options.to_option, option="--to-option")
        SinkOptions.of(chosen)
        return chosen

    # Choosing

    def _chosen(self, spark: SparkSession, chunk: Chunk | None = None) -> DataFrame:
        """What to send, of all times or of a chunk's."""
        start, end = self._times(chunk)
        if self.options.ids is None:
            return self._filtered(self._messages(spark, start, end))
        # Of copies the first is chosen, so all must be looked at whatever the chunk.
        found = self._filtered(self._messages(spark, self.start, self.end))
        return stored_between(listed(found, read_list(spark, self.options.ids)), start, end)

    def _times(self, chunk: Chunk | None) -> tuple[datetime | None, datetime | None]:
        """A chunk of whole minutes may begin before the first time asked for."""
        if chunk is None:
            return self.start, self.end
        start = max(chunk.start, self.start or chunk.start)
        return start, min(chunk.end, self.end or chunk.end)

    def _filtered(self, messages: DataFrame) -> DataFrame:
        found = with_target(messages, self.options.to)
        if self.options.topic is not None:
            names = [name.strip() for name in self.options.topic.split(",")]
            found = found.where(fn.col("topic").isin(names))
        if self.options.where is not None:
            found = chosen_by(found, self.options.where, option="where")
        return found

    def _messages(
        self, spark: SparkSession, start: datetime | None, end: datetime | None
    ) -> DataFrame:
        if self.options.archive is not None:
            return archived(spark, self.options.archive, start, end)
        return stored_between(self._dead(spark), start, end)

    def _dead(self, spark: SparkSession) -> DataFrame:
        """The dead letters of the topics that the list names, as they are now."""
        assert self.options.ids is not None
        ids = read_list(spark, self.options.ids)
        if "dead_topic" not in ids.columns:
            raise ConfigError(f"{self.options.ids} is no list of dead letters: give --archive too")
        topics = sorted(row[0] for row in ids.select("dead_topic").distinct().collect())
        source = self.settings.source(topic=",".join(topics))
        return spark.read.format(source.format).options(**source.options).load()

    def _missing(self, spark: SparkSession, found: int) -> str | None:
        """What a list names and is not there, unless filters may have left it out."""
        filters = (self.start, self.end, self.options.topic, self.options.where)
        if self.options.ids is None or any(each is not None for each in filters):
            return None
        ids = read_list(spark, self.options.ids)
        keys = [name for name in ("message_id", "origin_topic") if name in ids.columns]
        wanted = ids.select(*keys).distinct().count()
        return f"{wanted - found:,} of {wanted:,} listed are not there" if found < wanted else None


def tasks_for(rate: float | None, parallelism: int) -> int:
    """How many tasks to share a rate among, all of which must be able to run at once."""
    if rate is None:
        return parallelism
    return max(1, min(parallelism, int(rate / _WORTH_A_TASK)))


def _moment(text: str | None, option: str) -> datetime | None:
    return None if text is None else parse_moment(text, option=option)


def _go_on(chunk: Chunk) -> str:
    return f"go on with --since {chunk.start.astimezone(UTC).isoformat()}"


BUILT_IN = BuiltIn(
    "replay",
    ReplayOptions,
    plan,
    example="--archive /data/lake --topic orders --since -1d --dry-run",
)
