"""Tables that a slave copies from its master."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.replicas.metadata_sync import MetadataSync
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.replicas.table_copies import LOCAL_TABLES, CopyReader, copied_tables
from bolide.broker.server import Broker
from bolide.broker.settings.config import BrokerRole
from bolide.protocol.bodies.replication import ReplicaState
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.replication import ReplicaStateHeader
from bolide.protocol.refusals import ServerError
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop, until
from tests.support.batches import create_batch_topic, items, send_batch
from tests.support.broker import BrokerClient, broker_in
from tests.support.name_servers import name_server


@asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[tuple[Broker, Broker, MetadataSync]]:
    """A master, and a slave that replicates its log; tests copy the tables themselves."""
    async with broker_in(directory / "master") as master:
        ha_address = f"127.0.0.1:{master.config.value.ha_listen_port}"
        settings: dict[str, Any] = {
            "broker_role": BrokerRole.SLAVE, "broker_id": 1, "ha_master_address": ha_address,
        }  # fmt: skip
        async with broker_in(directory / "slave", **settings) as slave:
            replication = slave.parts.replication
            assert isinstance(replication, SlaveReplication)
            await until(lambda: replication.replica.following)
            yield master, slave, replication.sync


async def replicated(master: Broker, slave: Broker) -> None:
    """Wait until the slave has dispatched all of its master's log."""
    await until(lambda: slave.store.sound_end == master.store.log.end)


async def stop_before_adoption(
    sync: MetadataSync, address: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Task[None], asyncio.Event]:
    """Copy tables up to the point where they are there and not adopted; the event lets it go on."""
    is_there, go_on = asyncio.Event(), asyncio.Event()

    async def wait(position: int) -> bool:
        is_there.set()
        await go_on.wait()
        return True

    with monkeypatch.context() as patch:
        patch.setattr(sync, "_has_log", wait)
        copying = asyncio.create_task(sync.copy(address))
        await is_there.wait()
    return copying, go_on


async def state_of(broker: Broker, known: str = "") -> ReplicaState:
    copy = CopyReader({})
    async with RemotingClient() as client:
        answer = await client.call(
            broker.address, RequestCode.BOLIDE_GET_REPLICA_STATE, ReplicaStateHeader(known)
        )
    copy.add(bytes(answer.body))
    return copy.finish()


def names_in(state: ReplicaState) -> set[str]:
    return {table.name for table in state.tables}


@on_loop
async def test_a_master_hands_out_all_tables_but_those_that_each_broker_derives(
    tmp_path: Path,
) -> None:
    async with broker_in(tmp_path) as master:
        told = await state_of(master)
        tables = copied_tables(master._tables)
    assert names_in(told) == {table.path.name for table in tables.values()}
    assert not tables.keys() & set(LOCAL_TABLES)
    assert {"topics.json", "consumerOffset.json", "filterFunctions.json"} <= names_in(told)
    assert told.log_end == master.store.log.end


@on_loop
async def test_only_what_has_changed_is_sent_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, _, sync):
        await sync.copy(master.address)
        known = ";".join(f"{name}={crc}" for name, crc in sync._known.items())
        assert (await state_of(master, known)).tables == []

        master.parts.offsets.commit("readers", "T", 0, 7)
        assert names_in(await state_of(master, known)) == {"consumerOffset.json"}


@on_loop
async def test_a_slave_has_the_tables_of_its_master_after_a_copy(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        await client.send("T", b"x")
        master.parts.groups.require("readers")
        master.parts.offsets.commit("readers", "T", 0, 1)
        await sync.copy(master.address)
        assert "T" in slave.parts.topics
        assert "readers" in slave.parts.groups
        assert slave.parts.offsets.find("readers", "T", 0) == 1
        assert sync._adopted_on == 1


@on_loop
async def test_a_topic_that_was_deleted_at_the_master_goes_with_its_queues(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        await client.send("T", b"x")
        await sync.copy(master.address)
        assert slave.store.max_offset("T", 0) == 1
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        await sync.copy(master.address)
        assert "T" not in slave.parts.topics
        assert slave.store.max_offset("T", 0) == 0


@on_loop
async def test_a_topic_that_was_created_again_keeps_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        for queue_id in 0, 1:
            await client.send("T", b"old", queue_id=queue_id)
        await sync.copy(master.address)
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})

        copying, go_on = await stop_before_adoption(sync, master.address, monkeypatch)
        await client.send("T", b"new")
        await client.send("T", b"new")
        await replicated(master, slave)
        go_on.set()
        await copying
        assert "T" not in slave.parts.topics
        assert (slave.store.min_offset("T", 0), slave.store.max_offset("T", 0)) == (0, 2)
        assert slave.store.max_offset("T", 1) == 0  # of the old topic

        await client.send("T", b"new")
        await replicated(master, slave)
        await sync.copy(master.address)
        assert "T" in slave.parts.topics
        assert (slave.store.min_offset("T", 0), slave.store.max_offset("T", 0)) == (0, 3)


@on_loop
async def test_what_is_kept_of_a_deleted_topic_goes_with_a_later_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        await client.send("T", b"old")
        await sync.copy(master.address)
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})

        copying, go_on = await stop_before_adoption(sync, master.address, monkeypatch)
        await client.send("T", b"new")
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        await replicated(master, slave)
        go_on.set()
        await copying
        assert slave.store.max_offset("T", 0) == 1

        await sync.copy(master.address)
        assert slave.store.max_offset("T", 0) == 0
        assert "T" not in slave.store.topics()


@on_loop
async def test_a_slave_keeps_a_topic_whose_deletion_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, fail = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def save() -> bool:
        loop.call_soon_threadsafe(is_writing.set)
        fail.wait(10.0)
        raise OSError(errno.ENOSPC, "disk full")

    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        await client.send("T", b"x")
        await sync.copy(master.address)
        with monkeypatch.context() as patch:
            patch.setattr(master._tables.topics, "save", save)
            deleting = asyncio.create_task(
                client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            )
            await is_writing.wait()
            await sync.copy(master.address)
            fail.set()
            with pytest.raises(ServerError, match="nothing is changed"):
                await deleting
        assert "T" in slave.parts.topics
        assert slave.store.max_offset("T", 0) == 1


@on_loop
async def test_a_topic_whose_records_come_first_gets_its_kind_of_queues_on_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        monkeypatch.setattr(MetadataSync, "copy", _do_nothing)  # it would come by itself
        await create_batch_topic(client)
        await client.send("Bulk", b"0")
        await send_batch(client, items(1, 3))
        await until(lambda: slave.store.log.written == master.store.log.end)
        await until(lambda: slave.store.replica.dispatched == master.store.log.end)
        monkeypatch.undo()

        threads = set()
        for name in ("checkpoint", "_sync_queues"):
            original = getattr(slave.store.maintenance, name)

            def noted(*given: Any, original: Any = original) -> Any:
                threads.add(threading.current_thread())
                return original(*given)

            monkeypatch.setattr(slave.store.maintenance, name, noted)
        await sync.copy(master.address)
        assert threads
        assert threading.current_thread() not in threads
        assert (slave.store.min_offset("Bulk", 0), slave.store.max_offset("Bulk", 0)) == (0, 4)


@on_loop
async def test_a_store_that_fails_is_told_the_kinds_of_queues_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        monkeypatch.setattr(MetadataSync, "copy", _do_nothing)
        await create_batch_topic(client)
        await send_batch(client, items(0, 3))
        await until(lambda: slave.store.replica.dispatched == master.store.log.end)
        monkeypatch.undo()

        with monkeypatch.context() as failing:
            failing.setattr(slave.store, "adopt_kinds", _fail)
            with pytest.raises(OSError, match="Input/output"):
                await sync.copy(master.address)
        await sync.copy(master.address)
        assert slave.store.max_offset("Bulk", 0) == 3


async def _do_nothing(*_: object) -> None: ...


def _fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


@on_loop
async def test_tables_wait_for_the_log_that_they_speak_of(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        await client.send("T", b"x")
        await until(lambda: slave.store.log.readable == master.store.log.end)
        slave.store.log.confirmed = 0  # as if the message had not been confirmed yet
        master.parts.offsets.commit("readers", "T", 0, 1)
        copying = asyncio.create_task(sync.copy(master.address))
        await asyncio.sleep(0.1)
        assert not copying.done()
        assert slave.parts.offsets.find("readers", "T", 0) is None

        slave.store.log.confirmed = slave.store.log.end
        await copying
        assert slave.parts.offsets.find("readers", "T", 0) == 1


@on_loop
async def test_a_master_of_rocketmq_is_asked_by_its_own_requests(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave, sync), BrokerClient(master.address) as client:
        await client.send("T", b"x")
        master.parts.offsets.commit("readers", "T", 0, 1)
        routes = master.parts.dispatcher.routes

        del routes[RequestCode.BOLIDE_GET_REPLICA_STATE]
        del routes[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE]  # 4.9 does not have it
        await sync.copy(master.address)
        assert sync._is_java
        assert "T" in slave.parts.topics
        assert slave.parts.offsets.find("readers", "T", 0) == 1


@on_loop
async def test_the_settings_of_a_new_topic_come_with_its_first_message(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path / "names"))
        common: dict[str, Any] = {"name_servers": (names.address,), "metadata_sync_interval": 60.0}
        master = await stack.enter_async_context(broker_in(tmp_path / "master", **common))
        slave = await stack.enter_async_context(
            broker_in(tmp_path / "slave", broker_role=BrokerRole.SLAVE, broker_id=1, **common)
        )
        replication = slave.parts.replication
        assert isinstance(replication, SlaveReplication)
        await until(lambda: replication.sync._adopted_on == 1)
        async with BrokerClient(master.address) as client:
            await client.send("T", b"x")
        await until(lambda: "T" in slave.parts.topics)
