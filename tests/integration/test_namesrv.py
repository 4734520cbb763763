"""Every request that a NameServer answers, through the remoting client against a real one."""

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import properties
from bolide.config import fixed_keys
from bolide.errors import ConfigError
from bolide.namesrv.config import ALL_IGNORED, NameServerConfig
from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.registration import RegisterBrokerBody, compress
from bolide.protocol.bodies.routes import (
    BrokerRoute,
    ClusterInfo,
    KvTable,
    MemberGroupBody,
    QueueRoute,
    TopicList,
    TopicRoute,
)
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.namesrv import (
    AddWritePermReply,
    BrokerHeartbeatHeader,
    BrokerMemberGroupHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicHeader,
    KvHeader,
    KvListHeader,
    KvReply,
    MinBrokerIdChangeHeader,
    PutKvHeader,
    QueryDataVersionHeader,
    QueryDataVersionReply,
    RegisterBrokerReply,
    RegisterTopicHeader,
    RouteHeader,
    WipeWritePermReply,
)
from bolide.protocol.refusals import (
    InvalidParameter,
    NoPermission,
    QueryNotFound,
    ServerError,
    TopicNotFound,
)
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.brokers import CLUSTER, broker_header, leaving_header, plain, topics_body
from tests.support.clock import FakeClock
from tests.support.name_servers import name_server
from tests.support.wire import RawPeer

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
V3_0_11, V4_9_4, V4_9_8, V5_0_0 = 37, 401, 409, 413


class Asker:
    """A client of one NameServer, with the requests that these tests use often."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self.client = client
        self.address = address

    async def ask(
        self, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> Frame:
        return await self.client.call(self.address, code, header, body=body)

    async def register(
        self,
        address: str = MASTER,
        body: RegisterBrokerBody | None = None,
        **header: Any,
    ) -> Frame:
        return await self.ask(
            RequestCode.REGISTER_BROKER,
            broker_header(address, **header),
            body=plain(body or topics_body("orders")),
        )

    async def route(self, topic: str = "orders", **header: Any) -> TopicRoute:
        response = await self.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic, **header)
        )
        return fastjson.decode(response.body, TopicRoute)

    async def is_routed(self, topic: str = "orders") -> bool:
        try:
            await self.route(topic)
        except TopicNotFound:
            return False
        return True

    async def until_routed(self, topic: str = "orders", *, routed: bool = True) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.is_routed(topic) != routed:  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0.01)

    async def topics(self, code: RequestCode, header: Header | None = None) -> list[str]:
        response = await self.ask(code, header)
        return sorted(fastjson.decode(response.body, TopicList).topic_list)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        await self.ask(RequestCode.PUT_KV_CONFIG, PutKvHeader(namespace, key, value))

    async def find_kv(self, namespace: str, key: str) -> str | None:
        response = await self.ask(RequestCode.GET_KV_CONFIG, KvHeader(namespace, key))
        return KvReply.from_fields(response.fields).value

    async def config(self) -> dict[str, str]:
        response = await self.ask(RequestCode.GET_NAMESRV_CONFIG)
        return properties.parse(response.body.decode())

    async def update(self, **settings: str) -> None:
        body = properties.render(settings).encode()
        await self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)


@asynccontextmanager
async def asking(directory: Path, **settings: Any) -> AsyncIterator[Asker]:
    async with name_server(directory, **settings) as server, RemotingClient() as client:
        yield Asker(client, server.address)


@asynccontextmanager
async def another(asker: Asker) -> AsyncIterator[Asker]:
    """Another client of the same NameServer, so another connection."""
    async with RemotingClient() as client:
        yield Asker(client, asker.address)


# Registration


@on_loop
async def test_a_registered_broker_is_found_by_its_topics(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        response = await asker.register()
        assert RegisterBrokerReply.from_fields(response.fields) == RegisterBrokerReply()
        assert response.body == b""
        route = await asker.route()
    assert route == TopicRoute(
        queue_datas=[
            QueueRoute(broker_name="broker-a", read_queue_nums=16, write_queue_nums=16, perm=6)
        ],
        broker_datas=[
            BrokerRoute(broker_name="broker-a", cluster=CLUSTER, broker_addrs={0: MASTER})
        ],
    )


@pytest.mark.parametrize(
    "header",
    [
        '{"code":105,"extFields":{"topic":"orders"},"language":3,"opaque":7}',
        '{"code":105,"extFields":{"topic":"orders"},"flag":null,"opaque":7,"version":null}',
        '{"code":105,"extFields":{"topic":"orders"},"opaque":7,"remark":5,}',
        "{'code':105,'extFields':{'topic':'orders'},'language':'KLINGON','opaque':'7'}",
        "{code:105,/* to a topic */extFields:{topic:'orders'},,opaque:7}",
    ],
)
@on_loop
async def test_a_header_that_java_accepts_is_answered(tmp_path: Path, header: str) -> None:
    data = header.encode()
    async with asking(tmp_path) as asker:
        await asker.register()
        async with await RawPeer.connect(asker.address) as peer:
            await peer.send(struct.pack(">II", 4 + len(data), len(data)) + data)
            answer = await peer.frame()
    assert (answer.code, answer.opaque) == (0, 7)
    assert fastjson.decode(answer.body, TopicRoute).broker_datas[0].broker_addrs == {0: MASTER}


@on_loop
async def test_a_registration_that_java_accepts_is_understood(tmp_path: Path) -> None:
    body = b"""{'topicConfigSerializeWrapper':{dataVersion:{counter:'5'},topicConfigTable:{
        orders:{topicName:'orders',perm:'6',topicFilterType:"NEW",readQueueNums:"4",order:0,},
        another:{'topicName':'another'},
    }},/*none*/'filterServerList':[]}"""
    async with asking(tmp_path) as asker:
        await asker.ask(RequestCode.REGISTER_BROKER, broker_header(MASTER), body=body)
        route = await asker.route()
    assert route.queue_datas == [
        QueueRoute(broker_name="broker-a", read_queue_nums=4, write_queue_nums=16, perm=6)
    ]


@on_loop
async def test_a_route_is_standard_json_with_an_empty_table_of_filter_servers(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        response = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("orders"))
    found = json.loads(response.body)
    assert found["filterServerTable"] == {}
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": MASTER}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("version", "fields", "standard"),
    [
        (0, {}, False), (1, {}, False), (V4_9_4 - 1, {}, False), (V4_9_4, {}, True),
        (1, {"acceptStandardJsonOnly": "true"}, True),
        (1, {"acceptStandardJsonOnly": "false"}, False),
    ],
)  # fmt: skip
@on_loop
async def test_a_client_before_4_9_4_gets_a_route_in_the_dialect_it_knows(
    tmp_path: Path, version: int, fields: dict[str, str], standard: bool, ordered: bool
) -> None:
    async with asking(tmp_path, order_message_enable=ordered) as asker:
        await asker.register()
        connection = await asker.client._connection(asker.address)
        for _ in range(2):  # the second time from the cache
            frame = Frame(
                code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
                fields={"topic": "orders", **fields},
                version=version,
            )
            body = (await connection.call(frame, PATIENCE)).body
            key = b'"0"' if standard else b"0"
            assert b'"brokerAddrs":{' + key + b':"%s"}' % MASTER.encode() in body
            assert fastjson.decode(body, TopicRoute) == await asker.route()


@on_loop
async def test_an_unknown_topic_is_refused_in_rocketmqs_words(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        with pytest.raises(TopicNotFound) as caught:
            await asker.route("nowhere")
    assert caught.value.remark.startswith(
        "No topic route info in name server for the topic: nowhere"
    )


@pytest.mark.parametrize("says_so", [True, False], ids=["4.9 says it", "5.x does not"])
@on_loop
async def test_a_compressed_registration_is_understood(tmp_path: Path, says_so: bool) -> None:
    body = compress(topics_body("orders", filter_servers=["10.0.0.1:3000"]))
    crc = zlib.crc32(body) & 0x7FFF_FFFF
    async with asking(tmp_path) as asker:
        header = broker_header(MASTER, compressed=says_so, crc=crc)
        await asker.ask(RequestCode.REGISTER_BROKER, header, body=body)
        assert (await asker.route()).filter_server_table == {MASTER: ["10.0.0.1:3000"]}


@on_loop
async def test_a_body_that_does_not_match_its_checksum_is_refused(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        with pytest.raises(ServerError, match="crc32 not match"):
            await asker.register(crc=1)
        assert not await asker.is_routed()


@on_loop
async def test_a_body_that_is_none_is_refused_and_the_connection_stays(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        for body in (b"{", b"\x78\x9c broken", b'{"topicConfigSerializeWrapper":5}'):
            with pytest.raises(ServerError):
                await asker.ask(RequestCode.REGISTER_BROKER, broker_header(), body=body)
        await asker.register()
        assert await asker.is_routed()


@on_loop
async def test_a_broker_with_many_topics_registers(tmp_path: Path) -> None:
    names = [f"topic-{number}" for number in range(5000)]
    async with asking(tmp_path) as asker:
        await asker.register(body=topics_body(*names))
        await asker.register(SLAVE, topics_body(*names), name="broker-b")
        assert len((await asker.route("topic-4999")).broker_datas) == 2
        listed = await asker.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert len(listed) == 5001


@on_loop
async def test_a_first_registration_of_a_single_topic_is_refused(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        with pytest.raises(ServerError, match="register broker failed"):
            await asker.register(body=topics_body())


@on_loop
async def test_a_missing_field_is_named(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        with pytest.raises(ServerError, match="brokerAddr"):
            await asker.ask(RequestCode.REGISTER_BROKER, BrokerNameHeader("broker-a"))


@pytest.mark.parametrize("version", [0, V3_0_11 - 1, V3_0_11, V4_9_8, V5_0_0])
@on_loop
async def test_brokers_of_all_versions_register(tmp_path: Path, version: int) -> None:
    body = topics_body("orders", filter_servers=["10.0.0.1:3000"])
    old = version < V3_0_11
    frame = Frame(
        code=RequestCode.REGISTER_BROKER,
        fields=broker_header(MASTER, acting=None if version < V5_0_0 else False).to_fields(),
        body=fastjson.encode(body.topic_config_serialize_wrapper if old else body),
        version=version,
    )
    async with asking(tmp_path) as asker:
        connection = await asker.client._connection(asker.address)
        response = await connection.call(frame, PATIENCE)
        assert response.code == 0, response.remark
        route = await asker.route()
    assert route.filter_server_table == ({} if old else {MASTER: ["10.0.0.1:3000"]})


@pytest.mark.parametrize("version", [V4_9_8, V5_0_0])
@on_loop
async def test_compressed_registrations_have_mappings_from_5_0_on(
    tmp_path: Path, version: int
) -> None:
    frame = Frame(
        code=RequestCode.REGISTER_BROKER,
        fields=broker_header(MASTER, compressed=True).to_fields(),
        body=compress(topics_body("orders"), with_mapping=version >= V5_0_0),
        version=version,
    )
    async with asking(tmp_path) as asker:
        connection = await asker.client._connection(asker.address)
        assert (await connection.call(frame, PATIENCE)).code == 0
        assert await asker.is_routed()


@on_loop
async def test_a_registration_without_a_body_keeps_a_broker_alive(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        await asker.ask(RequestCode.REGISTER_BROKER, broker_header())
        assert await asker.is_routed()


@on_loop
async def test_a_slave_is_told_where_its_master_is(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        response = await asker.register(SLAVE, broker_id=1)
        assert RegisterBrokerReply.from_fields(response.fields) == RegisterBrokerReply(
            "10.0.0.1:10912", MASTER
        )


@on_loop
async def test_filter_servers_are_kept_while_a_broker_does_not_mention_them(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as asker:
        await asker.register(body=topics_body("orders", filter_servers=["f:1", "f:2"]))
        assert (await asker.route()).filter_server_table == {MASTER: ["f:1", "f:2"]}
        await asker.register(body=topics_body("orders", filter_servers=[]))
        assert (await asker.route()).filter_server_table == {}


# Departure


@on_loop
async def test_a_broker_that_unregisters_is_gone(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        await asker.ask(RequestCode.UNREGISTER_BROKER, leaving_header(broker_header()))
        assert not await asker.is_routed()


@on_loop
async def test_a_broker_goes_with_its_connection(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        async with another(asker) as broker:
            await broker.register()
            assert await asker.is_routed()
        await asker.until_routed(routed=False)


@on_loop
async def test_a_broker_that_registered_again_survives_the_end_of_its_old_connection(
    tmp_path: Path,
) -> None:
    async with name_server(tmp_path) as server, RemotingClient() as client:
        asker = Asker(client, server.address)
        async with another(asker) as newer:
            async with another(asker) as older:
                await older.register()
                await newer.register()
                open_before = len(server._server.connections)
            await until(lambda: len(server._server.connections) < open_before)
            assert await newer.is_routed()
        await asker.until_routed(routed=False)


@on_loop
async def test_a_silent_broker_is_removed_and_its_connection_closed(tmp_path: Path) -> None:
    async with (
        asking(tmp_path, scan_not_active_broker_interval=0.02) as asker,
        another(asker) as broker,
    ):
        await broker.register(timeout_ms=50)
        connection = await broker.client._connection(broker.address)
        await asker.until_routed(routed=False)
        await until(lambda: connection.is_closed)


@on_loop
async def test_heartbeats_and_questions_keep_a_broker(tmp_path: Path) -> None:
    alive = BrokerHeartbeatHeader(CLUSTER, MASTER, "broker-a")
    question = QueryDataVersionHeader("broker-a", MASTER, CLUSTER, 0)
    server = name_server(tmp_path, scan_not_active_broker_interval=0.01)
    clock = server.routes._clock = FakeClock()
    async with server, RemotingClient() as client:
        asker = Asker(client, server.address)
        await asker.register()
        for code, header in (
            (RequestCode.BROKER_HEARTBEAT, alive),
            (RequestCode.QUERY_DATA_VERSION, question),
        ):
            clock.advance(119.0)
            await asker.ask(code, header)
        clock.advance(119.0)
        await asyncio.sleep(0.05)  # a few scans
        assert await asker.is_routed()
        clock.advance(2.0)
        await until(lambda: server.routes.route("orders") is None)


@on_loop
async def test_a_heartbeat_is_answered_if_it_asks_for_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        header = BrokerHeartbeatHeader(CLUSTER, MASTER, "broker-a", epoch=1, max_offset=7)
        assert (await asker.ask(RequestCode.BROKER_HEARTBEAT, header)).code == 0


@on_loop
async def test_a_broker_learns_whether_its_topics_changed(tmp_path: Path) -> None:
    version = DataVersion(counter=3, timestamp=1_700_000_000_000)
    header = QueryDataVersionHeader("broker-a", MASTER, CLUSTER, 0)
    async with asking(tmp_path) as asker:

        async def ask(about: DataVersion) -> tuple[bool, bytes]:
            response = await asker.ask(
                RequestCode.QUERY_DATA_VERSION, header, body=fastjson.encode(about)
            )
            return QueryDataVersionReply.from_fields(response.fields).changed, response.body

        assert await ask(version) == (True, b"")
        await asker.register(body=topics_body("orders", version=version))
        assert await ask(version) == (False, fastjson.encode(version))
        assert await ask(version.bumped(1)) == (True, fastjson.encode(version))


# Groups of brokers


@on_loop
async def test_members_of_a_group_and_of_a_cluster_are_listed(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        await asker.register(SLAVE, broker_id=1)
        header = BrokerMemberGroupHeader(CLUSTER, "broker-a")
        response = await asker.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        assert response.body == (
            b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
            b'"brokerName":"broker-a","cluster":"cluster-1"}}'
        )
        response = await asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = fastjson.decode(response.body, ClusterInfo)
        assert info.cluster_addr_table == {CLUSTER: ["broker-a"]}
        assert info.broker_addr_table["broker-a"].broker_addrs == {0: MASTER, 1: SLAVE}


@on_loop
async def test_the_members_of_an_unknown_group_are_an_empty_list(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        header = BrokerMemberGroupHeader("c", "nobody")
        response = await asker.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        found = fastjson.decode(response.body, MemberGroupBody).broker_member_group
        assert (found.cluster, found.broker_name, found.broker_addrs) == ("c", "nobody", {})


@on_loop
async def test_the_lowest_slave_acts_as_master(tmp_path: Path) -> None:
    async with asking(tmp_path, support_acting_master=True) as asker:
        await asker.register(acting=True)
        await asker.register(SLAVE, broker_id=1, acting=True)
        await asker.ask(RequestCode.UNREGISTER_BROKER, leaving_header(broker_header()))
        route = await asker.route()
        assert route.broker_datas[0].broker_addrs == {0: SLAVE}
        assert route.queue_datas[0].perm == 4


@on_loop
async def test_a_client_in_zone_mode_sees_its_zone(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register(zone="north")
        await asker.register(SLAVE, name="broker-b", zone="south")

        async def groups(**zone: Any) -> list[str]:
            route = await asker.route(**zone)
            return [broker.broker_name for broker in route.broker_datas]

        assert await groups() == ["broker-a", "broker-b"]
        assert await groups(zone_mode=True, zone_name="south") == ["broker-b"]
        assert await groups(zone_mode=True, zone_name=" ") == ["broker-a", "broker-b"]
        assert await groups(zone_mode=False, zone_name="south") == ["broker-a", "broker-b"]


class FakeBroker:
    """Takes the notices of a NameServer."""

    def __init__(self) -> None:
        self.notices: asyncio.Queue[MinBrokerIdChangeHeader] = asyncio.Queue()

    @handles(MinBrokerIdChangeHeader, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    def lowest_changed(self, request: Request[MinBrokerIdChangeHeader]) -> Reply:
        assert request.frame.is_one_way
        self.notices.put_nowait(request.header)
        return Reply()

    def server(self) -> RemotingServer:
        return RemotingServer(ServerConfig(host="127.0.0.1"), Dispatcher(self))

    async def notice(self) -> MinBrokerIdChangeHeader:
        async with asyncio.timeout(PATIENCE):
            return await self.notices.get()


@on_loop
async def test_brokers_are_told_when_the_lowest_id_of_their_group_changes(tmp_path: Path) -> None:
    slave = FakeBroker()
    async with (
        asking(tmp_path, notify_min_broker_id_changed=True) as asker,
        slave.server() as server,
    ):
        await asker.register(server.address, broker_id=1, acting=True)
        async with another(asker) as master:
            await master.register(MASTER, acting=True)
            notice = await slave.notice()
            assert (notice.min_broker_id, notice.min_broker_addr) == (0, MASTER)
            assert (notice.ha_broker_addr, notice.offline_broker_addr) == ("10.0.0.1:10912", None)
        notice = await slave.notice()
        assert (notice.min_broker_id, notice.min_broker_addr) == (1, server.address)
        assert (notice.ha_broker_addr, notice.offline_broker_addr) == (None, MASTER)


@on_loop
async def test_brokers_that_cannot_be_told_trouble_nobody(tmp_path: Path) -> None:
    async with asking(tmp_path, notify_min_broker_id_changed=True) as asker:
        for broker_id, address in enumerate(["no address at all", "127.0.0.1:1"], start=1):
            await asker.register(address, broker_id=broker_id, acting=True)
        await asker.register(acting=True)
        assert await asker.is_routed()


@on_loop
async def test_a_name_server_that_stops_does_not_tell_brokers_that_others_left(
    tmp_path: Path,
) -> None:
    slave = FakeBroker()
    async with slave.server() as server, RemotingClient() as client, RemotingClient() as other:
        async with name_server(tmp_path, notify_min_broker_id_changed=True) as leaving:
            await Asker(client, leaving.address).register(acting=True)
            await Asker(other, leaving.address).register(server.address, broker_id=1, acting=True)
        async with RemotingClient() as last:  # after anything that the NameServer had to say
            await last.notify(
                server.address, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, MinBrokerIdChangeHeader(7)
            )
            assert (await slave.notice()).min_broker_id == 7


# Topics


@on_loop
async def test_topics_are_listed(tmp_path: Path) -> None:
    flags = {"plain": 0, "unit": 1, "subscribed": 2, "both": 3}
    configs = [TopicConfig(topic_name=name, topic_sys_flag=flag) for name, flag in flags.items()]
    async with asking(tmp_path) as asker:
        await asker.register(body=topics_body(*configs))
        await asker.register(SLAVE, topics_body("other"), name="broker-b", cluster="cluster-2")
        listed = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        assert await asker.topics(listed) == sorted([*flags, "TBW102", "other"])
        by_cluster = RequestCode.GET_TOPICS_BY_CLUSTER
        assert await asker.topics(by_cluster, ClusterHeader("cluster-2")) == ["TBW102", "other"]
        assert await asker.topics(by_cluster, ClusterHeader("none")) == []
        assert await asker.topics(RequestCode.GET_UNIT_TOPIC_LIST) == ["both", "unit"]
        subscribed = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST
        assert await asker.topics(subscribed) == ["both", "subscribed"]
        only = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
        assert await asker.topics(only) == ["subscribed"]


@on_loop
async def test_system_topics_are_clusters_and_brokers(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        response = await asker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        found = fastjson.decode(response.body, TopicList)
        assert (found.topic_list, found.broker_addr) == ([CLUSTER, "broker-a"], MASTER)


@on_loop
async def test_lists_can_be_switched_off(tmp_path: Path) -> None:
    off = {"enable_topic_list": False, "enable_all_topic_list": False}
    async with asking(tmp_path, **off) as asker:
        for code, header in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
            (RequestCode.GET_TOPICS_BY_CLUSTER, ClusterHeader("c")),
            (RequestCode.GET_UNIT_TOPIC_LIST, None),
            (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None),
            (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None),
        ):
            with pytest.raises(ServerError, match="disable"):
                await asker.ask(code, header)


@on_loop
async def test_a_topic_is_routed_and_forgotten_by_request(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        queues = TopicRoute(queue_datas=[QueueRoute(broker_name="broker-a", read_queue_nums=2)])
        code, header = RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicHeader("made")
        await asker.ask(code, header, body=fastjson.encode(queues))
        assert (await asker.route("made")).queue_datas == queues.queue_datas
        await asker.ask(code, RegisterTopicHeader("empty"))
        assert not await asker.is_routed("empty")

        delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
        await asker.ask(delete, DeleteTopicHeader("made", "other-cluster"))
        assert await asker.is_routed("made")
        await asker.ask(delete, DeleteTopicHeader("made", CLUSTER))
        assert not await asker.is_routed("made")
        await asker.ask(delete, DeleteTopicHeader("orders"))
        assert not await asker.is_routed("orders")


@on_loop
async def test_the_write_permission_of_a_broker_is_taken_and_given_back(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.register()
        header = BrokerNameHeader("broker-a")
        response = await asker.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        assert WipeWritePermReply.from_fields(response.fields).wipe_topic_count == 2
        assert (await asker.route()).queue_datas[0].perm == 4
        response = await asker.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        assert AddWritePermReply.from_fields(response.fields).add_topic_count == 2
        assert (await asker.route()).queue_datas[0].perm == 6


@on_loop
async def test_routes_are_refused_for_a_while_if_the_setting_says_so(tmp_path: Path) -> None:
    async with asking(tmp_path, need_wait_for_service=True) as asker:
        await asker.register()
        with pytest.raises(ServerError, match="name server not ready"):
            await asker.route()
        await asker.update(waitSecondsForService="0")
        assert await asker.is_routed()


# KV configuration


@on_loop
async def test_kv_configuration_survives_a_restart(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.put_kv("space", "key", "välue")
        await asker.put_kv("space", "other", "x")
        assert await asker.find_kv("space", "key") == "välue"
        await asker.ask(RequestCode.DELETE_KV_CONFIG, KvHeader("space", "other"))
    async with asking(tmp_path) as asker:
        assert await asker.find_kv("space", "key") == "välue"
        response = await asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, KvListHeader("space"))
        assert fastjson.decode(response.body, KvTable).table == {"key": "välue"}


@on_loop
async def test_kv_configuration_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        with pytest.raises(QueryNotFound, match="No config item, Namespace: space Key: key"):
            await asker.find_kv("space", "key")
        with pytest.raises(QueryNotFound, match="No config item, Namespace: space"):
            await asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, KvListHeader("space"))
        await asker.ask(RequestCode.DELETE_KV_CONFIG, KvHeader("space", "key"))


@on_loop
async def test_a_damaged_kv_file_falls_back_to_its_backup(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.put_kv("space", "key", "old")
        await asker.put_kv("space", "key", "new")
    (tmp_path / "kvConfig.json").write_bytes(b'{"configTable":{"sp')
    async with asking(tmp_path) as asker:
        assert await asker.find_kv("space", "key") == "old"


@on_loop
async def test_what_cannot_be_stored_is_refused_and_not_shown(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        (tmp_path / "kvConfig.json").mkdir()
        with pytest.raises(ServerError):
            await asker.put_kv("space", "key", "value")
        with pytest.raises(QueryNotFound):
            await asker.find_kv("space", "key")


@on_loop
async def test_ordered_topics_are_told_to_clients_and_brokers(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.put_kv("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
        response = await asker.register()
        assert response.body == b'{"table":{"orders":"broker-a:4"}}'
        assert (await asker.route()).order_topic_conf is None
        await asker.update(orderMessageEnable="true", returnOrderTopicConfigToBroker="false")
        assert not await asker.is_routed("nowhere")
        assert (await asker.route()).order_topic_conf == "broker-a:4"
        assert (await asker.route("TBW102")).order_topic_conf is None
        assert (await asker.register()).body == b""


# Settings


@on_loop
async def test_settings_are_shown_under_rocketmqs_keys(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        shown = await asker.config()
    assert shown["kvConfigPath"] == str(tmp_path / "kvConfig.json")
    assert shown["serverWorkerThreads"] == "8"
    assert shown["orderMessageEnable"] == "false"


@on_loop
async def test_a_live_setting_takes_effect_at_once_and_survives_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "namesrv.properties"
    store.write_text("# ours\nlistenPort=0\n\n! keep me\norderMessageEnable = false\n")
    async with asking(tmp_path) as asker:
        await asker.register(SLAVE, broker_id=1, acting=True)
        assert (await asker.route()).broker_datas[0].broker_addrs == {1: SLAVE}
        await asker.update(supportActingMaster="true", orderMessageEnable="true")
        assert (await asker.route()).broker_datas[0].broker_addrs == {0: SLAVE}
        assert (await asker.config())["supportActingMaster"] == "true"
    assert store.read_text() == (
        "# ours\nlistenPort=0\n\n! keep me\norderMessageEnable=true\nsupportActingMaster=true\n"
    )


@on_loop
async def test_a_setting_that_needs_a_restart_is_stored_for_it(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, RemotingClient() as client:
        asker = Asker(client, server.address)
        await asker.update(serverSocketBacklog="12345")
        assert (await asker.config())["serverSocketBacklog"] == "12345"
    assert "serverSocketBacklog=12345" in (tmp_path / "namesrv.properties").read_text().split()


@on_loop
async def test_fixed_settings_are_refused_with_all_that_came_with_them(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        for key in sorted(fixed_keys(NameServerConfig, ALL_IGNORED)):
            with pytest.raises(NoPermission, match=f"Can not update config in black list: {key}"):
                await asker.update(orderMessageEnable="true", **{key: "1"})
        assert (await asker.config())["orderMessageEnable"] == "false"
    assert not (tmp_path / "namesrv.properties").exists()


@on_loop
async def test_a_wrong_value_is_refused_by_name_with_all_that_came_with_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        with pytest.raises(InvalidParameter, match=r"maxConnections=0.*1048576"):
            await asker.update(orderMessageEnable="true", maxConnections="0")
        assert (await asker.config())["orderMessageEnable"] == "false"
    assert not (tmp_path / "namesrv.properties").exists()


@on_loop
async def test_settings_that_cannot_be_stored_are_not_changed(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        (tmp_path / "namesrv.properties").mkdir()
        with pytest.raises(ServerError, match=r"namesrv\.properties"):
            await asker.update(orderMessageEnable="true")
        assert (await asker.config())["orderMessageEnable"] == "false"


@on_loop
async def test_an_update_whose_client_went_away_is_finished_before_the_next_begins(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as asker:
        for _ in range(10):
            async with another(asker) as fickle:
                update = asyncio.create_task(fickle.update(orderMessageEnable="true"))
                await asyncio.sleep(0.001)  # now and then it is just being written
                update.cancel()
                await asyncio.gather(update, return_exceptions=True)
            await asker.update(supportActingMaster="true", orderMessageEnable="false")
            await asker.update(supportActingMaster="false")
            shown = await asker.config()
            stored = properties.parse((tmp_path / "namesrv.properties").read_text())
            assert stored.items() <= shown.items()


@on_loop
async def test_keys_without_effect_are_kept_and_unknown_ones_passed_over(tmp_path: Path) -> None:
    async with asking(tmp_path) as asker:
        await asker.update(serverWorkerThreads="3", noSuchKey="x")
        shown = await asker.config()
    assert shown["serverWorkerThreads"] == "3"
    assert "noSuchKey" not in shown
    assert "noSuchKey" not in (tmp_path / "namesrv.properties").read_text()


@on_loop
async def test_updates_at_the_same_time_are_all_stored(tmp_path: Path) -> None:
    keys = [
        "orderMessageEnable",
        "supportActingMaster",
        "notifyMinBrokerIdChanged",
        "deleteTopicWithBrokerRegistration",
        "needWaitForService",
    ]
    async with asking(tmp_path) as asker:
        await asyncio.gather(*(asker.update(**{key: "true"}) for key in keys))
        shown = await asker.config()
    stored = properties.parse((tmp_path / "namesrv.properties").read_text())
    assert stored == dict.fromkeys(keys, "true")
    assert stored.items() <= shown.items()


# Several NameServers


@on_loop
async def test_name_servers_side_by_side_know_only_who_registered_with_them(
    tmp_path: Path,
) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    async with (
        name_server(directories[0]) as one,
        name_server(directories[1]) as two,
        RemotingClient() as client,
    ):
        first, second = Asker(client, one.address), Asker(client, two.address)
        await first.register()
        await second.put_kv("space", "key", "value")
        assert (await first.is_routed(), await second.is_routed()) == (True, False)
        with pytest.raises(QueryNotFound):
            await first.find_kv("space", "key")
        await second.register()
        assert (await second.route()) == (await first.route())


@on_loop
async def test_a_port_in_use_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    async with name_server(tmp_path / "one") as one:
        two = name_server(tmp_path / "two", listen_port=one.port)
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{one.port}"):
            await two.__aenter__()


@on_loop
async def test_a_name_server_can_be_stopped_twice(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server:
        await server.__aexit__(None, None, None)
