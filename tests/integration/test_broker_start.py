"""How a broker starts where something is slow, and how it ends when it is told to meanwhile."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from bolide.broker import registration
from bolide.broker import server as module
from bolide.broker.server import Broker
from bolide.model.names import TBW102
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.server import NameServer
from bolide.protocol.codes import RequestCode
from bolide.remoting.address import format_address
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in, configs_in
from tests.support.mute import mute_server


@pytest.fixture(autouse=True)
def brief_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_UNREGISTER_TIMEOUT", 0.1)


def closed_well(directory: Path) -> bool:
    """Whether the store in a directory was opened and closed in order."""
    root = directory / "store"
    return (root / "checkpoint").exists() and not (root / "abort").exists()


@on_loop
async def test_a_mute_name_server_holds_up_a_start_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REGISTRATION_WAIT", 0.2)
    async with mute_server() as mute:
        begun = time.monotonic()
        async with broker_in(tmp_path, name_servers=(mute,)) as broker:
            assert time.monotonic() - begun < 5.0
            async with BrokerClient(broker.address) as client:
                await client.send("T", b"served all the same")


@on_loop
async def test_a_start_is_over_when_the_first_name_server_knows_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REGISTRATION_WAIT", 20.0)
    config = NameServerConfig(
        bind_address="127.0.0.1", listen_port=0, kv_config_path=tmp_path / "kvConfig.json"
    )
    async with mute_server() as mute, NameServer(config) as server:
        near = format_address(("127.0.0.1", server.port))
        begun = time.monotonic()
        async with broker_in(tmp_path, name_servers=(mute, near)) as broker:
            assert time.monotonic() - begun < 10.0
            async with BrokerClient(broker.address) as client:
                begun = time.monotonic()
                await client.send("New", b"its route is known")
                assert time.monotonic() - begun < 0.9


@on_loop
async def test_a_broker_that_is_stopped_while_it_registers_leaves_its_store_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REGISTRATION_WAIT", 20.0)
    async with mute_server() as mute:
        broker = Broker(*configs_in(tmp_path, name_servers=(mute,)))
        starting = asyncio.create_task(broker.__aenter__())
        await until(lambda: hasattr(broker, "parts"))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert starting.cancelled()
    assert closed_well(tmp_path)


@on_loop
async def test_a_broker_that_is_stopped_during_recovery_leaves_its_store_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(*configs_in(tmp_path))
    begun, may_end = threading.Event(), threading.Event()
    recover = type(broker.store).__enter__

    def slowly(store: object) -> object:
        begun.set()
        may_end.wait(10)
        return recover(broker.store)

    monkeypatch.setattr(broker.store, "__enter__", lambda: slowly(broker.store))
    starting = asyncio.create_task(broker.__aenter__())
    await until(begun.is_set)
    starting.cancel()
    await asyncio.sleep(0.01)
    may_end.set()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled()
    assert closed_well(tmp_path)
    async with broker_in(tmp_path):
        pass


@on_loop
async def test_the_model_of_new_topics_follows_a_setting_that_is_changed(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"defaultTopicQueueNums=2\n")
        await until(lambda: broker.parts.topics.require(TBW102).write_queue_nums == 2)
        await client.send("T", default_topic_queue_nums=16)
        assert broker.parts.topics.require("T").write_queue_nums == 2
