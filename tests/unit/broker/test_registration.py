"""How a broker makes itself known to NameServers; these are stand-ins that note what they hear."""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from bolide.broker import registration as module
from bolide.broker.registration import Registration
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

ADDRESS, HA_ADDRESS = "10.0.0.1:10911", "10.0.0.1:10912"
DEAD = "127.0.0.1:1"


class Registrar:
    """A NameServer that takes what it is told, or refuses it."""

    def __init__(self) -> None:
        self.registrations: list[tuple[RegisterBrokerHeader, bytes]] = []
        self.questions: list[QueryDataVersionHeader] = []
        self.departures: list[UnregisterBrokerHeader] = []
        self.knows = False
        self.refuses = False

    @handles(RegisterBrokerHeader, RequestCode.REGISTER_BROKER)
    def register(self, request: Request[RegisterBrokerHeader]) -> Reply:
        if self.refuses:
            raise ServerError("not now")
        self.registrations.append((request.header, request.body))
        return Reply(header=NoHeader())

    @handles(QueryDataVersionHeader, RequestCode.QUERY_DATA_VERSION)
    def query(self, request: Request[QueryDataVersionHeader]) -> Reply:
        self.questions.append(request.header)
        return Reply(header=QueryDataVersionReply(changed=not self.knows))

    @handles(UnregisterBrokerHeader, RequestCode.UNREGISTER_BROKER)
    def unregister(self, request: Request[UnregisterBrokerHeader]) -> Reply:
        self.departures.append(request.header)
        return Reply()

    @property
    def topics(self) -> dict[str, TopicConfig]:
        """Those of the last registration."""
        _, body = self.registrations[-1]
        found = fastjson.decode(body, RegisterBrokerBody)
        return found.topic_config_serialize_wrapper.topic_config_table


@asynccontextmanager
async def registrars(count: int = 1) -> AsyncIterator[tuple[list[Registrar], list[str]]]:
    found = [Registrar() for _ in range(count)]
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


@asynccontextmanager
async def registering(
    tables: BrokerTables, *servers: str, running: bool = False, **settings: Any
) -> AsyncIterator[Bench]:
    tables = tables.restarted(name_servers=servers, broker_cluster_name="c1", **settings)
    await tables.topics.update(TopicConfig(topic_name="T", perm=7))
    async with RemotingClient(ClientConfig(connect_timeout=0.5)) as client:
        registration = Registration(
            tables.cell,
            tables.topics,
            client,
            address=lambda: ADDRESS,
            ha_address=lambda: HA_ADDRESS,
        )
        task = asyncio.create_task(registration.run()) if running else None
        try:
            yield Bench(registration, tables)
        finally:
            if task:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@on_loop
async def test_every_name_server_is_told_who_the_broker_is_and_what_it_serves(
    tables: BrokerTables,
) -> None:
    async with (
        registrars(2) as (found, addresses),
        registering(tables, *addresses) as bench,
    ):
        assert await bench.registration.register() == 2
    for registrar in found:
        ((header, body),) = registrar.registrations
        assert (header.broker_name, header.broker_id, header.cluster_name) == ("broker-a", 0, "c1")
        assert (header.broker_addr, header.ha_server_addr) == (ADDRESS, HA_ADDRESS)
        assert header.body_crc32 == zlib.crc32(body) & 0x7FFF_FFFF
        assert registrar.topics["T"].perm == 7


@on_loop
async def test_a_compressed_registration_says_the_same(tables: BrokerTables) -> None:
    async with (
        registrars() as ((registrar,), addresses),
        registering(tables, *addresses) as bench,
    ):
        await bench.registration.register()
        bench.tables.cell.apply({"compressedRegister": "true"})
        await bench.registration.register()
    (_, plain), (header, body) = registrar.registrations
    assert header.compressed
    assert decompress(body, with_mapping=True) == fastjson.decode(plain, RegisterBrokerBody)


@on_loop
async def test_topics_are_announced_with_what_the_broker_allows(tables: BrokerTables) -> None:
    async with (
        registrars() as ((registrar,), addresses),
        registering(tables, *addresses, broker_permission=4) as bench,
    ):
        await bench.registration.register()
        assert registrar.topics["T"].perm & 6 == 4
        assert bench.tables.topics.require("T").perm == 7, "its own table stays as it is"


@on_loop
async def test_a_name_server_that_is_away_holds_up_nobody_and_is_told_of_once(
    tables: BrokerTables, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        registrars(2) as ((first, second), addresses),
        registering(tables, DEAD, *addresses) as bench,
    ):
        second.refuses = True
        for _ in range(3):
            assert await bench.registration.register() == 1
        assert len(first.registrations) == 3
        texts = [record.getMessage() for record in caplog.records]
        assert len([text for text in texts if DEAD in text]) == 1
        assert len([text for text in texts if "not now" in text]) == 1
        second.refuses = False
        assert await bench.registration.register() == 2
        assert f"NameServer {addresses[1]} takes this broker again" in caplog.text


@on_loop
async def test_without_force_a_name_server_that_knows_is_only_asked(tables: BrokerTables) -> None:
    async with (
        registrars(2) as ((knowing, other), addresses),
        registering(tables, *addresses) as bench,
    ):
        knowing.knows = True
        assert await bench.registration.register(force=False) == 2
    assert (len(knowing.registrations), len(other.registrations)) == (0, 1)
    (question,) = knowing.questions
    assert (question.broker_addr, question.broker_name) == (ADDRESS, "broker-a")


@on_loop
async def test_a_broker_that_leaves_says_good_bye_to_all(tables: BrokerTables) -> None:
    async with (
        registrars(2) as (found, addresses),
        registering(tables, DEAD, *addresses) as bench,
    ):
        await bench.registration.unregister()
    for registrar in found:
        (header,) = registrar.departures
        assert (header.broker_name, header.broker_addr) == ("broker-a", ADDRESS)


@on_loop
async def test_changed_topics_are_told_at_once_and_many_in_one(tables: BrokerTables) -> None:
    async with (
        registrars() as ((registrar,), addresses),
        registering(tables, *addresses, running=True) as bench,
    ):
        await asyncio.sleep(0)
        for number in range(5):
            await bench.tables.topics.update(TopicConfig(topic_name=f"New{number}"))
        await until(lambda: registrar.registrations and "New4" in registrar.topics)
        assert len(registrar.registrations) < 5


@on_loop
async def test_who_announces_a_change_waits_until_it_is_known(tables: BrokerTables) -> None:
    async with (
        registrars() as ((registrar,), addresses),
        registering(tables, *addresses, running=True) as bench,
    ):
        await bench.tables.topics.update(TopicConfig(topic_name="New"))
        await bench.registration.announce()
        assert "New" in registrar.topics


@on_loop
async def test_changed_settings_are_told_at_once(tables: BrokerTables) -> None:
    async with (
        registrars() as ((registrar,), addresses),
        registering(tables, *addresses, running=True) as bench,
    ):
        await asyncio.sleep(0)
        bench.tables.cell.apply({"brokerPermission": "4"})
        await until(lambda: registrar.registrations)
        assert registrar.topics["T"].perm & 6 == 4


@on_loop
async def test_without_changes_it_registers_now_and_then(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHORTEST_PERIOD", 0.01)
    async with (
        registrars() as ((registrar,), addresses),
        registering(tables, *addresses, running=True, register_name_server_period=0.0),
    ):
        await until(lambda: len(registrar.registrations) >= 3)


@pytest.mark.parametrize(("asked", "period"), [(1.0, 10.0), (30.0, 30.0), (3600.0, 60.0)])
@on_loop
async def test_the_period_is_never_under_ten_seconds_or_over_a_minute(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch, asked: float, period: float
) -> None:
    waited: list[float] = []
    timeout = asyncio.timeout

    def noting(seconds: float | None) -> asyncio.Timeout:
        waited.append(seconds or 0.0)
        return timeout(seconds)

    async with registering(tables, register_name_server_period=asked) as bench:
        monkeypatch.setattr(asyncio, "timeout", noting)
        task = asyncio.create_task(bench.registration.run())
        await asyncio.sleep(0)
        monkeypatch.undo()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert waited == [period]
