"""The history, the dashboard and the list of producers, with a NameServer and a broker of ours."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from bolide.operations import dashboard, visibility
from bolide.operations.cluster import Cluster, Identity
from bolide.operations.errors import BadInput, NotSupported
from bolide.operations.history import History, Measure, Range
from bolide.operations.history.store import Family, Tier
from bolide.operations.producers import list_producers
from bolide.operations.topics.listing import TopicSort, list_topics
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.integration.test_policies import give, guarded, known, often
from tests.support.access import secret_of
from tests.support.admin_cluster import NOBODY
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.mute import mute_server
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

__all__ = ["often"]

TIERS = (Tier(1, 7200), Tier(60, 90_000), Tier(600, 605_400))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample several times a second."""
    place = "bolide.operations.history.history"
    monkeypatch.setattr(f"{place}.CLUSTER", Family("cluster", TIERS))
    monkeypatch.setattr(f"{place}.OBJECTS", Family("objects", TIERS))
    monkeypatch.setattr(f"{place}.MAX_POINTS", 1000)
    monkeypatch.setattr(f"{place}._TICK", 0.1)
    monkeypatch.setattr(f"{place}._MEMBERS_EVERY", 0.1)
    monkeypatch.setattr("bolide.operations.history.rotation._LEAVE_ALONE", 0.2)


@asynccontextmanager
async def sampled(
    address: str, path: Path, *, keys: dict[str, Any] | None = None, rate: float = 2000
) -> AsyncIterator[Cluster]:
    """A cluster whose history is sampled."""
    async with AdminClient(address, timeout=2.0, **(keys or {})) as admin:
        history = History(
            admin, path, access_key=(keys or {}).get("access_key"), rate=rate, round_time=0.2
        )
        async with history:
            yield Cluster(
                admin=admin, name_servers=address, identity=Identity(**keys or {}), history=history
            )


def history_of(cluster: Cluster) -> History:
    assert cluster.history is not None
    return cluster.history


async def overview_with(
    cluster: Cluster, condition: Callable[[dashboard.Overview], object]
) -> dashboard.Overview:
    async with asyncio.timeout(2 * PATIENCE):
        while True:
            found = await dashboard.overview.function(cluster)
            if condition(found):
                return found
            await asyncio.sleep(0.02)


async def values(
    cluster: Cluster, measure: Measure, name: str = "", *, over: Range = Range.QUARTER
) -> list[float | None]:
    (found,) = await history_of(cluster).series(measure, [name], over=over)
    return [point.value for point in found.points]


async def fill(admin: AdminClient, producer: Producer, broker: str) -> None:
    """Topic Orders with 20 messages, of which `shop` has consumed 4, and a dead letter."""
    await create_topic(producer, "Orders", 2)
    for number in range(20):
        queue = MessageQueue("Orders", "broker-a", number % 2)
        await producer.send(Message("Orders", b"x"), queue=queue)
    await admin.groups.update(broker, GroupConfig(group_name="shop"))
    await admin.groups.update(broker, GroupConfig(group_name="idle"))
    for number in range(2):
        queue = MessageQueue("Orders", "broker-a", number)
        await admin.offsets.commit(broker, "shop", queue, 2)


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0.02)


async def _has(admin: AdminClient, *topics: str) -> bool:
    return {*topics} <= {*await admin.topics.names()}


async def fail_once(address: str, producer: Producer) -> None:
    """Have a message of group `failing` become a dead letter."""
    await create_topic(producer, "Bad", 1)

    def refuse(message: object) -> None:
        raise ValueError("not this one")

    consumer = PushConsumer(
        "failing", name_server=address, consume_from="first", max_reconsume_times=0
    )
    async with consumer:
        await consumer.subscribe("Bad", "*", refuse)
        await producer.send(Message("Bad", b"bad"))
        async with AdminClient(address) as admin:
            await eventually(lambda: _has(admin, "%DLQ%failing"))


@on_loop
async def test_the_dashboard_tells_what_goes_on_and_what_is_away(tmp_path: Path) -> None:
    file = tmp_path / "console" / "history.db"
    async with own_cluster(tmp_path) as servers:
        async with (
            Producer("writers", name_server=servers.address) as producer,
            sampled(servers.address, file) as cluster,
        ):
            assert (await dashboard.overview.function(cluster)).backlog is None, "not known yet"
            await fill(cluster.admin, producer, servers.broker.address)
            await fail_once(servers.address, producer)

            found = await overview_with(cluster, lambda o: o.backlog == 16 and o.dead_letters)
            assert (found.brokers_up, len(found.brokers), found.failures) == (1, 1, [])
            assert (found.dead_letters, found.backlog_unknown) == (1, 0)
            assert found.topics == 2, "without topics of groups and of the system"
            assert found.disk is not None and 0 < found.disk < 1
            assert (found.disk_broker, found.brokers[0].version[:6]) == ("broker-a", "Bolide")

            await check_rates(cluster, producer)
            await check_sizes(cluster)
            clients = await overview_with(cluster, lambda o: o.clients == 1)
            assert clients.brokers[0].clients == 1, "the producer"

            await check_lists(cluster)
            await check_input(cluster)
            await check_producers(cluster, servers)
            await check_absence(cluster, servers)

        # A restart of the console: what was known is there at once, a gap is no 0.
        async with sampled(servers.address, file) as cluster:
            again = await dashboard.overview.function(cluster)
            assert again.brokers[0].name == "broker-a"
            assert (again.topics, again.groups) == (2, 3)
            rates = await values(cluster, Measure.RATE_IN)
            known = [each for each in rates if each is not None]
            assert max(known) > 5
            assert rates[0] is None, "long before the first sample"
            assert min(known) >= 0


def rate_of(cluster: Cluster, topic: str) -> float:
    figures = history_of(cluster).topic_figures().get(topic)
    return (figures.rate_in or 0) if figures else 0


async def check_sizes(cluster: Cluster) -> None:
    """Topics are sorted by their size, which is estimated from what brokers count of a day."""

    async def is_known() -> bool:
        found = await list_topics.function(cluster, sort=TopicSort.SIZE, descending=True)
        first = found.items[0]
        return first.topic == "Orders" and (first.bytes or 0) > 60 * (first.messages or 1)

    await eventually(is_known)


async def check_rates(cluster: Cluster, producer: Producer) -> None:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(send_until(stop, producer))
        try:
            await overview_with(cluster, lambda o: (o.rate_in or 0) > 10)
            await until(lambda: rate_of(cluster, "Orders") > 10, within=PATIENCE)
            topics = await dashboard.busy_topics.function(cluster, count=1)
            assert [each.topic for each in topics] == ["Orders"]
        finally:
            stop.set()


async def check_lists(cluster: Cluster) -> None:
    groups = await dashboard.lagging_groups.function(cluster)
    assert [each.group for each in groups] == ["shop"]
    assert groups[0].delay is not None and 0 < groups[0].delay < 60
    assert (groups[0].members, groups[0].dead_letters) == (0, 0)
    history = history_of(cluster)
    assert history.group_figures()["idle"].lag == 0
    assert history.group_figures()["failing"].dead_letters == 1
    assert history.topic_figures()["%DLQ%failing"].messages == 1


async def send_until(
    stop: asyncio.Event, producer: Producer, topics: Sequence[str] = ("Orders",)
) -> None:
    while not stop.is_set():
        for topic in topics:
            await producer.send(Message(topic, b"x"))
        await asyncio.sleep(0.005)


async def check_input(cluster: Cluster) -> None:
    series = dashboard.series.function
    with pytest.raises(BadInput, match="names of groups"):
        await series(cluster, measure=Measure.GROUP_LAG)
    with pytest.raises(BadInput, match="only the series of the whole"):
        await series(cluster, measure=Measure.BACKLOG, names=["broker-a"])
    with pytest.raises(BadInput, match="1 to 50"):
        await dashboard.busy_topics.function(cluster, count=0)

    async def has_disk() -> bool:
        (found,) = await series(cluster, measure=Measure.DISK, names=["broker-a"])
        return any(point.value for point in found.points)

    await eventually(has_disk)
    alone = Cluster(admin=cluster.admin, name_servers=cluster.name_servers)
    asked = await dashboard.overview.function(alone)
    assert (asked.brokers_up, asked.backlog) == (1, None)
    assert asked.rate_in is not None
    with pytest.raises(NotSupported):
        await series(alone, measure=Measure.BACKLOG)


async def check_producers(cluster: Cluster, servers: OwnCluster) -> None:
    async with Producer("Other-Writers", name_server=servers.address) as other:
        await other.send(Message("Orders", b"x"))
        cluster.forget()
        page = await list_producers.function(cluster, sort="last_seen", descending=True)
        assert [row.group for row in page.items] == ["Other-Writers", "writers"]
        row = page.items[0]
        assert (row.brokers, row.language, row.version) == (["broker-a"], "PYTHON", "5.5.0")
        assert row.address.startswith("127.0.0.1:")
        assert abs((row.last_seen_ms or 0) / 1000 - time.time()) < 60
        found = await list_producers.function(cluster, search="other python", size=1)
        assert (found.total, found.items[0].group) == (1, "Other-Writers")
        with pytest.raises(BadInput, match="one of group"):
            await list_producers.function(cluster, sort="size")


async def check_absence(cluster: Cluster, servers: OwnCluster) -> None:
    """A broker goes away and comes back: it is shown so, and its figures are unknown meanwhile."""
    await servers.stop_broker()
    down = await overview_with(cluster, lambda o: not o.brokers_up)
    assert [each.name for each in down.brokers] == ["broker-a"], "still known"
    assert down.brokers[0].is_up is False
    assert "broker-a" in down.failures[-1].server
    assert (down.rate_in, down.disk) == (None, None)
    await asyncio.sleep(2.1)  # two steps without samples
    await servers.start_broker()
    await overview_with(cluster, lambda o: o.brokers_up == 1 and o.backlog is not None)

    async def is_sampled() -> bool:
        return (await values(cluster, Measure.RATE_IN, "broker-a"))[-2] is not None

    await eventually(is_sampled)
    for name in ("broker-a", ""):
        rates = await values(cluster, Measure.RATE_IN, name)
        begin = next(at for at, each in enumerate(rates) if each is not None)
        assert None in rates[begin:-2], f"a gap, for {name!r}"
        assert min(each for each in rates if each is not None) >= 0


@on_loop
async def test_a_broker_that_hangs_holds_up_no_other_and_leaves_lags_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.operations.history.brokers._PATIENCE", 0.5)
    monkeypatch.setattr("bolide.operations.history.rotation._PATIENCE", 0.3)
    async with (
        own_cluster(tmp_path) as servers,
        mute_server() as mute,
        sampled(servers.address, tmp_path / "history.db") as cluster,
        RemotingClient() as remoting,
    ):
        queue, broker = MessageQueue("Orders", "broker-a", 0), servers.broker.address
        await cluster.admin.topics.update(broker, TopicConfig(topic_name="Orders"))
        await cluster.admin.groups.update(broker, GroupConfig(group_name="shop"))
        await cluster.admin.offsets.commit(broker, "shop", queue, 0)
        await overview_with(cluster, lambda o: o.backlog == 0 and o.groups == 1)

        header = broker_header(mute, name="broker-b", cluster="DefaultCluster")
        body = plain(topics_body("Orders"))
        await remoting.call(servers.address, RequestCode.REGISTER_BROKER, header, body=body)
        found = await overview_with(
            cluster, lambda o: len(o.brokers) == 2 and o.brokers[1].is_up is False
        )
        assert "no answer" in found.brokers[1].reason
        found = await overview_with(cluster, lambda o: o.backlog_unknown == 1)
        assert found.backlog is None, "it may have messages there"
        history = history_of(cluster)
        await until(lambda: not history.topic_figures()["Orders"].is_whole)
        assert history.topic_figures()["Orders"].messages is None
        age = time.time() - found.brokers[0].sampled_ms / 1000
        assert (found.brokers[0].is_up, age < 1) == (True, True)


@on_loop
async def test_users_with_few_rights_see_no_more_than_they_may(tmp_path: Path) -> None:
    async with guarded(tmp_path) as servers:
        root: dict[str, Any] = {"access_key": "root", "secret_key": secret_of("root")}
        await give(servers, "ada", Topic_Mine="Get", Group_my="Get")
        await known(servers, "ada", "Topic:Mine", "Get")
        keys: dict[str, Any] = {"access_key": "ada", "secret_key": secret_of("ada")}
        async with (
            sampled(servers.name_server, tmp_path / "history.db", keys=root) as cluster,
            AdminClient(servers.name_server, **keys) as admin,
        ):
            for topic in ("Mine", "Theirs"):
                await cluster.admin.topics.update(servers.broker, TopicConfig(topic_name=topic))
            await eventually(lambda: _has(admin, "Mine", "Theirs"))
            ada = Cluster(
                admin=admin,
                name_servers=servers.name_server,
                identity=Identity(**keys),
                history=cluster.history,
            )
            stop = asyncio.Event()
            async with Producer("writers", **servers.keys("root")) as producer:
                sending = asyncio.create_task(send_until(stop, producer, ("Mine", "Theirs")))
                try:
                    await until(lambda: rate_of(cluster, "Mine") and rate_of(cluster, "Theirs"))
                    await check_rights(ada, cluster)
                finally:
                    stop.set()
                    await sending


async def check_rights(ada: Cluster, cluster: Cluster) -> None:
    assert await visibility.visible_topics(ada, ["Theirs", "Mine"]) == ["Mine"]
    assert await visibility.visible_groups(ada, ["my", "their"]) == ["my"]
    topics = await dashboard.busy_topics.function(ada, count=2)
    assert [each.topic for each in topics] == ["Mine"]
    found = await dashboard.overview.function(ada)
    assert (found.brokers, found.backlog, found.topics) == ([], None, None)
    assert "Get on the cluster" in found.failures[0].reason
    assert await dashboard.series.function(ada, measure=Measure.RATE_IN) == []
    series = dashboard.series.function
    seen = await series(ada, measure=Measure.TOPIC_RATE_IN, names=["Theirs", "Mine"])
    assert [each.name for each in seen] == ["Mine"]
    everything = await dashboard.busy_topics.function(cluster)
    assert {each.topic for each in everything} == {"Mine", "Theirs"}


@on_loop
async def test_without_a_name_server_nothing_is_known_and_the_reason_is_told(
    tmp_path: Path,
) -> None:
    async with sampled(NOBODY, tmp_path / "history.db") as cluster:
        found = await overview_with(cluster, lambda o: o.failures)
        assert found.failures[0].server == "NameServer"
        assert NOBODY in found.failures[0].reason
        figures = (found.backlog, found.dead_letters, found.rate_in, found.clients, found.topics)
        assert {*figures} == {None}
        assert await dashboard.busy_topics.function(cluster) == []


@on_loop
async def test_many_topics_are_asked_about_slowly_and_one_after_the_other(tmp_path: Path) -> None:
    rate, asked, at_once, most = 100.0, Counter[RequestCode](), 0, 0

    async with own_cluster(tmp_path) as servers, AdminClient(servers.address) as admin:
        configs = [TopicConfig(topic_name=f"T{number}", read_queue_nums=1) for number in range(150)]
        await admin.topics.update_all(servers.broker.address, configs)
        await eventually(lambda: _has(admin, *(each.topic_name for each in configs)))
        stats_at = admin.topics.stats_at

        async def counted(address: str, topic: str) -> Any:
            nonlocal at_once, most
            asked[RequestCode.GET_TOPIC_STATS_INFO] += 1
            at_once += 1
            most = max(most, at_once)
            try:
                return await stats_at(address, topic)
            finally:
                at_once -= 1

        admin.topics.stats_at = counted  # type: ignore[method-assign]
        begun = time.monotonic()
        history = History(admin, tmp_path / "history.db", rate=rate, round_time=0.1)
        async with history:
            await until(lambda: len(history.topic_figures()) >= 150, within=3 * PATIENCE)
        seconds = time.monotonic() - begun
        assert most == 1
        assert 150 / seconds <= rate / 2, "a route and the figures of each"
