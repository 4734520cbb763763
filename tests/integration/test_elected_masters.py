"""Broker groups in controller mode: elections, confirmed messages, deposed masters."""

import asyncio
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.dedup.recovery import WindowReader
from bolide.broker.replicas import membership
from bolide.broker.replicas.membership import Membership
from bolide.broker.replicas.metadata_sync import MetadataSync
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.server import Broker
from bolide.errors import ConfigError
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.protocol.ha import EpochStart
from bolide.protocol.headers.controller import CleanBrokerHeader
from bolide.protocol.inner_batch import unwrap
from bolide.protocol.refusals import Refusal
from bolide.replication.epochs import Epochs
from bolide.store.errors import NoLease, ReplicaRefuses
from bolide.store.tables import has_batch_queues
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.batches import create_batch_topic, items, send_batch
from tests.support.broker import BrokerClient, broker_in
from tests.support.controllers import controller, free_peers
from tests.support.name_servers import name_server
from tests.support.ports import free_port
from tests.unit.store.test_replica_log import log_bytes

NOBODY = membership._NOBODY


class Group:
    """Members of one broker group, with a NameServer and a controller."""

    def __init__(
        self, directory: Path, stack: AsyncExitStack, common: dict[str, Any], peers: str
    ) -> None:
        self._directory = directory
        self._peers = peers
        self.controller = AsyncExitStack()
        stack.push_async_callback(self.controller.aclose)
        self._stack = stack
        self._common = common
        self._own: dict[str, AsyncExitStack] = {}
        self.brokers: dict[str, Broker] = {}

    async def start_controller(self) -> None:
        leader = controller(self._directory / "controller", self._peers)
        await self.controller.enter_async_context(leader)

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
        common = {
            "name_servers": (names_server.address,),
            "enable_controller_mode": True,
            "controller_addr": (peers.partition("-")[2],),
            **settings,
        }
        found = Group(directory, stack, common, peers)
        await found.start_controller()
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
        assert broker.store.may_have_lost_tail


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


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(["commitlog"], id="its log"),
        pytest.param(["commitlog", "checkpoint"], id="log and checkpoint"),
        pytest.param(["commitlog", "checkpoint", "epochFileCheckpoint"], id="all but its id"),
    ],
)
@on_loop
async def test_a_member_that_lost_its_log_is_not_elected(tmp_path: Path, lost: list[str]) -> None:
    """All members are stopped, and the one that comes back first has an empty disk."""
    async with group(tmp_path, "a", "b") as members:
        first = await members.master()
        await members.in_sync(2)
        async with BrokerClient(first.address) as client:
            for number in range(20):
                await client.send("T", b"%d" % number, queue_id=0)
        await until(lambda: all(len(epochs_below(each)) for each in members.brokers.values()))
        names = {each is first: name for name, each in members.brokers.items()}
        await asyncio.gather(*(members.stop(name) for name in names.values()))
        for name in lost:
            path = tmp_path / names[False] / "store" / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

        empty = await members.start(names[False])
        assert empty.membership is not None
        await until(lambda: _is_in_no_set(empty.membership))
        again = await members.start(names[True])
        await members.in_sync(2)
        assert members.masters() == [again]
        assert again.store.max_offset("T", 0) == 20
        await until(lambda: log_bytes(empty.store) == log_bytes(again.store))


def _is_in_no_set(member: Membership | None) -> bool:
    assert member is not None
    state = member.state
    return state is not None and member.member_id not in state.members


@on_loop
async def test_a_topic_whose_settings_were_not_copied_yet_keeps_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MetadataSync, "arrived", lambda *_: None)  # nor soon
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
        monkeypatch.undo()
        old = await members.start(name)
        await members.in_sync(3)
        await until(lambda: "Fresh" in old.parts.topics)
        assert old.store.max_offset("Fresh", 0) == 1


@pytest.mark.parametrize("settings_come", [True, False])
@on_loop
async def test_a_new_topic_with_batch_queues_keeps_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings_come: bool
) -> None:
    """The log reaches the slave before the settings of the topic do."""
    if not settings_come:
        monkeypatch.setattr(MetadataSync, "arrived", lambda *_: None)
    interval = 1.0 if settings_come else 60.0
    async with group(tmp_path, "a", "b", metadata_sync_interval=interval) as members:
        first = await members.master()
        await members.in_sync(2)
        (slave,) = members.slaves()
        async with BrokerClient(first.address) as client:
            await create_batch_topic(client)
            await send_batch(client, items(0, 5))
            await client.send("Bulk", b"5")
            if settings_come:
                await until(lambda: "Bulk" in slave.parts.topics)
            await send_batch(client, items(6, 3))
            await client.send("Bulk", b"9")
        (name,) = (name for name, each in members.brokers.items() if each is first)
        await members.stop(name)

        second = await members.master()
        topic = second.parts.topics.require("Bulk")
        assert has_batch_queues(topic)
        async with BrokerClient(second.address) as client:
            assert await bodies_in(client, "Bulk") == [b"%d" % number for number in range(10)]
            await send_batch(client, items(10, 2))
            assert await bodies_in(client, "Bulk") == [b"%d" % number for number in range(12)]


async def bodies_in(client: BrokerClient, topic: str) -> list[bytes]:
    """The bodies of all messages in queue 0."""
    found = await client.pull(topic, 0)
    return [bytes(message.body) for record in found.records for message in unwrap(record)]


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

        async def adopt_later(*given: Any) -> None:
            if not can_adopt:
                raise OSError("the disk fails")
            await adopt(*given)

        replication.sync._adopt = adopt_later  # type: ignore[assignment, method-assign]
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
async def test_a_member_joins_a_master_with_tables_over_the_limit_of_a_reply(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a") as members:
        first = await members.master()
        note = {"note": "x" * (MAX_FRAME_SIZE // 8_000)}
        await first.parts.topics.update_all(
            TopicConfig(topic_name=f"Topic{at}", attributes=note) for at in range(8_500)
        )
        joined = await members.start("b")
        await members.in_sync(2)
        assert joined.parts.topics.require("Topic8499").attributes == note


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


@on_loop
async def test_a_master_without_a_lease_takes_messages_as_the_setting_says_now(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a") as members:
        master = await members.master()
        async with BrokerClient(master.address) as client:
            await client.send("T", b"confirmed by the controller")
            master.config.apply({"masterLeaseRequired": "true"})
            await client.send("T", b"there is a lease")
            await members.controller.aclose()
            await until(lambda: isinstance(master.store.refusal, NoLease), within=PATIENCE)
            with pytest.raises(Refusal, match="masterLeaseRequired"):
                await client.send("T", b"x")

            master.config.apply({"masterLeaseRequired": "false"})
            await client.send("T", b"none is needed")
            master.config.apply({"masterLeaseRequired": "true"})
            with pytest.raises(Refusal, match="masterLeaseRequired"):
                await client.send("T", b"x")

            await members.start_controller()
            await until(lambda: master.store.refusal is None, within=PATIENCE)
            await client.send("T", b"there is a lease again")


@on_loop
async def test_a_slave_needs_no_lease(tmp_path: Path) -> None:
    async with group(tmp_path, "a", "b", master_lease_required=True) as members:
        await members.in_sync(2)
        (slave,) = members.slaves()
        await members.controller.aclose()
        await until(lambda: isinstance(members.masters()[0].store.refusal, NoLease))
        for required in ("false", "true"):
            slave.config.apply({"masterLeaseRequired": required})
            assert isinstance(slave.store.refusal, ReplicaRefuses)


# ---- masters that cannot begin


async def sent_in_sync(members: Group, count: int) -> Broker:
    """The master, when all members are in sync and have ten messages."""
    master = await members.master()
    await members.in_sync(count)
    async with BrokerClient(master.address) as client:
        for number in range(10):
            await client.send("T", b"%d" % number, queue_id=0)
    return master


async def stop(members: Group, broker: Broker) -> str:
    (name,) = (name for name, each in members.brokers.items() if each is broker)
    await members.stop(name)
    return name


@on_loop
async def test_a_member_that_cannot_begin_its_term_is_replaced_by_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with group(tmp_path, "a", "b", "c") as members:
        first = await sent_in_sync(members, 3)
        slaves = sorted(members.slaves(), key=lambda each: each.membership.member_id)  # type: ignore[union-attr]
        port = slaves[0].config.value.ha_listen_port
        with socket.create_server(("127.0.0.1", port)):  # it wins by its lower id
            await stop(members, first)
            await until(lambda: slaves[1].parts.role.is_master, within=PATIENCE)
        assert caplog.text.count("cannot become master in epoch 2") == 1
        assert f"haListenPort={port}" in caplog.text
        async with BrokerClient(slaves[1].address) as client:
            assert len((await client.pull("T", 0)).bodies) == 10
            await client.send("T", b"next", queue_id=0)
        await members.in_sync(2)
        assert len(members.masters()) == 1


@on_loop
async def test_until_its_term_is_noted_a_master_serves_nobody_and_confirms_nothing(
    tmp_path: Path,
) -> None:
    async with group(tmp_path, "a", "b", "c") as members:
        first = await sent_in_sync(members, 3)
        held = asyncio.Event()
        for each in members.slaves():
            assert each.membership is not None
            each.membership._confirm = lambda _, m=each.membership: _later(m, held)  # type: ignore[method-assign, misc]
        name = await stop(members, first)
        await until(lambda: any(each._unopened for each in members.brokers.values()))
        (winner,) = (each for each in members.brokers.values() if each._unopened)
        (other,) = (each for each in members.brokers.values() if each is not winner)
        assert not winner.parts.role.is_master
        assert winner._unopened is not None
        unopened = winner._unopened.parts.master
        assert unopened is not None
        assert unopened.primary.confirmed() == -1  # what slaves are told
        assert NOBODY in unopened.members
        async with BrokerClient(winner.address) as client:
            with pytest.raises(Refusal, match="changes its role"):
                await client.send("T", b"x", queue_id=0)
            with pytest.raises(Refusal, match="changes its role"):
                await client.pull("T", 0)

        await stop(members, winner)  # it dies before anybody counts on it
        held.set()
        await until(lambda: other.parts.role.is_master, within=PATIENCE)
        async with BrokerClient(other.address) as client:
            assert len((await client.pull("T", 0)).bodies) == 10
        await members.start(name)
        await members.in_sync(2)


async def _later(member: Membership, held: asyncio.Event) -> None:
    await held.wait()
    del member._confirm
    assert member.state is not None
    await member._confirm(member.state.epoch)


@on_loop
async def test_a_taken_ha_port_is_named_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"haListenPort={port}: each member"):
            async with broker_in(
                tmp_path,
                ha_listen_port=port,
                listen_port=free_port(),
                enable_controller_mode=True,
                controller_addr=("127.0.0.1:1",),
            ):
                raise AssertionError("it started")


# ---- controllers of several quorums, and controllers that lost their files


@on_loop
async def test_brokers_that_know_two_quorums_become_masters_of_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = free_peers(1), free_peers(1)
    addresses = tuple(each.partition("-")[2] for each in (one, other))
    async with (
        controller(tmp_path / "one", one) as first,
        controller(tmp_path / "other", other) as second,
    ):
        await until(lambda: first.is_acting and second.is_acting)
        common: dict[str, Any] = {"enable_controller_mode": True, "name_servers": ()}
        async with (
            broker_in(tmp_path / "a", controller_addr=addresses, **common) as a,
            broker_in(tmp_path / "b", controller_addr=addresses[::-1], **common) as b,
        ):
            refusal = "cannot join the group yet: controllerAddr names controllers of different"
            await until(lambda: caplog.text.count(refusal) == 2)
            assert first.view.quorum in caplog.text and second.view.quorum in caplog.text
            assert not first.view.groups and not second.view.groups
            a.config.apply({"controllerAddr": addresses[0]})
            await until(lambda: a.parts.role.is_master)
            assert not b.parts.role.is_master
            a.config.apply({"controllerAddr": ";".join(addresses)})
            await until(lambda: not a.parts.role.is_master)
            assert "this broker acts as no master: controllerAddr names" in caplog.text
            async with BrokerClient(a.address) as client:
                with pytest.raises(Refusal):
                    await client.send("T", b"x")
            a.config.apply({"controllerAddr": addresses[0]})
            await until(lambda: a.parts.role.is_master)


@on_loop
async def test_a_group_goes_on_with_controllers_that_lost_their_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The steps of docs/how-to/run-controllers.md."""
    async with group(tmp_path, "a", "b") as members:
        first = await sent_in_sync(members, 2)
        shorter = await stop(members, first)  # the epochs grow beyond those of a new quorum
        second = await members.master()
        first = await members.start(shorter)
        await members.in_sync(2)
        await stop(members, first)
        await members.in_sync(1)
        async with BrokerClient(second.address) as client:
            await client.send("T", b"last", queue_id=0)
        longer = await stop(members, second)
    roots = {"longer": second.store_config.value.root, "shorter": first.store_config.value.root}
    (tmp_path / "controller").rename(tmp_path / "lost")

    async with group(tmp_path) as members:
        unknown = await members.start(shorter)
        await until(lambda: "These controllers know no group broker-a" in caplog.text)
        assert "first the member whose log ends last" in caplog.text
        await stop(members, unknown)
        for file in ("brokerIdentity", "epochFileCheckpoint"):
            (roots["longer"] / file).unlink()
        master = await members.start(longer)
        await until(lambda: master.parts.role.is_master)
        assert master.parts.role.epoch == 1

        (roots["shorter"] / "brokerIdentity").unlink()
        refusing = await members.start(shorter)
        await until(lambda: "its epoch is 1, but epoch" in caplog.text, within=PATIENCE)
        await stop(members, refusing)

        roots["shorter"].rename(tmp_path / "aside")
        copied = await members.start(shorter)
        await members.in_sync(2)
        assert log_bytes(copied.store) == log_bytes(master.store)
        async with BrokerClient(master.address) as client:
            assert len((await client.pull("T", 0)).bodies) == 11


@on_loop
async def test_a_master_whose_group_was_removed_acknowledges_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clean = CleanBrokerHeader(broker_name="broker-a", is_clean_living_broker=True)
    async with group(tmp_path, "a", "b") as members:
        old = await members.master()
        await members.in_sync(2)
        (address,) = old.config.value.controller_addr
        async with BrokerClient(old.address) as client:
            await client.send("T", b"before")
            await client.remoting.call(address, RequestCode.CLEAN_BROKER_DATA, clean)
            await until(lambda: not members.masters())
            with pytest.raises(Refusal):
                await client.send("T", b"after")
        await until(lambda: "do not know it as member" in caplog.text)

        end = old.store.log.end
        new = await members.start("c")
        await until(lambda: members.masters() == [new])
        assert new.parts.role.epoch > epochs_below(old).last.epoch  # type: ignore[union-attr]
        async with BrokerClient(new.address) as client:
            await client.send("T", b"of another group")
        assert [each.store.log.end for each in members.slaves()] == [end, end]


@on_loop
async def test_a_new_master_knows_the_keys_of_messages_that_were_not_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, confirm = WindowReader.read, Membership._confirm

    def read_later(*given: Any) -> Any:
        time.sleep(0.2)
        return read(*given)

    async def confirm_later(self: Membership, epoch: int) -> None:
        await asyncio.sleep(1.0)  # the windows have been read by then
        await confirm(self, epoch)

    async with group(tmp_path, "a", "b") as members:
        first = await members.master()
        await members.in_sync(2)
        await first.parts.topics.update(
            TopicConfig(topic_name="Once", attributes={"dedup.window": "1h"})
        )
        (slave,) = members.slaves()
        await until(lambda: "Once" in slave.parts.topics)
        replication = slave.parts.replication
        assert isinstance(replication, SlaveReplication)
        for name in ("_report", "_send_report"):
            monkeypatch.setattr(replication.replica, name, lambda _: None)
        keyed = {"properties": {"DEDUP_KEY": "k"}}
        async with BrokerClient(first.address) as client:
            before = first.store.log.end
            sending = asyncio.create_task(client.send("Once", b"x", **keyed))
            await until(lambda: slave.store.log.end == first.store.log.end > before)
            sending.cancel()
        monkeypatch.setattr(WindowReader, "read", read_later)
        monkeypatch.setattr(Membership, "_confirm", confirm_later)
        (name,) = (name for name, each in members.brokers.items() if each is first)
        await members.stop(name)
        assert await members.master() is slave
        async with BrokerClient(slave.address) as client:
            again = await client.send("Once", b"x", **keyed)
        assert (again.queue_offset, slave.store.max_offset("Once", 0)) == (0, 1)
