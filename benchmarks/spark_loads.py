"""The loads that run inside one Spark driver; `benchmarks.spark` starts it and makes the tables.

Prints a JSON line for each run of each load. CPU time is that of the driver's whole process tree,
including the JVM and the Python workers.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.processes import cpu_seconds, stolen_seconds, tree_cpu_seconds
from benchmarks.ready_source import ReadySource

TOPIC = "SparkBench"
PER_TRIGGER = 500_000
Load = Callable[[], int]


@dataclass(frozen=True)
class Run:
    """One run of one load."""

    load: str
    rows: int
    seconds: float
    cpu: float
    broker_cpu: float
    stolen: float


class Loads:
    """All loads by name; each returns the number of rows that it moved."""

    def __init__(self, spark: SparkSession, options: argparse.Namespace) -> None:
        self._spark = spark
        self._options = options
        self._written = options.directory / "written"

    def named(self, name: str) -> Load:
        found: dict[str, Load] = {
            "ready": partial(self._count, self._ready),
            "sink": self._sink,
            "count": partial(self._count, self._topic),
            "parquet": partial(self._parquet, self._topic),
            "stream": self._stream,
            "commitlog": partial(self._count, self._commit_log),
        }
        return found[name]

    def _ready(self) -> DataFrame:
        read = self._spark.read.format("ready").option("rows", str(self._options.rows))
        return read.option("size", str(self._options.size)).load()

    def _topic(self) -> DataFrame:
        read = self._spark.read.format("rocketmq").option("topic", TOPIC)
        return read.option("nameServer", self._options.name_server).load()

    def _commit_log(self) -> DataFrame:
        read = self._spark.read.format("rocketmq-commitlog").option("topic", TOPIC)
        return read.option("path", str(self._options.store)).load()

    def _count(self, frame: Callable[[], DataFrame]) -> int:
        return frame().count()

    def _parquet(self, frame: Callable[[], DataFrame]) -> int:
        shutil.rmtree(self._written, ignore_errors=True)
        frame().write.parquet(str(self._written))
        return int(self._options.rows)

    def _stream(self) -> int:
        place = self._options.directory / "stream"
        shutil.rmtree(place, ignore_errors=True)
        read = self._spark.readStream.format("rocketmq").option("topic", TOPIC)
        read = read.option("nameServer", self._options.name_server)
        read = read.option("startingOffsets", "earliest")
        frame = read.option("maxOffsetsPerTrigger", str(PER_TRIGGER)).load()
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(place / "table"))
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(int(progress.numInputRows) for progress in query.recentProgress)

    def _sink(self) -> int:
        frame = self._spark.read.parquet(str(self._options.directory / "input"))
        write = frame.write.format("rocketmq").option("nameServer", self._options.name_server)
        write.option("topic", TOPIC).mode("append").save()
        return int(self._options.rows)


def prepare(spark: SparkSession, options: argparse.Namespace) -> None:
    """Write the rows that the sink sends, each with a key, a tag and four properties."""
    pairs = ", ".join(f"'name{number}', concat('value', id % 1000)" for number in range(4))
    rows = spark.range(0, options.rows, 1, 4).selectExpr(
        f"cast(rpad(cast(id as string), {options.size}, 'x') as binary) as body",
        "concat('key', id) as keys",
        "'TagA' as tags",
        f"map({pairs}) as properties",
    )
    rows.write.mode("overwrite").parquet(str(options.directory / "input"))


def measured(name: str, load: Load, broker: int) -> Run:
    before = tree_cpu_seconds(os.getpid()), cpu_seconds(broker), stolen_seconds()
    began = time.perf_counter()
    rows = load()
    seconds = time.perf_counter() - began
    after = tree_cpu_seconds(os.getpid()), cpu_seconds(broker), stolen_seconds()
    cpu, broker_cpu, stolen = (end - start for start, end in zip(before, after, strict=True))
    return Run(name, rows, seconds, cpu, broker_cpu, stolen)


def main() -> None:
    options = _options()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(ReadySource)
    loads = Loads(spark, options)
    if "sink" in options.once:
        prepare(spark, options)
    loads.named("ready")()
    for name in options.once:
        print(json.dumps(asdict(measured(name, loads.named(name), options.broker))), flush=True)
    for _ in range(options.rounds):
        for name in options.loads:
            run = measured(name, loads.named(name), options.broker)
            if run.rows != options.rows:
                raise SystemExit(f"{name} moved {run.rows} rows, not {options.rows}")
            print(json.dumps(asdict(run)), flush=True)
    spark.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_loads", description=__doc__)
    parser.add_argument("loads", nargs="+", help="measured in alternation, `--rounds` times")
    parser.add_argument("--once", action="append", default=[], help="a load measured once, first")
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--broker", type=int, required=True, help="process id")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
