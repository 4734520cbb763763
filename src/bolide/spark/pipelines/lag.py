"""`lag`: samples the positions of consumer groups, and forecasts when each has caught up.

    PATH/samples/     every sampled position of every group, as Parquet

With a path the samples are kept: a later run continues from them, and queries can look back.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from bolide.admin.client import AdminClient
from bolide.admin.groups import group_of
from bolide.admin.servers import gather_by_key
from bolide.arrow.cluster import Connection
from bolide.arrow.schema import TIMESTAMP
from bolide.errors import BolideError
from bolide.model.names import RETRY_PREFIX, SYSTEM_GROUP_PREFIX, TOOLS_GROUP
from bolide.protocol.bodies.stats import ConsumeStats
from bolide.spark.archive.files import files_at
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option
from bolide.spark.pipelines.definition import Job, Outcome, Screen, Table
from bolide.spark.pipelines.lag_forecast import forecast, trend_text
from bolide.spark.pipelines.times import parse_duration

_POLL_INTERVAL = 0.1
_COLUMNS = ("group_name", "topic", "lag", "in_rate", "out_rate", "forecast")
SCHEMA: Final = pa.schema([
    pa.field("taken", TIMESTAMP),
    pa.field("group_name", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("broker", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("end_offset", pa.int64()),
    pa.field("committed_offset", pa.int64()),
])  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """Look at the positions of consumer groups, and forecast when their lag is gone.

    Looks every 10 seconds (`--every`) until it is stopped; with `--once` just long enough to tell
    speeds. Consumers commit every 5 seconds: shorter intervals see less than they promise.
    """

    group: tuple[str, ...] = cli_option(
        "A consumer group; may be given often; else all.", default=()
    )
    window: str = cli_option("Over how long speeds are taken, such as 5m.", default="5m")
    path: str | None = cli_option(
        "Keep all samples there, as Parquet.", default=None, metavar="PATH"
    )
    report_topic: str | None = cli_option(
        "Send each forecast there too, as JSON with the group as its key.", default=None
    )


def plan(options: LagOptions, run: RunSettings) -> Job:
    name = run.named("lag")
    monitor = LagMonitor(
        sampler=Sampler(run.connect(), options.group),
        interval=(run.trigger and run.trigger.interval) or 10.0,
        window=parse_duration(options.window, option="window"),
        path=options.path,
        report=run.connection | {"topic": options.report_topic} if options.report_topic else None,
        once=run.once,
    )
    groups = ", ".join(options.group) or "all groups"
    return Job(
        kind="lag", name=name, text=f"lag of {groups} every {monitor.interval:g} s", run=monitor.run
    )


class GroupPosition(NamedTuple):
    """The position of a group in a queue at some time, and the end of the queue."""

    taken: datetime
    group_name: str
    topic: str
    broker: str
    queue_id: int
    end_offset: int
    committed_offset: int


def to_table(positions: Iterable[GroupPosition]) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in positions], schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples the positions of some groups, or of all but system groups."""

    connection: Connection
    groups: tuple[str, ...] = ()

    async def sample(self) -> list[GroupPosition]:
        """The current positions, read nearly simultaneously.

        Raises:
            BolideError: no NameServer or no broker answers.
        """
        async with self._admin() as admin:
            taken = datetime.now(UTC)
            targets = [
                (address, group)
                for address in await _masters(admin)
                for group in await self._groups_of(admin, address)
            ]
            found = await gather_by_key(targets, lambda pair: _stats(admin, *pair))
        return [
            position
            for (_, group), stats in found.items()
            for position in _positions(taken, group, stats)
        ]

    def _admin(self) -> AdminClient:
        to = self.connection
        return AdminClient(
            to.name_server,
            timeout=to.call_timeout,
            access_key=to.access_key,
            secret_key=to.secret_key,
            tls=to.tls,
        )

    async def _groups_of(self, admin: AdminClient, address: str) -> Sequence[str]:
        """The groups that a broker knows, by configuration or by their retry topics."""
        if self.groups:
            return self.groups
        known = set((await admin.groups.configs(address)).subscription_group_table)
        topics = (await admin.topics.configs(address)).topic_config_table
        known |= {group_of(topic) for topic in topics if topic.startswith(RETRY_PREFIX)}
        return sorted(group for group in known if not _is_system_group(group))


@dataclass(slots=True, kw_only=True)
class LagMonitor:
    """Samples positions, keeps those of the last window, and reports forecasts."""

    sampler: Sampler
    interval: float
    window: float
    path: str | None = None
    report: dict[str, str] | None = field(default=None, repr=False)
    once: bool = False
    _samples: pa.Table = field(default_factory=SCHEMA.empty_table)
    _warned: bool = False

    def run(self, spark: SparkSession, screen: Screen) -> Outcome:
        self._load_recent(spark)
        taken = 0
        table = Table("lag", (), ())
        while not screen.stop_requested:
            started = time.monotonic()
            taken += self._sample(spark, screen)
            table = self._report(spark)
            if self.once and self._can_forecast():
                break
            if not self.once:
                screen.show(table)
            screen.advance(taken)
            _wait(started + self.interval, screen)
        return Outcome((table,) if self.once else (), taken)

    def _sample(self, spark: SparkSession, screen: Screen) -> int:
        """Take a sample; returns its size. An unreachable cluster is reported once and retried."""
        try:
            found = to_table(asyncio.run(self.sampler.sample()))
        except BolideError as exc:
            if self.once:
                raise
            if not self._warned:
                screen.say(f"no sample now: {exc}")
            self._warned = True
            return 0
        self._warned = False
        self._samples = _recent(pa.concat_tables([self._samples, found]), self.window)
        if self.path and len(found):
            written = spark.createDataFrame(found).coalesce(1).write
            written.mode("append").parquet(f"{self.path}/samples")
        return len(found)

    def _load_recent(self, spark: SparkSession) -> None:
        """Load the samples of earlier runs that lie within the window."""
        if self.path and files_at(spark, self.path).names("samples"):
            since = datetime.now(UTC) - timedelta(seconds=self.window)
            self._samples = samples_at(spark, self.path).where(fn.col("taken") >= since).toArrow()
            self._samples = self._samples.cast(SCHEMA)

    def _can_forecast(self) -> bool:
        return len(set(self._samples.column("taken").to_pylist())) > 1 or not len(self._samples)

    def _report(self, spark: SparkSession) -> Table:
        forecasts = forecast(spark.createDataFrame(self._samples))
        if self.report is not None:
            _send(forecasts, self.report)
        rows = forecasts.orderBy(fn.desc("lag"), "group_name", "topic").collect()
        return Table("lag", _COLUMNS, _cells(rows))


def samples_at(spark: SparkSession, path: str) -> DataFrame:
    """All samples kept at a path; `lag_forecast.by_window` evaluates them over time."""
    return spark.read.schema(from_arrow_schema(SCHEMA)).parquet(f"{path}/samples")


def _recent(samples: pa.Table, window: float) -> pa.Table:
    oldest = datetime.now(UTC) - timedelta(seconds=window)
    return samples.filter(pa.compute.greater_equal(samples.column("taken"), pa.scalar(oldest)))


def _cells(rows: Iterable[Any]) -> list[list[object]]:
    return [
        [
            row.group_name,
            row.topic,
            row.lag,
            _rounded(row.in_rate),
            _rounded(row.out_rate),
            trend_text(row.lag, row.in_rate, row.out_rate, row.trend),
        ]
        for row in rows
    ]


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _send(forecasts: DataFrame, options: dict[str, str]) -> None:
    rows = forecasts.select(
        fn.to_json(fn.struct("*")).alias("body"), fn.col("group_name").alias("keys")
    )
    rows.coalesce(1).write.format("rocketmq").options(**options).mode("append").save()


def _wait(until: float, screen: Screen) -> None:
    while not screen.stop_requested and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_INTERVAL))


async def _masters(admin: AdminClient) -> list[str]:
    clusters = (await admin.clusters.info()).cluster_addr_table
    found = [await admin.clusters.masters(cluster) for cluster in sorted(clusters)]
    return [address for masters in found for address in masters]


async def _stats(admin: AdminClient, address: str, group: str) -> ConsumeStats:
    try:
        return await admin.offsets.progress_at(address, group)
    except BolideError:  # the broker does not know the group, or is away
        return ConsumeStats()


def _positions(taken: datetime, group: str, stats: ConsumeStats) -> Iterator[GroupPosition]:
    for queue, progress in sorted(stats.offset_table.items()):
        ends = progress.broker_offset, progress.consumer_offset
        yield GroupPosition(taken, group, queue.topic, queue.broker_name, queue.queue_id, *ends)


def _is_system_group(group: str) -> bool:
    return group.startswith(SYSTEM_GROUP_PREFIX) or group == TOOLS_GROUP


BUILT_IN = BuiltIn("lag", LagOptions, plan, example="--group orders-service")
