"""The beginning and the end of a consumer when one of them fails."""

from pathlib import Path

import pytest

from bolide.client.consumer.pull.pull_consumer import PullConsumer, PullSchedule
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.remoting.tls import ClientTls
from tests.support.aio import on_loop
from tests.support.cluster import fake_cluster


@on_loop
async def test_a_start_that_fails_may_be_tried_again_and_leaves_nothing_to_close(
    tmp_path: Path,
) -> None:
    trust = ClientTls(trust=tmp_path / "missing.pem")
    consumer = PullConsumer("G", name_server="127.0.0.1:1", tls=trust)
    for _ in range(2):
        with pytest.raises(ConfigError, match="missing"):
            await consumer.start()
    await consumer.close()


class Failing(PullConsumer):
    async def _end(self) -> None:
        await super()._end()
        raise OSError("the store of offsets is away")


@on_loop
async def test_a_consumer_whose_end_fails_leaves_its_group_all_the_same() -> None:
    async with fake_cluster() as cluster:
        consumer = Failing("G", name_server=cluster.name_server.address)
        await consumer.start()
        await consumer.fetch_subscribe_queues("T")
        await consumer._instance.heartbeat()
        with pytest.raises(OSError, match="away"):
            await consumer.close()
        (broker,) = cluster.brokers
        assert [header.consumer_group for header in broker.unregistered] == ["G"]


@on_loop
async def test_a_schedule_that_was_closed_starts_no_tasks() -> None:
    queues = frozenset({MessageQueue("T", "broker-a", 0)})
    schedule = PullSchedule("G", name_server="127.0.0.1:1")
    await schedule.close()
    await schedule._assigned("T", queues, queues)
    assert not schedule._tasks
