"""Archives made by tests, and what is in them by each kind of reader."""

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import DataFrame, SparkSession

from bolide.spark.archive import read_archive
from bolide.spark.pipelines import archive, compact, reconcile, runner
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.definition import Outcome
from tests.support.cluster_process import ClusterProcess

Place = tuple[str, str, int, int, bytes]


class Archive:
    """One archive of one cluster, run in this process."""

    def __init__(self, spark: SparkSession, cluster: ClusterProcess, path: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self.path = path
        self._run = RunSettings(name_server=cluster.address, once=True)

    def at(self, path: Path) -> "Archive":
        return Archive(self._spark, self._cluster, path)

    def add(self, topic: str, **options: Any) -> Outcome:
        chosen = archive.ArchiveOptions(path=str(self.path), topic=topic, **options)
        return runner.run(archive.plan(chosen, self._run), self._spark, None)

    def compact(self, **options: Any) -> Outcome:
        chosen = compact.CompactOptions(path=str(self.path), **options)
        return runner.run(compact.plan(chosen, self._run), self._spark, None)

    def reconcile(self, **options: Any) -> Outcome:
        chosen = reconcile.ReconcileOptions(path=str(self.path), **options)
        return runner.run(reconcile.plan(chosen, self._run), self._spark, None)

    def files(self) -> list[Path]:
        return sorted(self.path.glob("topic=*/hour=*/*.parquet"))

    def check(self, expected: Counter[Place]) -> None:
        """By the manifest, by Spark's reader of directories and by DuckDB: each row once."""
        assert places(read_archive(self._spark, str(self.path))) == expected
        schema = "topic string, broker string, queue_id int, queue_offset bigint, body binary"
        assert places(self._spark.read.schema(schema).parquet(str(self.path))) == expected
        query = f"""select topic, broker, queue_id, queue_offset, body from read_parquet(
            '{self.path}/topic=*/hour=*/*.parquet', hive_partitioning = true)"""
        assert Counter(duckdb.connect().execute(query).fetchall()) == expected


def places(frame: DataFrame) -> Counter[Place]:
    found = frame.select("topic", "broker", "queue_id", "queue_offset", "body").collect()
    return Counter((*row[:4], bytes(row.body)) for row in found)
