"""Queues, bounds and positions from a cluster."""

import asyncio
import os
from pathlib import Path

import pytest

from bolide.arrow.cluster import Cluster, Connection, ask
from bolide.arrow.errors import BadPosition, OutOfPatience
from bolide.arrow.offsets import At, Bounds, Earliest, Exact, Group, Latest
from bolide.arrow.position_lookup import read_records, record_size
from bolide.client.errors import RouteNotFound, WrongState
from bolide.client.producer.producer import Producer
from bolide.errors import ConfigError
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.remoting.tls import ClientTls
from bolide.sync import AdminClient
from tests.support.aio import on_loop, until
from tests.support.certificates import make_pair
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster
from tests.unit.arrow.one_queue import QUEUE, one_queue, record

T0, T1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


async def fill(served: OwnCluster, topic: str, *counts: int, namespace: str = "") -> None:
    """Send a number of messages to each queue of a new topic."""
    async with Producer("P", name_server=served.address, namespace=namespace) as producer:
        await create_topic(producer, topic, len(counts))
        for queue, count in zip(await producer.fetch_publish_queues(topic), counts, strict=True):
            for number in range(count):
                await producer.send(Message(topic, b"%d" % number), queue=queue)


@on_loop
async def test_queues_are_told_with_what_they_hold(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as served:
        await fill(served, "T", 3, 0)
        async with Cluster(Connection(name_server=served.address)) as cluster:
            queues = await cluster.queues(["T"])
            assert queues == [T0, T1]
            assert await cluster.bounds(queues) == {T0: Bounds(0, 3), T1: Bounds(0, 0)}
            assert await cluster.resolve(Earliest(), queues) == {T0: 0, T1: 0}
            assert await cluster.resolve(Latest(), queues) == {T0: 3, T1: 0}
            size = await record_size(cluster, queues)
            assert 100 < size < 400
            assert await record_size(cluster, [T1]) == 0.0


@on_loop
async def test_a_topic_that_nobody_has_is_not_waited_for(tmp_path: Path) -> None:
    async with (
        own_cluster(tmp_path) as served,
        Cluster(Connection(name_server=served.address)) as cluster,
    ):
        with pytest.raises(RouteNotFound, match="'nowhere'"):
            await cluster.queues(["nowhere"])


@on_loop
async def test_a_topic_that_was_there_is_waited_for() -> None:
    async with one_queue(0) as it:
        assert await it.cluster.queues(["T"]) == [QUEUE]
        route = it.servers.routes.pop("T")  # as after a restart of the NameServer
        asking = asyncio.create_task(it.cluster.with_patience(30.0).queues(["T"]))
        asked = len(it.servers.asked)
        await until(lambda: len(it.servers.asked) > asked + 1)
        it.servers.routes["T"] = route
        assert await asking == [QUEUE]


@on_loop
async def test_patience_with_a_cluster_that_is_away_ends() -> None:
    async with one_queue(0) as it:
        await it.stop()
        with pytest.raises(OutOfPatience, match=r"queue T/broker-a/0: no success for 0.3 s"):
            await it.cluster.bounds([QUEUE])


def test_a_cluster_must_be_open() -> None:
    with pytest.raises(WrongState, match="async with"):
        _ = Cluster(Connection(name_server="127.0.0.1:1")).instance


# Topics


@on_loop
async def test_topics_are_found_by_a_pattern_but_not_those_of_the_system(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as served:
        for topic in ("orders", "orders-eu", "bills"):
            await fill(served, topic, 0)
        async with Cluster(Connection(name_server=served.address)) as cluster:
            queues = await cluster.queues(["orders"])
            await cluster.commit("readers", dict.fromkeys(queues, 0))
            assert await cluster.topics_matching("orders.*") == ["orders", "orders-eu"]
            assert await cluster.topics_matching("order") == []
            assert await cluster.topics_matching(".*") == ["bills", "orders", "orders-eu"]
            await until(lambda: served.name_server.routes.route("%RETRY%readers"))
            assert await cluster.topics_matching("%RETRY%.*") == ["%RETRY%readers"]
            with pytest.raises(ConfigError, match="is no regular expression"):
                await cluster.topics_matching("(")


@on_loop
async def test_names_are_those_inside_of_the_namespace(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as served:
        await fill(served, "T", 2, namespace="shop")
        await fill(served, "other", 1)
        async with Cluster(Connection(name_server=served.address, namespace="shop")) as cluster:
            assert await cluster.topics_matching(".*") == ["T"]
            assert await cluster.queues(["T"]) == [T0]
            assert await cluster.bounds([T0]) == {T0: Bounds(0, 2)}
            assert [each.topic for each in await read_records(cluster, T0, 0, 1)] == ["shop%T"]
            await cluster.commit("readers", {T0: 1})
            assert await cluster.committed("readers", [T0]) == {T0: 1}


# Positions


@on_loop
async def test_exact_offsets_name_every_queue_and_no_other() -> None:
    async with one_queue(*range(3, 9)) as it:
        other = MessageQueue("T", "broker-a", 1)
        for offset, place in ((5, 5), (-2, 3), (-1, 9)):
            assert await it.cluster.resolve(Exact({QUEUE: offset}), [QUEUE]) == {QUEUE: place}
        with pytest.raises(BadPosition, match="lack queue 1 of topic 'T' on 'broker-a'"):
            await it.cluster.resolve(Exact({QUEUE: 5}), [QUEUE, other])
        with pytest.raises(BadPosition, match="there is no queue 1 of topic 'T'"):
            await it.cluster.resolve(Exact({QUEUE: 5, other: 5}), [QUEUE])


@pytest.mark.parametrize("guess", [0, 3, 4, 40, 41, 99, 100, 1000])
@on_loop
async def test_a_time_is_exact_whatever_the_broker_takes_for_the_nearest(guess: int) -> None:
    async with one_queue(*range(3, 100)) as it:
        times = {
            offset: 1000 if offset < 4 else 2000 if offset < 80 else 3000 for offset in range(100)
        }
        it.broker.records = {n: record(n, stored=times[n]) for n in range(3, 100)}
        it.broker.found = guess
        found = [await it.cluster.resolve(At(ms), [QUEUE]) for ms in (999, 2000, 2001, 3001)]
        assert [each[QUEUE] for each in found] == [3, 4, 80, 100]


@on_loop
async def test_times_are_found_in_every_queue(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as served:
        await fill(served, "T", 3, 2)
        async with Cluster(Connection(name_server=served.address)) as cluster:
            middle = (await read_records(cluster, T0, 2, 3))[0].store_timestamp
            found = await cluster.resolve(At(middle), [T0, T1])
            assert found[T1] == 0
            assert 0 <= found[T0] <= 2
            assert await cluster.resolve(At(middle + 10**6), [T0, T1]) == {T0: 3, T1: 2}


# Groups


@on_loop
async def test_a_group_is_made_by_its_first_commit_and_seen_by_administrators(
    tmp_path: Path,
) -> None:
    async with own_cluster(tmp_path) as served:
        await fill(served, "T", 5, 5)
        async with Cluster(Connection(name_server=served.address)) as cluster:
            assert await cluster.committed("readers", [T0, T1]) == {}
            await cluster.commit("readers", {T0: 3})
            assert await cluster.committed("readers", [T0, T1]) == {T0: 3}
            assert await cluster.resolve(Group("readers"), [T0, T1]) == {T0: 3, T1: 0}
            await cluster.commit("readers", {T0: 4, T1: 1})
            assert await cluster.committed("readers", [T0, T1]) == {T0: 4, T1: 1}

        def lag() -> int:
            with AdminClient(served.address) as admin:
                return sum(
                    each.broker_offset - each.consumer_offset
                    for each in admin.offsets.progress("readers").offset_table.values()
                )

        assert await asyncio.to_thread(lag) == 5


# Without await


def test_a_connection_that_could_not_be_opened_is_tried_anew(tmp_path: Path) -> None:
    trust = tmp_path / "trust.pem"
    connection = Connection(name_server="127.0.0.1:1", tls=ClientTls(trust=trust))
    with pytest.raises(ConfigError, match=r"trust\.pem"):
        ask(connection, lambda c: c.topics_matching("x"), patience=0.1)
    made = make_pair(tmp_path, "server")
    made.certificate.rename(trust)
    with pytest.raises(OutOfPatience):
        ask(connection, lambda c: c.topics_matching("x"), patience=0.1)


def test_questions_can_be_asked_without_await_and_after_a_fork(tmp_path: Path) -> None:
    with pytest.raises(OutOfPatience):
        ask(Connection(name_server="127.0.0.1:1"), lambda c: c.topics_matching("x"), patience=0.1)
    child = os.fork()
    if not child:
        try:
            ask(Connection(name_server="127.0.0.1:1"), lambda c: c.queues(["x"]), patience=0.1)
        except OutOfPatience:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
