"""The archive pipeline on a cluster of its own: two workers that have no package, one killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from bolide.spark.bundle import write_bundle
from tests.support.cluster_process import ClusterProcess
from tests.support.commands import COMMANDS
from tests.support.spark_cluster import StandaloneCluster, standalone_cluster

TOPIC = "Carried"
COUNT = 60_000
BATCH = 6_000
PATIENCE = 240.0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_archive_on_two_workers_survives_the_loss_of_one(
    own_cluster: ClusterProcess, tmp_path: Path
) -> None:
    own_cluster.create_topic(TOPIC, 4)
    own_cluster.fill(TOPIC, COUNT)
    bundle = write_bundle(tmp_path / "bundle.tar.gz")
    table = tmp_path / "table"
    with standalone_cluster(tmp_path / "spark") as spark:
        run = _start(own_cluster, spark, table, bundle)
        try:
            _wait_for_commits(run, table, 2)
            victim = spark.workers.pop()
            executors = _children(victim.pid)
            assert executors, "the worker has no executor: the run does not use it"
            victim.kill()
            for executor in executors:  # the JVM of a worker leaves them behind
                os.kill(executor, signal.SIGKILL)
            output, _ = run.communicate(timeout=PATIENCE)
        finally:
            run.kill()
    assert run.returncode == 0, output
    query = f"""select count(*), count(distinct (queue_id, queue_offset)), min(c), max(c) from (
        select *, count(*) over (partition by queue_id, queue_offset) c
        from read_parquet('{table}/topic=*/hour=*/*.parquet'))"""
    assert duckdb.connect().execute(query).fetchone() == (COUNT, COUNT, 1, 1)


def _start(
    cluster: ClusterProcess, spark: StandaloneCluster, table: Path, bundle: Path
) -> "subprocess.Popen[str]":
    words = ["pipeline", "run", "archive", "--topic", TOPIC, "--path", str(table), "--once"]
    words += ["-n", cluster.address, "--batch-rows", str(BATCH), "--master", spark.master]
    words += ["--ship", str(bundle), "--conf", "spark.executor.memory=600m"]
    words += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.cores.max=2"]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        [str(COMMANDS / "bolide"), *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _wait_for_commits(run: "subprocess.Popen[str]", table: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(list((table / "_bolide" / "commits").glob("*.json"))) < count:
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < deadline, "the archive takes no batch"
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]
