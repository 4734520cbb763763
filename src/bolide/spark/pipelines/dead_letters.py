"""`dlq`: dead letters by cause and time, and a list of them that `replay --ids` sends again.

RocketMQ stores no reason with a dead letter. Its properties give the origin topic (RETRY_TOPIC) and
the first message id (ORIGIN_MESSAGE_ID); the delivery count is a field of its own. A consumer that
knows the cause can store it in a property before it gives up.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from bolide.arrow.cluster import Cluster, ask
from bolide.client.errors import RouteNotFound
from bolide.errors import BolideError
from bolide.model.names import DEAD_LETTER_PREFIX, dead_letter_topic
from bolide.model.properties import CAUSE_PROPERTIES, PropertyName
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option
from bolide.spark.pipelines.dataframes import as_table, filter_by_sql, write_message_list
from bolide.spark.pipelines.definition import Job, Outcome, Screen
from bolide.spark.pipelines.times import parse_duration

_ALL_GROUPS = f"{DEAD_LETTER_PREFIX}.*"
LOCATION: Final = ("dead_topic", "broker", "queue_id", "queue_offset")
"""Columns that locate a dead letter."""
_LONGEST_CAUSE = 200


class NotReadable(BolideError):
    """Brokers before 4.9.2 create dead-letter topics without read permission."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} may not be read: allow it with"
            f" `bolide admin updateTopicPerm -c CLUSTER -t {topic} -p 6`"
        )
        self.topic = topic


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqOptions:
    """Group the dead letters of consumer groups by what is known of their cause, and by time.

    With `--redrive` a list of them is written that `replay --ids` takes to send them again.
    """

    group: tuple[str, ...] = cli_option(
        "A consumer group; may be given often; else all.", default=()
    )
    since: str = cli_option(
        "Where to begin: earliest, a time such as 2026-01-31T12:00:00Z, or -1d.", default="earliest"
    )
    until: str = cli_option("Where to end, in the same forms.", default="latest")
    where: str | None = cli_option(
        "Only these, as SQL over the columns of the list, such as \"cause like '%timeout%'\".",
        default=None,
    )
    window: str = cli_option("Over how long to count, such as 10m or 1h.", default="1h")
    cause_property: tuple[str, ...] = cli_option(
        "A property in which consumers say why they failed; may be given often.", default=()
    )
    redrive: str | None = cli_option(
        "Write the list there: one file if it ends in .jsonl, else Parquet.",
        default=None,
        metavar="PATH",
    )


def plan(options: DlqOptions, run: RunSettings) -> Job:
    groups = ", ".join(options.group) or "all groups"
    report = DeadLetterReport(options, run, parse_duration(options.window, option="window"))
    return Job(
        kind="dlq",
        name=run.named("dlq"),
        text=f"dead letters of {groups}",
        run=report.run,
    )


@dataclass(frozen=True, slots=True)
class DeadLetterReport:
    options: DlqOptions
    settings: RunSettings
    window: float

    def run(self, spark: SparkSession, screen: Screen) -> Outcome:
        topics = ask(self.settings.connect(), self._topics)
        if not topics:
            screen.say("there are no dead letters")
            return Outcome()
        found = self._selected(spark, topics).persist()
        try:
            total = found.count()
            screen.advance(total, total)
            if self.options.redrive:
                write_message_list(redrive_list(found), self.options.redrive)
                screen.say(f"{total} dead letters are listed in {self.options.redrive}")
            return Outcome(
                (
                    as_table("causes", count_by_cause(found)),
                    as_table("dead letters by time", count_by_time(found, self.window)),
                ),
                total,
            )
        finally:
            found.unpersist()

    async def _topics(self, cluster: Cluster) -> list[str]:
        """Raises NotReadable."""
        names = [re.escape(dead_letter_topic(group)) for group in self.options.group]
        topics = await cluster.topics_matching("|".join(names) or _ALL_GROUPS)
        for topic in topics:
            try:
                await cluster.queues([topic])
            except RouteNotFound as exc:
                raise NotReadable(topic) from exc
        return topics

    def _selected(self, spark: SparkSession, topics: list[str]) -> DataFrame:
        source = self.settings.source(
            topic=",".join(topics),
            startingOffsets=self.options.since,
            endingOffsets=self.options.until,
        )
        messages = spark.read.format(source.format).options(**source.options).load()
        found = to_dead_letters(messages, self.options.cause_property)
        where = self.options.where
        return found if where is None else filter_by_sql(found, where, option="where")


def to_dead_letters(messages: DataFrame, cause_properties: Iterable[str] = ()) -> DataFrame:
    """One row per dead letter, from messages of %DLQ% topics read by the source `rocketmq`."""
    return messages.select(
        fn.expr(f"substring(topic, {len(DEAD_LETTER_PREFIX) + 1})").alias("group_name"),
        _first_property(PropertyName.DEAD_LETTER_ORIGIN_TOPIC, PropertyName.RETRY_TOPIC).alias(
            "origin_topic"
        ),
        "message_id",
        _first_property(
            PropertyName.DEAD_LETTER_ORIGIN_MESSAGE_ID, PropertyName.ORIGIN_MESSAGE_ID
        ).alias("origin_message_id"),
        "keys",
        "tags",
        fn.col("reconsume_times").alias("tries"),
        "born_timestamp",
        fn.col("store_timestamp").alias("died"),
        _cause([*cause_properties, *CAUSE_PROPERTIES]).alias("cause"),
        fn.col("topic").alias("dead_topic"),
        "broker",
        "queue_id",
        "queue_offset",
    )


def count_by_cause(found: DataFrame) -> DataFrame:
    """Dead letters by cause, most frequent first; causes that differ only in numbers are merged."""
    alike = found.withColumn("cause", _without_numbers(fn.col("cause")))
    grouped = alike.groupBy("group_name", "origin_topic", "tags", "cause").agg(
        fn.count("*").alias("messages"),
        fn.min("died").alias("first"),
        fn.max("died").alias("last"),
        fn.min_by("message_id", "died").alias("such_as"),
    )
    return grouped.orderBy(fn.desc("messages"), "group_name", "origin_topic", "tags", "cause")


def count_by_time(found: DataFrame, width: float) -> DataFrame:
    """Dead letters per group and window of `width` seconds."""
    window = fn.window("died", f"{width} seconds")["start"].alias("window_start")
    counted = found.groupBy(window, "group_name").agg(fn.count("*").alias("messages"))
    return counted.orderBy("window_start", "group_name")


def redrive_list(found: DataFrame) -> DataFrame:
    """Ordered dead letters, with the columns that `replay` needs to find them."""
    return found.orderBy(*LOCATION)


def _first_property(*names: str) -> Column:
    return fn.coalesce(*(fn.col("properties")[name] for name in names))


def _cause(names: Iterable[str]) -> Column:
    said = fn.substring(_first_property(*names), 1, _LONGEST_CAUSE)
    tried = fn.when(fn.col("reconsume_times") <= 1, "given up at the first try").otherwise(
        fn.concat(fn.lit("given up after "), fn.col("reconsume_times"), fn.lit(" tries"))
    )
    return fn.coalesce(said, tried)


def _without_numbers(text: Column) -> Column:
    """`order 4711 at 0x7f3a` and `order 4712 at 0x7f3b` have the same cause."""
    hexadecimal = r"\b(0[xX][0-9a-fA-F]+|[0-9a-fA-F]{16,})\b"
    plain = fn.regexp_replace(text, hexadecimal, "#")
    kept = fn.col("cause").startswith("given up after ")
    return fn.when(kept, text).otherwise(fn.regexp_replace(plain, r"\d+", "#"))


BUILT_IN = BuiltIn("dlq", DlqOptions, plan, example="--group orders-service --redrive again.jsonl")
