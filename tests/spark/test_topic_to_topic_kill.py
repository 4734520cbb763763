"""A driver that copies topics is killed at random points and started again until it is through."""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bolide import AdminClient, Message
from bolide.client.producer.producer import Producer
from tests.interop.processes import ChildProcess
from tests.support.cluster_process import ClusterProcess
from tests.support.topic_contents import all_messages

DRIVER = Path(__file__).parent / "drivers" / "topic_to_topic.py"
PATIENCE = 240.0


@pytest.mark.timeout(600)
def test_a_killed_copy_loses_nothing_and_repeats_nothing_where_repeats_are_known(
    cluster: ClusterProcess, tmp_path: Path
) -> None:
    Copy(cluster, tmp_path, "kill", messages=6_000).survive(kills=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_copy_survives_being_killed_twenty_times(
    cluster: ClusterProcess, tmp_path: Path
) -> None:
    copy = Copy(cluster, tmp_path, "kill-long", messages=40_000)
    copy.survive(kills=40)
    assert copy.repeats, "no kill hit a batch that was under way: the test shows nothing"


class Copy:
    """A source, its two copies, and the driver that makes them."""

    def __init__(
        self, cluster: ClusterProcess, directory: Path, name: str, *, messages: int
    ) -> None:
        self._cluster = cluster
        self._directory = directory
        self._bodies = [b"%d" % number for number in range(messages)]
        self._source, self._plain, self._once = (f"{name}-{end}" for end in ("from", "to", "once"))
        self._random = random.Random(5)
        self.repeats = 0
        """How often a row came again where repeats are not known."""

    def survive(self, kills: int) -> None:
        asyncio.run(self._prepare())
        for kill in range(kills):
            # Somewhere in the part that this life of the driver gets to do.
            wanted = 2 * len(self._bodies) * (kill + self._random.random()) / (kills + 1)
            with self._driver() as driver:
                asyncio.run(self._wait_until_copied(wanted, driver))
                assert driver.running, f"it was through before kill {kill + 1}"
        with self._driver() as driver:
            driver.wait(PATIENCE)
        self._check()

    async def _prepare(self) -> None:
        address = self._cluster.address
        async with Producer("setup", name_server=address) as producer:
            for topic, window in ((self._source, ""), (self._plain, ""), (self._once, "1h")):
                attributes = {"+dedup.window": window} if window else None
                await producer.create_topic(topic, 2, attributes=attributes)
            messages = [Message(self._source, body) for body in self._bodies]
            for start in range(0, len(messages), 500):
                await producer.send_batch(messages[start : start + 500])

    def _driver(self) -> ChildProcess:
        topics = [self._source, self._plain, self._once]
        command = [sys.executable, str(DRIVER), self._cluster.address, *topics]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        return ChildProcess("driver", [*command, str(self._directory)], environment)

    async def _wait_until_copied(self, wanted: float, driver: ChildProcess) -> None:
        """Until the copies together have so many messages, repeats included."""
        deadline = time.monotonic() + PATIENCE
        async with AdminClient(self._cluster.address) as admin:
            while driver.running and time.monotonic() < deadline:
                stats = [await admin.topics.stats(topic) for topic in (self._plain, self._once)]
                sizes = [
                    sum(each.max_offset for each in one.offset_table.values()) for one in stats
                ]
                if sum(sizes) > wanted:
                    return
                await asyncio.sleep(0.01)
        raise driver.failure(f"did not copy {wanted:.0f} messages")

    def _check(self) -> None:
        plain, once = (
            Counter(message.body for message in all_messages(self._cluster.address, topic))
            for topic in (self._plain, self._once)
        )
        assert plain.keys() == set(self._bodies)
        assert once == dict.fromkeys(self._bodies, 1)
        self.repeats = plain.total() - len(self._bodies)
