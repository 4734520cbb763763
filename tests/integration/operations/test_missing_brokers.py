"""With a broker down, lists say that they do not know, not that there is nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.client.producer.producer import Producer
from bolide.console.api.errors import status_of
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.listing import describe_group
from bolide.operations.consumers.listing import list_groups as list_consumers
from bolide.operations.dead_letters.listing import list_dead_letter_groups, show_dead_letter_group
from bolide.operations.declaration import Operation
from bolide.operations.errors import NotFound, Unknown
from bolide.operations.held.parked import list_parking_groups
from bolide.operations.held.timers import count_timers
from bolide.operations.held.transactions import count_transactions, list_transactions
from bolide.operations.history.brokers import NOT_REGISTERED
from bolide.operations.producers import list_producers
from bolide.operations.servers.members import forget_stopped, list_brokers
from bolide.operations.servers.missing import NO_BROKER
from bolide.operations.topics.detail import list_groups, show_topic
from bolide.operations.topics.listing import TopicCounts, count_topics, list_topics
from bolide.operations.views import Failure
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from tests.support.aio import on_loop
from tests.support.broker import broker_in
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

LISTS = (
    list_topics, list_consumers, list_dead_letter_groups, list_producers, list_transactions,
    list_parking_groups,
)  # fmt: skip
AWAY = Failure(server="broker-a", reason=NOT_REGISTERED)


@asynccontextmanager
async def seen(servers: OwnCluster) -> AsyncIterator[Cluster]:
    """A cluster with topic Orders and group shop at a broker that was seen."""
    async with (
        AdminClient(servers.address, timeout=2.0) as admin,
        Producer("p", name_server=servers.address) as producer,
    ):
        cluster = Cluster(admin=admin, name_servers=servers.address)
        await create_topic(producer, "Orders", 2)
        await admin.groups.update(servers.broker.address, GroupConfig(group_name="shop"))
        for each in LISTS:
            assert (await each.function(cluster)).failures == []
        await list_brokers.function(cluster)
        yield cluster


async def failures_of(cluster: Cluster, operation: Any, **given: Any) -> list[Failure]:
    cluster.forget()
    found = await operation.function(cluster, **given)
    return list(found.failures)


@on_loop
async def test_lists_do_not_say_that_there_is_nothing(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as servers, seen(servers) as cluster:
        with pytest.raises(NotFound) as absent:
            await show_topic.function(cluster, topic="Nothing")
        assert status_of(absent.value) == 404
        address = servers.broker.address
        await servers.stop_broker()
        for each in LISTS:
            cluster.forget()
            found: Any = await each.function(cluster)
            assert found.failures == [AWAY], each.name
            assert not found.items
        cluster.forget()
        counts: TopicCounts = await count_topics.function(cluster)
        assert counts.failures == [AWAY]
        (timers,) = (await count_timers.function(cluster)).brokers
        assert (timers.broker, timers.timers, timers.failure) == ("broker-a", None, NOT_REGISTERED)
        (open_,) = (await count_transactions.function(cluster)).brokers
        assert (open_.broker, open_.open, open_.failure) == ("broker-a", None, NOT_REGISTERED)
        details: tuple[tuple[Operation[Any, Any], dict[str, Any]], ...] = (
            (show_topic, {"topic": "Orders"}),
            (list_groups, {"topic": "Orders"}),
            (describe_group, {"group": "shop"}),
            (show_dead_letter_group, {"group": "shop"}),
        )
        for operation, given in details:
            with pytest.raises(Unknown, match=f"broker-a.*{NOT_REGISTERED}") as unknown:
                await operation.function(cluster, **given)
            assert status_of(unknown.value) == 503
        assert await failures_of(cluster, list_transactions, broker="broker-a") == [AWAY]
        # Forgotten, it is not missed; that there is no broker at all is still told.
        cluster.forget()
        await forget_stopped.function(cluster, address=address)
        (none,) = await failures_of(cluster, list_topics)
        assert none.reason == NO_BROKER


@on_loop
async def test_what_other_brokers_tell_is_not_all(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with own_cluster(tmp_path) as servers, seen(servers) as cluster:
        names = (servers.address,)
        other = broker_in(tmp_path / "other", name_servers=names, broker_name="broker-b")
        async with other as second:
            await cluster.admin.groups.update(second.address, GroupConfig(group_name="shop"))
            config = TopicConfig(topic_name="Orders", read_queue_nums=1, write_queue_nums=1)
            await cluster.admin.topics.update(second.address, config)
            await servers.stop_broker()
            for each in LISTS:
                assert await failures_of(cluster, each) == [AWAY], each.name
            cluster.forget()
            (row,) = (await list_topics.function(cluster, search="Orders")).items
            assert (row.brokers, row.messages) == (["broker-b"], None), "unknown, not 0"
            detail = await show_topic.function(cluster, topic="Orders")
            assert (detail.messages, detail.failures) == (None, [AWAY])
            group = (await describe_group.function(cluster, group="shop")).row
            assert (group.lag, group.clients, group.dead_letters) == (None, None, None)
