"""`dlq`: dead letters by cause and time, and a list of them that `replay --ids` sends again."""

import re
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from bolide.arrow.cluster import Cluster, ask
from bolide.client.errors import RouteNotFound
from bolide.errors import BolideError
from bolide.model.names import DEAD_LETTER_PREFIX, dead_letter_topic
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, choice
from bolide.spark.pipelines.frames import as_table, chosen_by
from bolide.spark.pipelines.letters import by_time, causes, letters, redrive_list
from bolide.spark.pipelines.lists import write_list
from bolide.spark.pipelines.spans import parse_span
from bolide.spark.pipelines.work import Job, Outcome, Screen

_ALL_GROUPS = f"{DEAD_LETTER_PREFIX}.*"


class NotReadable(BolideError):
    """Brokers before 4.9.2 let nobody read dead letters until they are told to."""

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

    group: tuple[str, ...] = choice("A consumer group; may be given often; else all.", default=())
    since: str = choice(
        "Where to begin: earliest, a time such as 2026-01-31T12:00:00Z, or -1d.", default="earliest"
    )
    until: str = choice("Where to end, in the same forms.", default="latest")
    where: str | None = choice(
        "Only these, as SQL over the columns of the list, such as \"cause like '%timeout%'\".",
        default=None,
    )
    window: str = choice("Over how long to count, such as 10m or 1h.", default="1h")
    cause_property: tuple[str, ...] = choice(
        "A property in which consumers say why they failed; may be given often.", default=()
    )
    redrive: str | None = choice(
        "Write the list there: one file if it ends in .jsonl, else Parquet.",
        default=None,
        metavar="PATH",
    )


def plan(options: DlqOptions, run: RunSettings) -> Job:
    groups = ", ".join(options.group) or "all groups"
    report = Report(options, run, parse_span(options.window, option="window"))
    return Job(name=run.named("dlq"), text=f"dead letters of {groups}", run=report.run)


@dataclass(frozen=True, slots=True)
class Report:
    options: DlqOptions
    settings: RunSettings
    window: float

    def run(self, spark: SparkSession, screen: Screen) -> Outcome:
        topics = ask(self.settings.connect(), self._topics)
        if not topics:
            screen.say("there are no dead letters")
            return Outcome()
        found = self._chosen(spark, topics).persist()
        try:
            total = found.count()
            screen.advance(total, total)
            if self.options.redrive:
                write_list(redrive_list(found), self.options.redrive)
                screen.say(f"{total} dead letters are listed in {self.options.redrive}")
            return Outcome(
                (
                    as_table("causes", causes(found)),
                    as_table("dead letters by time", by_time(found, self.window)),
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

    def _chosen(self, spark: SparkSession, topics: list[str]) -> DataFrame:
        source = self.settings.source(
            topic=",".join(topics),
            startingOffsets=self.options.since,
            endingOffsets=self.options.until,
        )
        messages = spark.read.format(source.format).options(**source.options).load()
        found = letters(messages, self.options.cause_property)
        where = self.options.where
        return found if where is None else chosen_by(found, where, option="where")


BUILT_IN = BuiltIn("dlq", DlqOptions, plan, example="--group orders-service --redrive again.jsonl")
