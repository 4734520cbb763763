"""Registration of a broker, with fake NameServers that record the requests."""

import asyncio
import logging
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from bolide.broker import registration as module
from bolide.broker.registration import Registration
from bolide.broker.replicas.role import configured_role
from bolide.protocol import fastjson
from bolide.protocol.bodies.registration import RegisterBrokerBody, decompress
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.namesrv import (
    QueryDataVersionHeader,
    QueryDataVersionReply,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
)
from bolide.protocol.refusals import ServerError
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.aio import on_loop, until
from tests.support.broker_tables import BrokerTables
from tests.support.mute import mute_server
from tests.support.threads import note_threads

ADDRESS, HA_ADDRESS = "10.0.0.1:10911", "10.0.0.1:10912"
DEAD = "127.0.0.1:1"
TASK = "registration"
BUSY: dict[str, Any] = {"register_name_server_period": 0.0}


class FakeNameServer:
    """A NameServer that records registrations, or refuses them."""

    def __init__(self) -> None:
        self.registrations: list[tuple[RegisterBrokerHeader, bytes]] = []
        self.questions: list[QueryDataVersionHeader] = []
        self.departures: list[UnregisterBrokerHeader] = []
        self.knows = False
        self.refuses = False
        self.says_nothing_of_versions = False
        self.answer = b""
        self.holds = asyncio.Event()
        self.holds.set()

    @handles(RegisterBrokerHeader, RequestCode.REGISTER_BROKER)
    async def register(self, request: Request[RegisterBrokerHeader]) -> Reply:
        await self.holds.wait()
        if self.refuses:
            raise ServerError("not now")
        self.registrations.append((request.header, request.body))
        return Reply(header=NoHeader(), body=self.answer)

    @handles(QueryDataVersionHeader, RequestCode.QUERY_DATA_VERSION)
    def query(self, request: Request[QueryDataVersionHeader]) -> Reply:
        self.questions.append(request.header)
        if self.says_nothing_of_versions:
            raise ServerError("what version?")
        return Reply(header=QueryDataVersionReply(changed=not self.knows))

    @handles(UnregisterBrokerHeader, RequestCode.UNREGISTER_BROKER)
    def unregister(self, request: Request[UnregisterBrokerHeader]) -> Reply:
        self.departures.append(request.header)
        return Reply()

    @property
    def topics(self) -> dict[str, TopicConfig]:
        """Topics of the last registration."""
        _, body = self.registrations[-1]
        found = fastjson.decode(body, RegisterBrokerBody)
        return found.topic_config_serialize_wrapper.topic_config_table


@asynccontextmanager
async def name_servers(count: int = 1) -> AsyncIterator[tuple[list[FakeNameServer], list[str]]]:
    found = [FakeNameServer() for _ in range(count)]
    servers = [RemotingServer(ServerConfig(host="127.0.0.1"), Dispatcher(each)) for each in found]
    for server in servers:
        await server.__aenter__()
    try:
        yield found, [server.address for server in servers]
    finally:
        for server in servers:
            await server.__aexit__(None, None, None)


class Bench(NamedTuple):
    registration: Registration
    tables: BrokerTables

    async def creates(self, topic: str) -> float:
        """Seconds that the creation of a topic takes."""
        begun = time.monotonic()
        await self.tables.topics.update(TopicConfig(topic_name=topic))
        await self.registration.announce()
        return time.monotonic() - begun


@asynccontextmanager
async def registering(
    tables: BrokerTables,
    *servers: str,
    lacks_master: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A running registration that has reached a NameServer, if one is available."""
    tables = tables.restarted(name_servers=servers, broker_cluster_name="c1", **settings)
    await tables.topics.update(TopicConfig(topic_name="T", perm=7, attributes={"+a": 'ü\n"'}))
    async with RemotingClient(ClientConfig(connect_timeout=0.5)) as client:
        registration = Registration(
            tables.cell,
            tables.topics,
            client,
            mappings=tables.mappings,
            role=configured_role(tables.cell.value),
            address=lambda: ADDRESS,
            ha_address=lambda: HA_ADDRESS,
            lacks_master=lacks_master,
        )
        tables.topics.on_change.add(registration.record_change)
        tables.cell.on_change(registration.record_change)
        task = asyncio.create_task(registration.run(), name=TASK)
        try:
            await registration.announce()
            yield Bench(registration, tables)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the period between registrations."""
    monkeypatch.setattr(module, "_SHORTEST_PERIOD", 0.01)


@on_loop
async def test_every_name_server_gets_the_broker_and_its_topics(
    tables: BrokerTables,
) -> None:
    async with name_servers(2) as (found, addresses), registering(tables, *addresses):
        await until(lambda: all(server.registrations for server in found))
    for server in found:
        ((header, body),) = server.registrations
        assert (header.broker_name, header.broker_id, header.cluster_name) == ("broker-a", 0, "c1")
        assert (header.broker_addr, header.ha_server_addr) == (ADDRESS, HA_ADDRESS)
        assert header.body_crc32 == zlib.crc32(body) & 0x7FFF_FFFF
        assert server.topics["T"].perm == 7


@on_loop
async def test_a_registration_is_byte_for_byte_as_java_writes_it(tables: BrokerTables) -> None:
    async with name_servers() as ((server,), addresses), registering(tables, *addresses):
        ((_, body),) = server.registrations
    assert body == fastjson.encode(fastjson.decode(body, RegisterBrokerBody))


@on_loop
async def test_a_registration_is_written_on_another_thread(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = note_threads(monkeypatch, module, "RegisterBrokerBody")
    async with name_servers() as (_, addresses), registering(tables, *addresses):
        pass
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@on_loop
async def test_a_compressed_registration_says_the_same(tables: BrokerTables) -> None:
    async with (
        name_servers() as ((server,), addresses),
        registering(tables, *addresses) as bench,
    ):
        bench.tables.cell.apply({"compressedRegister": "true"})
        await bench.registration.announce()
    (_, plain), (header, body) = server.registrations
    assert header.compressed
    assert decompress(body, with_mapping=True) == fastjson.decode(plain, RegisterBrokerBody)


@on_loop
async def test_topics_are_registered_with_the_permission_of_the_broker(
    tables: BrokerTables,
) -> None:
    async with (
        name_servers() as ((server,), addresses),
        registering(tables, *addresses, broker_permission=4) as bench,
    ):
        assert server.topics["T"].perm & 6 == 4
        assert bench.tables.topics.require("T").perm == 7, "its own table stays as it is"


# ---- unavailable NameServers


@on_loop
async def test_an_unavailable_name_server_delays_no_other_and_is_logged_once(
    tables: BrokerTables, caplog: pytest.LogCaptureFixture, busy: None
) -> None:
    caplog.set_level(logging.INFO)
    async with name_servers(2) as ((first, second), addresses):
        second.refuses = True
        async with registering(tables, DEAD, *addresses, **BUSY):
            await until(lambda: len(first.registrations) >= 3)
            await until(lambda: "not now" in caplog.text)
            texts = [record.getMessage() for record in caplog.records]
            assert len([text for text in texts if DEAD in text]) == 1
            assert len([text for text in texts if "not now" in text]) == 1
            second.refuses = False
            await until(
                lambda: f"NameServer {addresses[1]} accepts this broker again" in caplog.text
            )


@on_loop
async def test_a_mute_name_server_keeps_the_others_from_nothing(
    tables: BrokerTables, busy: None
) -> None:
    async with (
        mute_server() as mute,
        name_servers() as ((server,), addresses),
        registering(tables, mute, *addresses, **BUSY) as bench,
    ):
        assert "T" in server.topics
        assert await bench.creates("New") < 0.5
        assert "New" in server.topics
        await until(lambda: len(server.registrations) >= 5)


@on_loop
async def test_a_name_server_that_falls_silent_is_waited_for_once(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANNOUNCE_TIMEOUT", 0.3)
    async with (
        name_servers(2) as ((first, second), addresses),
        registering(tables, *addresses) as bench,
    ):
        await bench.creates("Both")
        assert "Both" in first.topics
        assert "Both" in second.topics
        first.holds = asyncio.Event()
        assert await bench.creates("Late") >= 0.3
        assert await bench.creates("Quick") < 0.3
        assert "Quick" in second.topics
        first.holds.set()
        await until(lambda: "Quick" in first.topics)
        first.holds = asyncio.Event()
        assert await bench.creates("Again") >= 0.3, "it had answered again"
        first.holds.set()


@on_loop
async def test_the_creation_of_a_topic_waits_only_briefly_if_no_name_server_answers(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANNOUNCE_TIMEOUT", 0.1)
    async with mute_server() as mute, registering(tables, mute, DEAD) as bench:
        assert 0.1 <= await bench.creates("New") < 2.0


@on_loop
async def test_no_change_waits_if_all_name_servers_refuse(tables: BrokerTables) -> None:
    async with name_servers() as ((server,), addresses):
        server.refuses = True
        async with registering(tables, *addresses) as bench:
            assert await bench.creates("New") < 0.5


@on_loop
async def test_name_servers_can_be_changed_at_run_time(tables: BrokerTables) -> None:
    async with (
        name_servers(2) as ((old, new), addresses),
        registering(tables, addresses[0]) as bench,
    ):
        bench.tables.cell.apply({"namesrvAddr": addresses[1]})
        await bench.creates("New")
        assert "New" in new.topics
        assert "New" not in old.topics
        await until(lambda: old.departures)
        assert old.departures[0].broker_addr == ADDRESS
        assert not new.departures


@on_loop
async def test_a_name_server_that_is_removed_and_added_again_has_the_broker(
    tables: BrokerTables,
) -> None:
    async with (
        name_servers(2) as ((one, other), addresses),
        registering(tables, *addresses) as bench,
    ):
        await until(lambda: one.registrations and other.registrations)
        bench.tables.cell.apply({"namesrvAddr": addresses[1]})
        await until(lambda: one.departures)
        before = len(one.registrations)
        bench.tables.cell.apply({"namesrvAddr": ";".join(addresses)})
        await until(lambda: len(one.registrations) > before)
        assert len(one.departures) == 1


@on_loop
async def test_a_removed_name_server_that_is_down_delays_changes_only_briefly(
    tables: BrokerTables,
) -> None:
    async with (
        mute_server() as mute,
        name_servers() as ((alive,), addresses),
        registering(tables, addresses[0], mute) as bench,
    ):
        bench.tables.cell.apply({"namesrvAddr": addresses[0]})
        await bench.creates("New")
        await until(lambda: "New" in alive.topics, within=2.0)


# ---- without force


@on_loop
async def test_without_force_an_up_to_date_name_server_gets_only_a_query(
    tables: BrokerTables, busy: None
) -> None:
    async with name_servers(2) as ((knowing, other), addresses):
        knowing.knows = True
        async with registering(tables, *addresses, force_register=False, **BUSY):
            await until(lambda: len(knowing.questions) >= 3 and len(other.registrations) >= 3)
    assert len(knowing.registrations) == 1, "at the start"
    question = knowing.questions[0]
    assert (question.broker_addr, question.broker_name) == (ADDRESS, "broker-a")


@on_loop
async def test_a_name_server_without_a_data_version_gets_a_full_registration(
    tables: BrokerTables, busy: None
) -> None:
    async with name_servers() as ((server,), addresses):
        server.says_nothing_of_versions = True
        async with registering(tables, *addresses, force_register=False, **BUSY):
            await until(lambda: len(server.registrations) >= 3)
    assert len(server.questions) >= 2


@on_loop
async def test_a_change_queued_behind_a_slow_call_is_registered_by_force(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch, busy: None
) -> None:
    """The data version does not cover settings, so their change must force a registration."""
    monkeypatch.setattr(module, "_ANNOUNCE_TIMEOUT", 0.05)
    async with name_servers() as ((server,), addresses):
        server.knows = True
        async with registering(tables, *addresses, force_register=False, **BUSY) as bench:
            server.holds = asyncio.Event()
            await bench.creates("New")
            bench.tables.cell.apply({"brokerPermission": "4"})
            await asyncio.sleep(0.1)  # periodic registrations queue up behind it
            server.holds.set()
            await until(lambda: "New" in server.topics and server.topics["New"].perm & 6 == 4)


# ---- triggers


@on_loop
async def test_a_broker_that_leaves_says_good_bye_to_all(tables: BrokerTables) -> None:
    async with (
        name_servers(2) as (found, addresses),
        registering(tables, DEAD, *addresses) as bench,
    ):
        await bench.registration.unregister()
    for server in found:
        (header,) = server.departures
        assert (header.broker_name, header.broker_addr) == ("broker-a", ADDRESS)


@on_loop
async def test_a_burst_of_changes_is_one_registration(tables: BrokerTables) -> None:
    async with (
        name_servers() as ((server,), addresses),
        registering(tables, *addresses) as bench,
    ):
        for allowed in "42424":
            bench.tables.cell.apply({"brokerPermission": allowed})
        await bench.registration.announce()
        assert len(server.registrations) == 2
        assert server.topics["T"].perm & 6 == 4


@on_loop
async def test_an_announced_change_waits_until_it_is_registered(tables: BrokerTables) -> None:
    async with (
        name_servers() as ((server,), addresses),
        registering(tables, *addresses) as bench,
    ):
        await bench.tables.topics.update(TopicConfig(topic_name="New"))
        await bench.registration.announce()
        assert "New" in server.topics


@on_loop
async def test_changed_settings_are_registered_at_once(tables: BrokerTables) -> None:
    async with (
        name_servers() as ((server,), addresses),
        registering(tables, *addresses) as bench,
    ):
        bench.tables.cell.apply({"brokerPermission": "4"})
        await until(lambda: server.topics["T"].perm & 6 == 4)


@on_loop
async def test_registration_is_periodic_without_changes(tables: BrokerTables, busy: None) -> None:
    async with (
        name_servers() as ((server,), addresses),
        registering(tables, *addresses, **BUSY),
    ):
        await until(lambda: len(server.registrations) >= 3)


@pytest.mark.parametrize(("asked", "period"), [(1.0, 10.0), (30.0, 30.0), (3600.0, 60.0)])
@on_loop
async def test_the_period_is_never_under_ten_seconds_or_over_a_minute(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch, asked: float, period: float
) -> None:
    waited: list[float | None] = []
    timeout = asyncio.timeout

    def noting(seconds: float | None) -> asyncio.Timeout:
        task = asyncio.current_task()
        if task is not None and task.get_name() == TASK:
            waited.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr(asyncio, "timeout", noting)
    async with registering(tables, register_name_server_period=asked):
        await until(lambda: waited)
    assert waited == [period]


@on_loop
async def test_a_slave_that_lacks_its_master_asks_again_soon_and_then_less_often(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    lacks = True
    async with (
        name_servers() as ((server,), addresses),
        registering(tables, *addresses, lacks_master=lambda: lacks, force_register=False) as bench,
    ):
        await until(lambda: len(server.registrations) >= 4)
        assert bench.registration._pause >= 0.04
        lacks = False
        await until(lambda: bench.registration._pause == 0.01)
        assert bench.registration._period() == 30.0


@on_loop
async def test_topics_with_an_order_configuration_are_ordered_topics(tables: BrokerTables) -> None:
    async with name_servers() as ((server,), addresses):
        server.answer = b'{"table":{"T":"broker-a:4","elsewhere":"broker-b:4"}}'
        async with registering(tables, *addresses) as bench:
            topics = bench.tables.topics
            await until(lambda: topics.require("T").order)
            assert topics.find("elsewhere") is None
            await until(lambda: server.topics["T"].order)
