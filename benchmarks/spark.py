"""Rows per second that Spark reads from a broker and its log, and writes to a broker.

Run as `make bench-spark`; prints Markdown, and with `--into` writes it into the marked part of a
page. The ceiling is a source that yields one prepared batch repeatedly, measured in the same run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.markdown import cell, publish
from benchmarks.processes import cpu_seconds, machine, stolen_seconds
from benchmarks.spark_loads import PER_TRIGGER, TOPIC, Run
from tests.support.cluster_process import ClusterProcess, cluster_process

COMMAND = "make bench-spark"
QUEUES = 4
TITLES = {
    "ready": "a prepared Arrow batch, repeated → count (the ceiling)",
    "count": "`rocketmq` → count",
    "parquet": "`rocketmq` → Parquet",
    "stream": f"`rocketmq` stream → Parquet, {PER_TRIGGER:,} per trigger",
    "sink": "Parquet → `rocketmq`",
    "commitlog": "`rocketmq-commitlog` → count",
    "loop": "a plain Python consumer loop, one queue → Parquet",
}


@dataclass
class Measured:
    """The runs of one size of body, by kernel."""

    size: int
    rows: int
    compiled: list[Run] = field(default_factory=list)
    plain: list[Run] = field(default_factory=list)


def main() -> None:
    options = _options()
    found = [_measure(size, options) for size in options.sizes]
    rounds = (
        f"{options.rows:,} messages with a key, a tag and 4 properties in {QUEUES} queues,"
        f" `local[2]`; medians of {options.rounds} alternating rounds (sink and loop: one run),"
        " minimum and maximum in brackets. Broker, driver and workers share the machine's cores."
    )
    head = [f"Measured with `{COMMAND}` on {machine()}.", "", rounds]
    tables = [line for each in found for line in _table(each)]
    publish("\n".join([*head, *tables]), COMMAND, options.into)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1))


def _measure(size: int, options: argparse.Namespace) -> Measured:
    found = Measured(size, options.rows)
    with tempfile.TemporaryDirectory() as home, cluster_process(Path(home)) as cluster:
        cluster.create_topic(TOPIC, QUEUES)
        (work := Path(home) / "work").mkdir()
        words = _words(cluster, work, size, options)
        loads = ["ready", "count", "parquet", "stream", "commitlog"]
        found.compiled = _driver([*loads, "--once", "sink", *words])
        found.plain = _driver(["ready", "commitlog", *words], kernel="python")
        found.compiled.append(_loop(cluster, work))
    return found


def _words(
    cluster: ClusterProcess, work: Path, size: int, options: argparse.Namespace
) -> list[str]:
    broker = cluster.brokers["broker-a"]
    words = ["--name-server", cluster.address, "--store", str(broker.directory / "store")]
    words += ["--directory", str(work), "--broker", str(broker.process.pid)]
    return [
        *words, "--rows", str(options.rows), "--size", str(size), "--rounds", str(options.rounds)
    ]  # fmt: skip


def _driver(words: list[str], kernel: str = "") -> list[Run]:
    environment = os.environ | {"BOLIDE_KERNEL": kernel, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "benchmarks.spark_loads", *words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [Run(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def _loop(cluster: ClusterProcess, work: Path) -> Run:
    broker = cluster.brokers["broker-a"].process.pid
    command = [sys.executable, "-m", "benchmarks.plain_loop", cluster.address, TOPIC, str(work)]
    began, before = time.perf_counter(), (cpu_seconds(broker), os.times(), stolen_seconds())
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, after = time.perf_counter() - began, os.times()
    rows = int(done.stdout)
    cpu = after.children_user + after.children_system
    cpu -= before[1].children_user + before[1].children_system
    broker_cpu, stolen = cpu_seconds(broker) - before[0], stolen_seconds() - before[2]
    return Run("loop", rows, seconds, cpu, broker_cpu, stolen)


def _table(found: Measured) -> list[str]:
    lines = ["", f"### Spark, bodies of {found.size:,} bytes", ""]
    lines += ["| | rows/s | of the ceiling | CPU µs/row | broker CPU µs/row | broker, cores |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    lines += _rows(found.compiled, "")
    return lines + _rows(found.plain, ", plain-Python kernel")


def _rows(runs: list[Run], note: str) -> list[str]:
    by_load: dict[str, list[Run]] = {}
    for run in runs:
        by_load.setdefault(run.load, []).append(run)
    ceiling = median([run.rows / run.seconds for run in by_load["ready"]])
    return [_row(TITLES[load] + note, by_load[load], ceiling) for load in TITLES if load in by_load]


def _row(title: str, runs: list[Run], ceiling: float) -> str:
    rates = [run.rows / run.seconds for run in runs]
    cells = [
        cell(rates),
        f"{median(rates) / ceiling:.0%}",
        cell([run.cpu / run.rows * 1e6 for run in runs], 2),
        cell([run.broker_cpu / run.rows * 1e6 for run in runs], 2),
        cell([run.broker_cpu / run.seconds for run in runs], 2),
    ]
    return f"| {title} | " + " | ".join(cells) + " |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path, help="page whose marked part is replaced")
    parser.add_argument("--json", type=Path, help="file for every run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
