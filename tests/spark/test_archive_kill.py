"""A driver that archives a topic is killed at random points, and started until it is through."""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bolide import Message
from bolide.client.producer.producer import Producer
from tests.interop.processes import ChildProcess
from tests.spark.archives import Archive, Place
from tests.spark.drivers.archive import ROWS_A_BATCH
from tests.support.cluster_process import ClusterProcess

DRIVER = Path(__file__).parent / "drivers" / "archive.py"
PATIENCE = 240.0
LINGER = 1.5
"""Seconds: a change of the table takes about as long."""


@pytest.mark.timeout(600)
def test_a_killed_archive_has_every_row_once(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    Archived(spark, cluster, tmp_path, "archive-kill").survive(kills=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_archive_survives_being_killed_twenty_times(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    Archived(spark, cluster, tmp_path, "archive-kill-long").survive(kills=20)


class Archived:
    """A topic, its archive, and the driver that makes it."""

    def __init__(
        self, spark: SparkSession, cluster: ClusterProcess, directory: Path, topic: str
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._random = random.Random(7)
        self._archive = Archive(spark, cluster, directory / "lake")

    def survive(self, kills: int) -> None:
        expected = asyncio.run(self._send(batches=kills + 3))
        for kill in range(kills):
            with self._driver() as driver:
                self._wait_for_commits(self._commits() + 1, driver)
                time.sleep(self._random.random() * LINGER)
                assert driver.running, f"it was through before kill {kill + 1}"
        with self._driver() as driver:
            driver.wait(PATIENCE)
        self._archive.check(expected)
        assert self._archive.reconcile(deep=True).failure is None
        assert not list((self._archive.path / "_bolide" / "pending").iterdir())

    async def _send(self, batches: int) -> Counter[Place]:
        """So many changes' worth of messages; what rows they must become."""
        places: Counter[Place] = Counter()
        async with Producer("setup", name_server=self._cluster.address) as producer:
            await producer.create_topic(self._topic, 2)
            for start in range(0, batches * ROWS_A_BATCH, 500):
                bodies = [b"%d" % number for number in range(start, start + 500)]
                messages = [Message(self._topic, body) for body in bodies]
                (sent,) = await producer.send_batch(messages, split=False)
                for index, body in enumerate(bodies):
                    queue, offset = sent.queue, sent.queue_offset + index
                    places[self._topic, queue.broker_name, queue.queue_id, offset, body] += 1
        return places

    def _driver(self) -> ChildProcess:
        words = [self._cluster.address, self._topic, str(self._archive.path)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        root = str(Path(__file__).parents[2])
        return ChildProcess(
            "driver", [sys.executable, str(DRIVER), *words], environment | {"PYTHONPATH": root}
        )

    def _wait_for_commits(self, wanted: int, driver: ChildProcess) -> None:
        deadline = time.monotonic() + PATIENCE
        while driver.running and time.monotonic() < deadline:
            if self._commits() >= wanted:
                return
            time.sleep(0.01)
        raise driver.failure(f"did not come to change {wanted} of the table")

    def _commits(self) -> int:
        """The number of the last one."""
        names = [each.stem for each in (self._archive.path / "_bolide/commits").glob("0*.json")]
        return max(map(int, names), default=0)
