"""The history and the dashboard with Apache's brokers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.admin import AdminClient
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from bolide.operations import dashboard
from bolide.operations.cluster import Cluster
from bolide.operations.history import History, Measure
from bolide.operations.producers import list_producers
from tests.interop.bench import Server
from tests.support.own_cluster import create_topic

# The core pages are tried against RocketMQ by the default suite.
pytestmark = pytest.mark.long

TOPIC, GROUP = "DashboardOrders", "dashboard-shop"


def test_the_dashboard_of_apaches_broker(
    rocketmq: str,
    java_namesrv: Callable[..., Server],
    java_broker: Callable[..., Server],
    tmp_path: Path,
) -> None:
    names = java_namesrv(rocketmq)
    broker = java_broker(rocketmq, names.address)
    asyncio.run(watch(names.address, broker.address, tmp_path / "history.db"))


async def watch(names: str, broker: str, file: Path) -> None:
    stop = asyncio.Event()
    async with (
        AdminClient(names) as admin,
        Producer("writers", name_server=names) as producer,
        PushConsumer(GROUP, name_server=names, consume_from="first") as consumer,
    ):
        await create_topic(producer, TOPIC, 2)
        await consumer.subscribe(TOPIC, "*", slowly)
        sending = asyncio.create_task(send_until(stop, producer))
        try:
            async with History(admin, file, rate=500, round_time=1.0) as history:
                cluster = Cluster(admin=admin, name_servers=names, history=history)
                found = await figures(cluster)
                series = await history.series(Measure.RATE_IN)
                cluster.forget()
                page = await list_producers.function(cluster)
        finally:
            stop.set()
            await sending
    assert [(each.address, each.is_up) for each in found.brokers] == [(broker, True)]
    assert found.failures == []
    assert found.rate_in is not None and 5 < found.rate_in < 500
    assert found.rate_out is not None and found.rate_out > 0
    assert (found.dead_letters, found.backlog_unknown) == (0, 0)
    assert found.disk is not None and 0 < found.disk < 1
    assert found.clients == 2
    assert any(point.value for point in series[0].points)
    assert [(each.group, each.language) for each in page.items if each.group == "writers"] == [
        ("writers", "PYTHON")
    ]


async def figures(cluster: Cluster) -> dashboard.Overview:
    """Once the group lags and the topic is busy, and a step of the history is over."""
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(0.5)
            topics = await dashboard.busy_topics.function(cluster)
            groups = await dashboard.lagging_groups.function(cluster)
            found = await dashboard.overview.function(cluster)
            is_told = TOPIC in {each.topic for each in topics} and found.clients == 2
            delays = {each.group: each.delay for each in groups}
            if is_told and delays.get(GROUP) and found.backlog and found.rate_out:
                await asyncio.sleep(6)
                return await dashboard.overview.function(cluster)


async def slowly(_: object) -> None:
    await asyncio.sleep(1.0)


async def send_until(stop: asyncio.Event, producer: Producer) -> None:
    while not stop.is_set():
        await producer.send(Message(TOPIC, b"x"))
        await asyncio.sleep(0.02)
