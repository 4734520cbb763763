import asyncio
import logging
import socket

import pytest

from bolide.client.errors import GroupTaken, NameServersUnreachable, NoNameServer, WrongState
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.settings import ClientSettings
from bolide.errors import ConfigError
from bolide.model.message import Host, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ConsumeVerdict, DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Subscription
from bolide.protocol.bodies.offsets import ConsumerStatus, ResetOffsets
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.clients import (
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    RunningInfoHeader,
)
from bolide.protocol.headers.offsets import ConsumerStatusHeader, ResetOffsetHeader
from bolide.protocol.record import encode_message
from bolide.protocol.refusals import SystemBusy
from bolide.remoting.errors import CallTimedOut
from bolide.remoting.tls import ClientTls
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.cluster import FakeBroker, FakeCluster, fake_cluster, route_of
from tests.unit.client.instance.test_routes_name_servers import address_server

QUEUE = MessageQueue("T", "broker-a", 1)
NOWHERE = "127.0.0.1:1"


class Consumer:
    """A consumer that notes what its instance asks."""

    def __init__(self) -> None:
        self.rebalanced = asyncio.Event()
        self.changed: list[str] = []
        self.reset: dict[MessageQueue, int] = {}

    def topics(self) -> set[str]:
        return {"T"}

    def heartbeat_entry(self) -> ConsumerGroup:
        return ConsumerGroup(group_name="G", subscription_data_set=[Subscription(topic="T")])

    def route_changed(self, topic: str) -> None:
        self.changed.append(topic)

    def rebalance_soon(self) -> None:
        self.rebalanced.set()

    def running(self) -> RunningConsumer:
        return RunningConsumer(properties={"a": "b"})

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: 5}

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.reset = offsets

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption:
        assert (message.topic, message.broker_name) == ("T", "broker-a")
        return DirectConsumption(consume_result=ConsumeVerdict.CR_SUCCESS)


class Producer:
    def topics(self) -> set[str]:
        return {"T"}


def settings(*addresses: str, **more: object) -> ClientSettings:
    return ClientSettings(
        name_servers=addresses,
        client_ip="10.0.0.1",
        **more,  # type: ignore[arg-type]  # the keys vary
    )


async def acquired(cluster: FakeCluster, **more: object) -> ClientInstance:
    return await ClientInstance.acquire(settings(cluster.name_server.address, **more))


@on_loop
async def test_equal_settings_share_an_instance_until_the_last_lets_go() -> None:
    async with fake_cluster() as cluster:
        first, second = await acquired(cluster), await acquired(cluster)
        other = await acquired(cluster, instance_name="other")
        assert first is second
        assert first is not other
        await first.release()
        await other.release()
        await second.routes.require("T")
        await second.release()
        third = await acquired(cluster)
        assert third is not first
        await third.release()


@on_loop
async def test_one_client_id_with_other_settings_is_refused() -> None:
    async with fake_cluster() as cluster:
        first = await acquired(cluster)
        with pytest.raises(ConfigError, match="with another namespace, call_timeout: brokers"):
            await acquired(cluster, call_timeout=4.0, namespace="NS")
        await first.release()
        other = await acquired(cluster, call_timeout=4.0)
        await other.release()


def test_one_client_id_lives_on_one_event_loop_at_a_time() -> None:
    async def acquire_and_release() -> None:
        await (await ClientInstance.acquire(settings())).release()

    async def scenario() -> None:
        instance = await ClientInstance.acquire(settings())
        with pytest.raises(ConfigError, match="on another event loop"):
            await asyncio.to_thread(asyncio.run, acquire_and_release())
        await instance.release()
        await asyncio.to_thread(asyncio.run, acquire_and_release())
        await ClientInstance.acquire(settings())  # nobody releases it

    asyncio.run(scenario())
    asyncio.run(acquire_and_release())


@on_loop
async def test_without_a_name_server_the_error_says_what_to_give() -> None:
    instance = await ClientInstance.acquire(settings())
    with pytest.raises(NoNameServer, match="give name_server="):
        await instance.routes.require("T")
    await instance.release()


@on_loop
async def test_it_starts_without_a_name_server_and_works_once_there_is_one() -> None:
    instance = await ClientInstance.acquire(settings(NOWHERE))
    with pytest.raises(NameServersUnreachable, match=NOWHERE) as failed:
        await instance.routes.require("T")
    assert failed.value.code == 10004
    async with fake_cluster() as cluster:
        instance.name_servers.set([cluster.name_server.address])
        assert await instance.routes.subscribe_queues("T")
        await instance.release()


@on_loop
async def test_the_next_name_server_is_asked_if_one_is_down() -> None:
    async with fake_cluster() as cluster:
        address = cluster.name_server.address
        instance = await ClientInstance.acquire(settings(NOWHERE, address))
        await instance.routes.require("T")
        assert instance.name_servers.in_order()[0] == address
        await instance.release()


@on_loop
async def test_the_list_comes_from_an_address_server() -> None:
    async with fake_cluster() as cluster:
        with address_server(cluster.name_server.address) as url:
            instance = await ClientInstance.acquire(settings(address_server=url))
            await instance.routes.require("T")
            assert instance.name_servers.addresses == (cluster.name_server.address,)
            await instance.release()


@on_loop
async def test_an_address_server_that_is_down_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = f"http://{NOWHERE}/rocketmq/nsaddr"
    instance = await ClientInstance.acquire(settings(address_server=url, call_timeout=0.2))
    with pytest.raises(NoNameServer):
        await instance.routes.require("T")
    await instance._query_address_server(url)
    await instance.release()
    assert caplog.text.count("returns no list of NameServers") == 1


@on_loop
async def test_an_address_server_that_talks_nonsense_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = iter([IndexError("unheard of"), ConfigError("no list")])

    def fetch(_url: str, _timeout: float) -> tuple[str, ...]:
        for failure in failures:
            raise failure
        return ("10.0.0.9:9876",)

    monkeypatch.setattr("bolide.client.instance.instance.fetch_addresses", fetch)
    monkeypatch.setattr("bolide.client.instance.instance.RETRY_INTERVAL", 0.001)
    instance = await ClientInstance.acquire(settings(address_server="http://somewhere"))
    await until(lambda: instance.name_servers.addresses == ("10.0.0.9:9876",))
    await instance.release()


@on_loop
async def test_a_consumer_is_told_of_to_masters_and_slaves_and_a_producer_to_masters() -> None:
    async with fake_cluster("broker-a", "slave") as cluster:
        master, slave = cluster.brokers
        route = route_of(master)
        route.broker_datas[0].broker_addrs[1] = slave.address
        cluster.name_server.routes["T"] = route
        instance = await acquired(cluster)
        instance.add_producer("P", Producer())
        await instance.routes.require("T")
        beat = await asyncio.wait_for(master.heartbeats.get(), PATIENCE)
        assert beat.client_id == "10.0.0.1@DEFAULT"
        assert [each.group_name for each in beat.producer_data_set] == ["P"]
        assert slave.heartbeats.empty()
        instance.add_consumer("G", Consumer())
        beat = await asyncio.wait_for(slave.heartbeats.get(), PATIENCE)
        assert [each.group_name for each in beat.consumer_data_set] == ["G"]
        await until(lambda: master.heartbeats.qsize() == 1)
        await instance.remove_consumer("G")
        await instance.remove_producer("P")
        said = [(each.consumer_group, each.producer_group) for each in master.unregistered]
        assert said == [("G", None), (None, "P")]
        await instance.release()


@on_loop
async def test_one_group_has_one_member_in_an_instance() -> None:
    async with fake_cluster() as cluster:
        instance = await acquired(cluster)
        instance.add_consumer("G", Consumer())
        instance.add_producer("G", Producer())
        with pytest.raises(GroupTaken, match="a consumer of group 'G'"):
            instance.add_consumer("G", Consumer())
        with pytest.raises(GroupTaken, match="a producer of group 'G'"):
            instance.add_producer("G", Producer())
        await instance.remove_consumer("G")
        instance.add_consumer("G", Consumer())
        await instance.release()


@on_loop
async def test_an_older_heartbeat_never_comes_in_after_a_newer_one() -> None:
    async with fake_cluster() as cluster:
        (broker,) = cluster.brokers
        instance = await acquired(cluster)
        await instance.routes.require("T")
        broker.hold = asyncio.Event()
        instance.add_producer("older", Producer())
        first = asyncio.create_task(instance.heartbeat())
        await asyncio.wait_for(broker.heartbeats.get(), PATIENCE)
        instance.add_producer("newer", Producer())
        second = asyncio.create_task(instance.heartbeat())
        await instance.call(broker.address, RequestCode.UNREGISTER_CLIENT, {"clientID": "x"})
        assert broker.heartbeats.empty()
        broker.hold.set()
        await asyncio.gather(first, second)
        beat = await broker.heartbeats.get()
        assert [each.group_name for each in beat.producer_data_set] == ["older", "newer"]
        await instance.release()


@on_loop
async def test_heartbeats_go_on_and_a_silent_broker_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with fake_cluster("broker-a", "broker-b") as cluster:
        instance = await acquired(cluster, heartbeat_interval=0.01)
        instance.add_producer("P", Producer())
        dead = FakeBroker("dead")
        dead.address = NOWHERE
        cluster.name_server.routes["T"] = route_of(*cluster.brokers, dead)
        await instance.routes.require("T")
        for _ in range(4):
            await asyncio.wait_for(cluster.brokers[0].heartbeats.get(), PATIENCE)
        await instance.release()
    assert caplog.text.count(f"broker {NOWHERE} does not accept heartbeats") == 1


@on_loop
async def test_a_broker_that_lost_the_connection_hears_of_the_client_with_the_next_call() -> None:
    async with fake_cluster() as cluster:
        (broker,) = cluster.brokers
        instance = await acquired(cluster)
        instance.add_producer("P", Producer())
        await instance.routes.require("T")
        await asyncio.wait_for(broker.heartbeats.get(), PATIENCE)
        for connection in broker.connections:
            connection.abort()
        await until(lambda: not instance.remoting.is_connected(broker.address))
        await instance.call(broker.address, RequestCode.UNREGISTER_CLIENT, {"clientID": "x"})
        await asyncio.wait_for(broker.heartbeats.get(), PATIENCE)
        await instance.release()


@on_loop
async def test_routes_are_polled_and_offline_brokers_forgotten() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster:
        instance = await acquired(cluster, route_interval=0.01)
        consumer = Consumer()
        instance.add_consumer("G", consumer)
        await instance.routes.require("T")
        assert instance.routes.brokers.keys() == {"broker-a", "broker-b"}
        cluster.name_server.routes["T"] = route_of(cluster.brokers[0])
        await until(lambda: len(consumer.changed) == 2)
        assert instance.routes.brokers.keys() == {"broker-a"}
        await instance.release()


@on_loop
async def test_a_poll_of_the_routes_notices_a_suspect_that_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bolide.client.instance.suspects.FIRST_PAUSE", 60.0)
    monkeypatch.setattr("bolide.client.instance.suspects.LONGEST_PAUSE", 60.0)
    monkeypatch.setattr("bolide.client.instance.instance._PROBE_TIMEOUT", 0.1)
    async with fake_cluster() as cluster:
        broker = cluster.brokers[0]
        instance = await acquired(cluster)
        instance.add_producer("P", Producer())
        await instance.routes.require("T")
        await instance.heartbeat()
        broker.hold = asyncio.Event()
        before = broker.heartbeats.qsize()
        instance.broker_failed(broker.address, "T")
        await until(lambda: broker.heartbeats.qsize() > before)
        del cluster.name_server.routes["T"]  # the only group of the topic is forgotten
        await instance.poll_routes()
        assert broker.address in instance.suspects
        broker.hold.set()
        broker.hold = None
        cluster.name_server.routes["T"] = route_of(broker)
        await instance.poll_routes()
        await until(lambda: not instance.suspects)
        await instance.release()


@on_loop
async def test_a_name_server_that_goes_and_comes_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with fake_cluster() as cluster:
        instance = await acquired(cluster)
        instance.add_producer("P", Producer())
        instance.name_servers.set([NOWHERE])
        await instance.poll_routes()
        await instance.poll_routes()
        instance.name_servers.set([cluster.name_server.address])
        await instance.poll_routes()
        await instance.release()
    assert caplog.text.count("the routes cannot be refreshed") == 1
    assert caplog.text.count("the routes can be refreshed again") == 1


@on_loop
async def test_a_route_that_is_refused_does_not_keep_the_others_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Many(Producer):
        def topics(self) -> set[str]:
            return {"A", "Missing", "T"}

    caplog.set_level(logging.INFO)
    async with fake_cluster() as cluster:
        routes, refused = cluster.name_server.routes, cluster.name_server.refused
        routes["A"] = routes["T"]
        instance = await acquired(cluster)
        instance.add_producer("P", Many())
        refused["A"] = SystemBusy("flow control")
        for _ in range(2):
            await instance.poll_routes()
        assert instance.routes.find("T") is not None
        del refused["A"]
        await instance.poll_routes()
        assert instance.routes.find("A") is not None
        await instance.release()
    assert caplog.text.count("the route of topic A cannot be refreshed: flow control") == 1
    assert caplog.text.count("the route of topic A can be refreshed again") == 1
    assert "Missing" not in caplog.text


@on_loop
async def test_who_waits_for_a_route_is_told_of_the_end() -> None:
    with address_server("") as url:  # nobody will ever say whom to ask
        instance = await ClientInstance.acquire(settings(address_server=url, call_timeout=60.0))
        waiting = asyncio.create_task(instance.routes.require("T"))
        await asyncio.sleep(0)
        await instance.release()
        with pytest.raises(WrongState, match="closed while it fetched the route of 'T'"):
            await waiting


@on_loop
async def test_the_time_for_a_call_covers_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # nobody greets it
        instance = await ClientInstance.acquire(settings(NOWHERE, tls=ClientTls()))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = asyncio.get_running_loop().time()
        with pytest.raises(CallTimedOut, match="did not answer request 34 within"):
            await instance.call(address, RequestCode.HEART_BEAT, within=0.05)
        assert asyncio.get_running_loop().time() - began < instance.settings.connect_timeout
        await instance.release()


async def asked(broker: FakeBroker, code: RequestCode, header: Header, body: bytes = b"") -> Frame:
    """What a broker asks of its one client."""
    (connection,) = broker.connections
    return await connection.call(Frame(code=code, fields=header.to_fields(), body=body), PATIENCE)


@on_loop
async def test_requests_of_brokers_reach_the_consumer_of_the_group() -> None:
    async with fake_cluster() as cluster:
        (broker,) = cluster.brokers
        instance = await acquired(cluster)
        consumer = Consumer()
        instance.add_consumer("G", consumer)
        await instance.routes.require("T")
        await asyncio.wait_for(broker.heartbeats.get(), PATIENCE)

        await asked(broker, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupHeader("G"))
        assert consumer.rebalanced.is_set()

        reset = ResetOffsetHeader(topic="T", group="G", timestamp=0, is_force=True)
        body = fastjson.encode(ResetOffsets(offset_table={QUEUE: 6}))
        await asked(broker, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset, body)
        assert consumer.reset == {QUEUE: 6}

        status = ConsumerStatusHeader(topic="T", group="G")
        answer = await asked(broker, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status)
        found = fastjson.decode(answer.body, ConsumerStatus)
        assert found.message_queue_table == {QUEUE: 5}

        running = RunningInfoHeader(consumer_group="G", client_id="c", jstack_enable=True)
        answer = await asked(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, running)
        told = fastjson.decode(answer.body, RunningConsumer)
        assert told.properties == {"a": "b"}
        assert told.jstack is not None
        assert "MainThread" in told.jstack

        directly = ConsumeDirectlyHeader(consumer_group="G", broker_name="broker-a")
        host = Host("10.0.0.1", 1)
        message = encode_message(StoredMessage("T", b"1", {}, born_host=host, store_host=host))
        answer = await asked(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, directly, message)
        verdict = fastjson.decode(answer.body, DirectConsumption)
        assert verdict.consume_result is ConsumeVerdict.CR_SUCCESS
        await instance.release()


@on_loop
async def test_a_request_for_a_group_that_is_not_here_is_refused_as_java_does() -> None:
    async with fake_cluster() as cluster:
        (broker,) = cluster.brokers
        instance = await acquired(cluster)
        instance.add_consumer("G", Consumer())
        await instance.routes.require("T")
        await asyncio.wait_for(broker.heartbeats.get(), PATIENCE)
        header = RunningInfoHeader(consumer_group="other", client_id="c")
        answer = await asked(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The Consumer Group <other> not exist in this consumer"
        left = ConsumerGroupHeader("other")
        answer = await asked(broker, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, left)
        assert answer.code == ResponseCode.SUCCESS
        await instance.release()


@on_loop
async def test_the_vip_channel_is_two_ports_below() -> None:
    async with fake_cluster() as cluster:
        plain = await acquired(cluster)
        vip = await acquired(cluster, vip_channel=True, instance_name="vip")
        assert plain.vip("10.0.0.1:10911") == "10.0.0.1:10911"
        assert vip.vip("[::1]:10911") == "[::1]:10909"
        await plain.release()
        await vip.release()
