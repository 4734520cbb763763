"""The client table: joining, leaving, expiry and notification of members."""

from pathlib import Path

import pytest

from bolide.protocol.bodies.heartbeat import (
    ConsumerGroup,
    ConsumeType,
    Heartbeat,
    MessageModel,
    ProducerGroup,
    Subscription,
)
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables
from tests.support.transport import FakeTransport


@pytest.fixture
def tables(tmp_path: Path) -> BrokerTables:
    made = BrokerTables(tmp_path)
    made.groups.require("g")
    made.groups.require("h")
    return made


def connected() -> Connection:
    connection = Connection(Dispatcher(), ConnectionLimits())
    FakeTransport().attach(connection)
    return connection


def beat(
    client_id: str = "a",
    *topics: str,
    group: str = "g",
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
    kind: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    fingerprint: int = 0,
    without_sub: bool = False,
) -> Heartbeat:
    wanted = [Subscription(topic=topic, sub_version=version) for topic in topics]
    data = ConsumerGroup(
        group_name=group,
        consume_type=kind,
        message_model=model,
        subscription_data_set=[] if without_sub else wanted,
    )
    return Heartbeat(
        client_id=client_id,
        consumer_data_set=[data],
        heartbeat_fingerprint=fingerprint,
        without_sub=without_sub,
    )


def producer(client_id: str = "p", *groups: str) -> Heartbeat:
    return Heartbeat(client_id=client_id, producer_data_set=[ProducerGroup(g) for g in groups])


def join(tables: BrokerTables, heartbeat: Heartbeat, connection: Connection) -> bool:
    return tables.clients.heartbeat(heartbeat, connection, "JAVA", 479)


# ---- joining


@on_loop
async def test_a_consumer_joins_with_the_data_of_its_heartbeat(tables: BrokerTables) -> None:
    connection = connected()
    assert join(tables, beat("a", "T"), connection)
    group = tables.clients.consumer_group("g")
    assert group is not None
    (member,) = group.members
    assert (member.client_id, member.language, member.version) == ("a", "JAVA", 479)
    assert member.connection is connection
    assert tables.clients.consumer_ids("g") == ["a"]
    assert tables.clients.subscription("g", "T") == Subscription(topic="T", sub_version=1)
    assert tables.clients.subscription("g", "U") is None
    assert tables.clients.subscribers("T") == {"g"}
    assert tables.clients.find_consumer("g", "a") is connection


@on_loop
async def test_a_second_heartbeat_changes_nothing(tables: BrokerTables) -> None:
    connection = connected()
    join(tables, beat("a", "T"), connection)
    tables.told.clear()
    assert not join(tables, beat("a", "T"), connection)
    assert tables.told == []


@on_loop
async def test_all_members_are_notified_when_one_joins(tables: BrokerTables) -> None:
    first, second = connected(), connected()
    join(tables, beat("a", "T"), first)
    tables.told.clear()
    join(tables, beat("b", "T"), second)
    assert tables.told == [(first, "g"), (second, "g")]


@on_loop
async def test_members_of_a_broadcasting_group_are_not_notified(tables: BrokerTables) -> None:
    join(tables, beat("a", "T", model=MessageModel.BROADCASTING), connected())
    assert tables.told == []


@on_loop
async def test_the_broker_and_the_group_can_each_disable_notifications(
    tables: BrokerTables,
) -> None:
    quiet = BrokerTables(tables.directory / "other", {"notify_consumer_ids_changed_enable": False})
    quiet.groups.require("g")
    join(quiet, beat("a", "T"), connected())
    assert quiet.told == []
    tables.groups.require("g").notify_consumer_ids_changed_enable = False
    join(tables, beat("a", "T"), connected())
    assert tables.told == []


@on_loop
async def test_a_group_that_does_not_exist_is_passed_over(tables: BrokerTables) -> None:
    assert not join(tables, beat("a", "T", group="unknown"), connected())
    assert tables.clients.consumer_group("unknown") is None


@on_loop
async def test_pull_consumers_can_be_refused(tables: BrokerTables) -> None:
    strict = tables.restarted(reject_pull_consumer_enable=True)
    strict.groups.require("g")
    assert not join(strict, beat("a", kind=ConsumeType.CONSUME_ACTIVELY), connected())
    assert join(strict, beat("b", kind=ConsumeType.CONSUME_PASSIVELY), connected())
    assert strict.clients.consumer_ids("g") == ["b"]


# ---- subscriptions


@on_loop
async def test_topics_come_and_go_with_the_heartbeats(tables: BrokerTables) -> None:
    connection = connected()
    join(tables, beat("a", "T", "U"), connection)
    tables.told.clear()
    assert join(tables, beat("a", "U", "V"), connection)
    assert tables.told == [(connection, "g")]
    group = tables.clients.consumer_group("g")
    assert group is not None
    assert group.subscriptions.keys() == {"U", "V"}


@on_loop
async def test_only_a_newer_version_of_a_subscription_counts(tables: BrokerTables) -> None:
    connection = connected()
    join(tables, beat("a", "T", version=5), connection)
    join(tables, beat("a", "T", version=4), connection)
    assert tables.clients.subscription("g", "T") == Subscription(topic="T", sub_version=5)
    assert not join(tables, beat("a", "T", version=6), connection)
    assert tables.clients.subscription("g", "T") == Subscription(topic="T", sub_version=6)


@on_loop
async def test_a_short_heartbeat_leaves_the_subscriptions(tables: BrokerTables) -> None:
    connection = connected()
    join(tables, beat("a", "T", fingerprint=7), connection)
    short = beat("a", fingerprint=7, without_sub=True)
    assert not tables.clients.needs_subscriptions(short)
    assert not join(tables, short, connection)
    assert tables.clients.subscription("g", "T") is not None


@on_loop
async def test_subscriptions_are_requested_after_a_change_and_a_restart(
    tables: BrokerTables,
) -> None:
    assert tables.clients.needs_subscriptions(beat("a", "T"))
    assert not tables.clients.needs_subscriptions(beat("a", "T", fingerprint=7))
    assert tables.clients.needs_subscriptions(beat("a", fingerprint=7, without_sub=True))
    join(tables, beat("a", "T", fingerprint=7), connected())
    assert tables.clients.needs_subscriptions(beat("a", "T", fingerprint=8))
    assert not tables.clients.needs_subscriptions(beat("a", "T", fingerprint=7))


@on_loop
async def test_a_group_wants_its_subscriptions_and_any_topic_while_offline(
    tables: BrokerTables,
) -> None:
    assert tables.clients.wants("g", "T")
    connection = connected()
    join(tables, beat("a"), connection)
    assert tables.clients.wants("g", "T")
    join(tables, beat("a", "U"), connection)
    assert tables.clients.wants("g", "U")
    assert not tables.clients.wants("g", "T")


# ---- leaving


@on_loop
async def test_a_client_that_unregisters_is_removed_and_the_others_are_notified(
    tables: BrokerTables,
) -> None:
    first, second = connected(), connected()
    join(tables, beat("a", "T"), first)
    join(tables, beat("b", "T"), second)
    tables.told.clear()
    tables.clients.unregister("a", None, "g", first)
    assert tables.clients.consumer_ids("g") == ["b"]
    assert tables.told == [(second, "g")]


@on_loop
async def test_a_lost_connection_takes_all_its_groups_along(tables: BrokerTables) -> None:
    lost, other = connected(), connected()
    join(tables, beat("a", "T"), lost)
    join(tables, beat("a", "T", group="h"), lost)
    join(tables, producer("a", "p1", "p2"), lost)
    join(tables, beat("b", "T"), other)
    tables.told.clear()
    tables.clients.connection_lost(lost)
    assert tables.told == [(other, "g")]
    assert tables.clients.consumer_group("h") is None
    assert tables.clients.producer_groups() == []
    tables.clients.connection_lost(lost)
    tables.clients.unregister("a", "p1", "h", lost)
    assert tables.told == [(other, "g")]


@on_loop
async def test_a_client_that_reconnects_is_one_client(tables: BrokerTables) -> None:
    old, new = connected(), connected()
    join(tables, beat("a", "T"), old)
    join(tables, beat("a", "T"), new)
    assert tables.clients.consumer_ids("g") == ["a"]
    assert tables.clients.find_consumer("g", "a") is new
    tables.clients.connection_lost(old)
    assert tables.clients.consumer_ids("g") == ["a"]
    assert tables.clients.find_consumer("g", "a") is new


@on_loop
async def test_two_clients_on_one_connection_are_the_last_of_them(
    tables: BrokerTables, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connected()
    join(tables, beat("a", "T"), connection)
    assert not join(tables, beat("b", "T"), connection)
    assert tables.clients.consumer_ids("g") == ["b"]
    assert "clients a and b of group g share one connection" in caplog.text
    tables.clients.connection_lost(connection)
    assert tables.clients.consumer_group("g") is None


# ---- producers


@on_loop
async def test_producers_are_known_by_group_and_name(tables: BrokerTables) -> None:
    connection = connected()
    assert not join(tables, producer("p", "p1", "p2"), connection)
    assert tables.clients.producer_groups() == ["p1", "p2"]
    assert [member.client_id for member in tables.clients.producers("p1")] == ["p"]
    tables.clients.unregister("p", "p1", None, connection)
    assert tables.clients.producer_groups() == ["p2"]


# ---- expiry


@on_loop
async def test_clients_without_heartbeats_are_forgotten_and_closed(tables: BrokerTables) -> None:
    silent, alive = connected(), connected()
    join(tables, beat("a", "T"), silent)
    join(tables, producer("p", "p1"), silent)
    tables.clock.advance(100)
    join(tables, beat("b", "T"), alive)
    tables.told.clear()
    tables.clients.expire()
    assert tables.clients.consumer_ids("g") == ["a", "b"]
    tables.clock.advance(21)
    tables.clients.expire()
    assert tables.clients.consumer_ids("g") == ["b"]
    assert tables.clients.producer_groups() == []
    assert tables.told == [(alive, "g")]
    assert silent.is_closed
    assert not alive.is_closed


@on_loop
async def test_a_client_that_is_silent_in_one_group_stays_in_the_other(
    tables: BrokerTables,
) -> None:
    connection = connected()
    join(tables, beat("a", "T"), connection)
    tables.clock.advance(100)
    join(tables, beat("a", "T", group="h"), connection)
    tables.clock.advance(30)
    tables.clients.expire()
    assert tables.clients.consumer_group("g") is None
    assert tables.clients.consumer_ids("h") == ["a"]
    assert not connection.is_closed


@on_loop
async def test_a_producer_is_found_by_client_id_on_its_latest_connection(
    tables: BrokerTables,
) -> None:
    clients = tables.clients
    old, new = connected(), connected()
    asker = Heartbeat(client_id="a", producer_data_set=[ProducerGroup("p"), ProducerGroup("q")])
    for connection in (old, new):
        clients.heartbeat(asker, connection, "JAVA", 1)
    clients.heartbeat(beat("b"), connected(), "JAVA", 1)
    assert clients.find_producer("a") is new
    assert clients.find_producer("b") is None  # a consumer only
    clients.connection_lost(old)
    assert clients.find_producer("a") is new
    clients.unregister("a", "p", None, new)
    assert clients.find_producer("a") is new
    clients.unregister("a", "q", None, new)
    assert clients.find_producer("a") is None
