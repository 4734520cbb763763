"""Broker groups in controller mode: elections, confirmed messages, deposed masters."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.server import Broker
from bolide.protocol.ha import EpochStart
from bolide.protocol.refusals import Refusal
from bolide.replication.epochs import Epochs
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in
from tests.support.controllers import controller, free_peers
from tests.support.name_servers import name_server
from tests.unit.store.test_replica_log import log_bytes


class Group:
    """Members of one broker group, with a NameServer and a controller."""

    def __init__(self, directory: Path, stack: AsyncExitStack, common: dict[str, Any]) -> None:
        self._directory = directory
        self._stack = stack
        self._common = common
        self._own: dict[str, AsyncExitStack] = {}
        self.brokers: dict[str, Broker] = {}

    async def start(self, name: str) -> Broker:
        own = self._own[name] = AsyncExitStack()
        self._stack.push_async_callback(own.aclose)
        broker = await own.enter_async_context(broker_in(self._directory / name, **self._common))
        self.brokers[name] = broker
        return broker

    async def stop(self, name: str) -> None:
        del self.brokers[name]
        await self._own.pop(name).aclose()

    def masters(self) -> list[Broker]:
        return [each for each in self.brokers.values() if each.parts.role.is_master]

    async def master(self) -> Broker:
        await until(lambda: len(self.masters()) == 1)
        return self.masters()[0]

    def slaves(self) -> list[Broker]:
        return [each for each in self.brokers.values() if not each.parts.role.is_master]

    async def in_sync(self, count: int) -> None:
        """Wait until the sync-state set has so many members."""
        await until(
            lambda: (
                self.masters()
                and self.masters()[0].parts.master is not None
                and self.masters()[0].membership is not None
                and self.masters()[0].membership.state is not None  # type: ignore[union-attr]
                and len(self.masters()[0].membership.state.members) == count  # type: ignore[union-attr]
            )
        )


@asynccontextmanager
async def group(directory: Path, *names: str, **settings: Any) -> AsyncIterator[Group]:
    peers = free_peers(1)
    async with AsyncExitStack() as stack:
        names_server = await stack.enter_async_context(name_server(directory / "names"))
        leader = controller(directory / "controller", peers)
        await stack.enter_async_context(leader)
        common = {
            "name_servers": (names_server.address,),
            "enable_controller_mode": True,
            "controller_addr": (peers.partition("-")[2],),
            **settings,
        }
        found = Group(directory, stack, common)
        for name in names:
            await found.start(name)
        yield found


@on_loop
async def test_the_first_broker_becomes_master_and_the_others_follow(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", "c") as members:
        master = await members.master()
        await members.in_sync(3)
        async with BrokerClient(master.address) as client:
            for number in range(100):
                await client.send("T", b"%d" % number)
                for slave in members.slaves():
                    assert slave.store.log.end >= master.store.log.end

        end = master.store.log.end
        await until(lambda: all(each.store.log.readable == end for each in members.slaves()))
        assert {log_bytes(each.store) for each in members.slaves()} == {log_bytes(master.store)}


@on_loop
async def test_the_first_epoch_of_an_existing_store_is_all_of_it(tmp_path: Path) -> None:
    """A replica that is interrupted before it has copied the old part goes on in that epoch."""
    async with broker_in(tmp_path / "a") as broker, BrokerClient(broker.address) as client:
        await client.send("T", b"before there were controllers")
    async with group(tmp_path, "a") as members:
        master = await members.master()
        await members.start("b")
        await members.in_sync(2)

        (slave,) = members.slaves()
        epoch = master.parts.role.epoch
        for each in (master, slave):
            assert list(epochs_below(each)) == [EpochStart(epoch, 0)]
        assert log_bytes(slave.store) == log_bytes(master.store)


@on_loop
async def test_epochs_behind_the_log_are_dropped_at_the_start(tmp_path: Path) -> None:
    async with broker_in(tmp_path / "a") as broker, BrokerClient(broker.address) as client:
        await client.send("T", b"x")
        end, epochs = broker.store.log.end, epochs_below(broker)
    epochs.begin(1, 0)
    epochs.begin(2, end + 1)
    async with broker_in(
        tmp_path / "a",
        enable_controller_mode=True,
        controller_addr=(free_peers(1).partition("-")[2],),
    ) as broker:
        assert list(epochs_below(broker)) == [EpochStart(1, 0)]


def epochs_below(broker: Broker) -> Epochs:
    """The epochs in the file of a broker."""
    epochs = Epochs(broker.store_config.value.root / "epochFileCheckpoint")
    epochs.load()
    return epochs


@on_loop
async def test_a_slave_takes_over_with_everything_acknowledged(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as members:
        first = await members.master()
        await members.in_sync(2)
        async with BrokerClient(first.address) as client:
            for number in range(50):
                await client.send("T", b"%d" % number)
        counts = [first.store.max_offset("T", queue) for queue in range(4)]
        (name,) = [name for name, each in members.brokers.items() if each is first]
        await members.stop(name)

        second = await members.master()
        assert second.parts.role.epoch > 1
        assert [second.store.max_offset("T", queue) for queue in range(4)] == counts
        async with BrokerClient(second.address) as client:
            await client.send("T", b"next")
        await members.start(name)
        await members.in_sync(2)
        assert len(members.masters()) == 1


@on_loop
async def test_a_topic_whose_settings_were_not_copied_yet_keeps_its_messages(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a", "b", "c", metadata_sync_interval=60.0) as members:
        first = await members.master()
        await members.in_sync(3)
        async with BrokerClient(first.address) as client:
            sent = await client.send("Fresh", b"x", queue_id=0)
        (name,) = (name for name, each in members.brokers.items() if each is first)
        await members.stop(name)

        second = await members.master()
        assert "Fresh" in second.parts.topics
        async with BrokerClient(second.address) as client:
            found = await client.pull("Fresh", sent.queue_offset)
            assert found.bodies == [b"x"]
        old = await members.start(name)
        await members.in_sync(3)
        await until(lambda: "Fresh" in old.parts.topics)
        assert old.store.max_offset("Fresh", 0) == 1


@on_loop
async def test_a_member_joins_with_tables_that_it_copied_since_it_connected(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a", "b") as members:
        first = await members.master()
        await members.in_sync(2)
        (slave,) = members.slaves()
        replication = slave.parts.replication
        assert isinstance(replication, SlaveReplication)
        adopt, can_adopt = replication.sync._adopt, False

        async def adopt_later(texts: Mapping[str, bytes]) -> None:
            if not can_adopt:
                raise OSError("the disk fails")
            await adopt(texts)

        replication.sync._adopt = adopt_later  # type: ignore[method-assign]
        ha_address, replication._ha_address = replication._ha_address, None
        await members.in_sync(1)
        async with BrokerClient(first.address) as client:
            await client.send("Fresh", b"x")
        replication._ha_address = ha_address
        await until(lambda: slave.store.log.end == first.store.log.end)
        await asyncio.sleep(2.5)  # its log is equal, its tables are not
        assert first.membership is not None
        assert first.membership.state is not None
        assert len(first.membership.state.members) == 1
        can_adopt = True
        await members.in_sync(2)
        assert "Fresh" in slave.parts.topics


@on_loop
async def test_a_raised_number_of_members_in_sync_counts_at_once(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b") as members:
        first = await members.master()
        await members.in_sync(2)
        async with BrokerClient(first.address) as client:
            await client.send("T", b"x")
            first.config.apply({"minInSyncReplicas": "3"})
            with pytest.raises(Refusal, match="minInSyncReplicas"):
                await client.send("T", b"x")
            first.config.apply({"minInSyncReplicas": "1"})
            await client.send("T", b"x")
