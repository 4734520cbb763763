"""Requests to servers: choice of the NameServer, failover, and errors."""

import pytest

from bolide.admin import (
    AdminClient,
    BadAddress,
    BrokerUnknown,
    ClusterNotFound,
    GroupUnknown,
    NoNameServer,
)
from bolide.errors import ConfigError
from bolide.protocol.bodies.routes import TopicList, TopicRoute
from bolide.protocol.bodies.topics import TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import RequestCodeNotSupported, TopicNotFound
from bolide.remoting.errors import ConnectFailed
from tests.support.aio import on_loop
from tests.unit.admin.scripted import CLUSTER, cast

NOBODY = "127.0.0.1:1"
NAMES = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@on_loop
async def test_the_next_name_server_is_asked_when_one_is_away() -> None:
    async with cast() as stage:
        stage.name_server.answers(NAMES, TopicList(topic_list=["Orders"]))
        async with AdminClient(f"{NOBODY};{stage.name_server.address}") as admin:
            assert await admin.topics.names() == ["Orders"]
            assert await admin.topics.names() == ["Orders"]


@on_loop
async def test_without_any_name_server_the_last_one_tried_is_named() -> None:
    async with AdminClient([NOBODY, "127.0.0.1:2"]) as admin:
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:2"):
            await admin.topics.names()


@on_loop
async def test_changes_go_to_every_name_server() -> None:
    async with cast() as one, cast() as other:
        for stage in (one, other):
            stage.name_server.answers(RequestCode.PUT_KV_CONFIG)
        both = [one.name_server.address, other.name_server.address]
        async with AdminClient(both) as admin:
            await admin.name_servers.put_value("space", "key", "value")

        for stage in (one, other):
            (fields,) = stage.name_server.fields_of(RequestCode.PUT_KV_CONFIG)
            assert fields == {"namespace": "space", "key": "key", "value": "value"}


@on_loop
async def test_a_refusal_says_who_refused() -> None:
    async with cast() as stage:
        with pytest.raises(RequestCodeNotSupported) as refused:
            await stage.admin.brokers.runtime(stage.first.address)

        assert refused.value.__notes__ == [f"asked of {stage.first.address}"]


@on_loop
async def test_an_unknown_cluster_is_told_with_those_there_are() -> None:
    async with cast() as stage:
        with pytest.raises(ClusterNotFound, match=f"'Other'; it knows {CLUSTER}"):
            await stage.admin.clusters.masters("Other")
        with pytest.raises(ClusterNotFound, match=f"'Other'; it knows {CLUSTER}"):
            await stage.admin.topics.stats("Orders", "Other")


@on_loop
async def test_unknown_brokers_are_told_with_those_there_are() -> None:
    async with cast("broker-a", "broker-b") as stage:
        with pytest.raises(BrokerUnknown, match="'broker-c'; it knows broker-a, broker-b"):
            await stage.admin.clusters.address_of("broker-c")
        with pytest.raises(BrokerUnknown, match=NOBODY):
            await stage.admin.clusters.broker_at(NOBODY)


@on_loop
async def test_a_group_that_never_connected_is_named_and_not_its_retry_topic() -> None:
    async with cast(unknown_topics=("%RETRY%billing",)) as stage:
        with pytest.raises(GroupUnknown, match="no consumer of group 'billing' has ever connected"):
            await stage.admin.clients.consumers("billing")


@on_loop
async def test_what_is_no_address_is_refused_before_anybody_is_asked() -> None:
    async with cast() as stage:
        with pytest.raises(BadAddress, match="'broker-a' is not an address"):
            await stage.admin.brokers.config("broker-a")
    with pytest.raises(BadAddress, match="'somewhere'"):
        AdminClient("somewhere")


@on_loop
async def test_name_servers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876; 10.0.0.2:9876;")

    assert AdminClient().name_servers.addresses == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert AdminClient("10.0.0.3:9876").name_servers.addresses == ("10.0.0.3:9876",)


@on_loop
async def test_a_client_without_name_servers_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async with AdminClient() as admin:
        with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
            await admin.topics.names()
        with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
            await admin.name_servers.put_value("N", "K", "V")


@on_loop
async def test_a_broker_that_is_named_by_its_address_needs_no_name_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with cast() as stage, AdminClient() as admin:
        address = stage.name_server.address
        stage.name_server.answers(RequestCode.GET_TOPIC_STATS_INFO, TopicStats())
        assert await admin.topics.stats_at(address, "T") == TopicStats()


@on_loop
async def test_requests_are_signed_with_both_keys_or_not_at_all() -> None:
    async with cast() as stage:
        stage.name_server.answers(NAMES, TopicList())
        address = stage.name_server.address
        async with AdminClient(address, access_key="me", secret_key="secret") as admin:
            await admin.topics.names()

        (fields,) = stage.name_server.fields_of(NAMES)
        assert fields.keys() == {"AccessKey", "Signature"}
    with pytest.raises(ConfigError, match="together"):
        AdminClient(address, access_key="me")


@on_loop
async def test_a_topic_whose_brokers_are_all_away_is_told() -> None:
    async with cast() as stage:
        stage.name_server.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicRoute())

        with pytest.raises(TopicNotFound, match="'Orders' is registered now"):
            await stage.admin.offsets.status("billing", "Orders")
        with pytest.raises(GroupUnknown):
            await stage.admin.clients.running("billing", "client")
