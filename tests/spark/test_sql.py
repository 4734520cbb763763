"""SQL whose tables are topics, from a session and from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from bolide import Message
from bolide.spark.sql import query
from bolide.spark.view import UnknownTopic, Views
from tests.spark.archives import Archive
from tests.support.cluster_process import ClusterProcess

INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector"  # Spark's, from its JVM
MIDNIGHT = "2026-07-01 00:00:00"
COMMAND = Path(sys.executable).with_name("bolide")


@pytest.fixture(scope="module")
def asked(cluster: ClusterProcess) -> ClusterProcess:
    """A cluster with two topics to ask."""
    cluster.create_topic("sql-orders", 2)
    cluster.create_topic("SqlClients", 1)
    cluster.send(
        Message("sql-orders", json.dumps({"id": n, "client": n % 2}).encode(), tags=f"t{n % 2}")
        for n in range(10)
    )
    cluster.send(Message("SqlClients", name, keys=str(n)) for n, name in enumerate([b"A", b"\xff"]))
    return cluster


def test_a_query_names_topics(spark: SparkSession, asked: ClusterProcess) -> None:
    views = Views(spark, name_server=asked.address)
    joined = query(
        spark,
        "select c.keys, count(*) from `sql-orders` o join sqlclients c"
        " on o.value.client = cast(c.keys as int) where o.tags like 't%' group by 1 order by 1",
        views,
        value_schemas={"sql-orders": "id bigint, client int"},
    )
    assert [tuple(row) for row in joined.collect()] == [("0", 5), ("1", 5)]

    with pytest.raises(UnknownTopic, match="did you mean sql-orders"):
        query(spark, "select * from `sql-order`", views)
    with pytest.raises(UnknownTopic, match=r"no topic 'sql\.orders'"):
        query(spark, "select * from sql.orders", views)
    assert query(spark, "select * from TBW102", views).count() == 0  # a topic of the system
    with pytest.raises(AnalysisException, match="no_such_column"):
        query(spark, "select no_such_column from `sql-orders`", views)

    # Each query looks anew.
    asked.send([Message("SqlClients", b"C", keys="2")])
    assert query(spark, "select * from SqlClients", views).count() == 3


def test_the_command_asks_archive_and_log(
    spark: SparkSession, asked: ClusterProcess, tmp_path: Path
) -> None:
    Archive(spark, asked, tmp_path / "lake").add("sql-orders")
    asked.send(Message("sql-orders", b"late", tags="t0") for _ in range(3))
    outcome = ask(
        "select tags, count(*) n, min(cast(body as string)) least, timestamp '2026-07-01' at"
        " from `sql-orders` group by tags order by tags",
        name_server=asked.address, archive=tmp_path / "lake", format="json",
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    assert [json.loads(line) for line in outcome.stdout.splitlines()] == [
        {"tags": "t0", "n": 8, "least": "late", "at": MIDNIGHT},
        {"tags": "t1", "n": 5, "least": '{"id": 1, "client": 1}', "at": MIDNIGHT},
    ]
    assert outcome.stderr.splitlines() in ([], [INCUBATOR])


def ask(text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return subprocess.run(
        [str(COMMAND), "sql", text, "--master=local[2]", *words],
        env=os.environ | {"TZ": "America/New_York"},  # where UTC is not the time of the machine
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
