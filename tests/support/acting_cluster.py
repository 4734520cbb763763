"""A group with a slave that acts while its master is away, and another group, in one event loop."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.server import Broker
from bolide.broker.settings.config import BrokerRole
from tests.support.aio import until
from tests.support.broker import BrokerClient, broker_in
from tests.support.name_servers import name_server


class Cluster:
    """Master and slave of group a and, if wanted, a master of group b."""

    def __init__(self, directory: Path, names: str, common: dict[str, Any]) -> None:
        self.directory = directory
        self.names = names
        """Address of the NameServer."""
        self.common = common
        self.master: Broker
        self.slave: Broker
        self.other: Broker
        self._life = AsyncExitStack()
        self._ports: dict[str, int] = {}
        """Of the master, also next time."""

    async def start_master(self, **settings: Any) -> Broker:
        self._life = AsyncExitStack()
        self.master = await self._life.enter_async_context(
            broker_in(self.directory / "master", **self.common | self._ports | settings)
        )
        config = self.master.config.value
        self._ports = {"listen_port": config.listen_port, "ha_listen_port": config.ha_listen_port}
        return self.master

    async def stop_master(self) -> None:
        await self._life.aclose()

    async def lose_master(self) -> None:
        """Stop the master when the slave has all of it, and wait until the slave acts."""
        end = self.master.store.log.written
        await until(lambda: self.slave.store.log.written >= end)
        replication = self.slave.parts.replication
        assert isinstance(replication, SlaveReplication)
        await until(lambda: replication.replica.following)
        await replication.sync.copy(self.master.address)
        await self.stop_master()
        assert self.slave.parts.acting is not None
        await until(lambda: self.acts)

    @property
    def acts(self) -> bool:
        return self.slave.parts.acting is not None and self.slave.parts.acting.is_acting


@asynccontextmanager
async def cluster(
    directory: Path,
    *,
    other: bool = True,
    notices: bool = True,
    names: str | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """A cluster whose slave is ready to act; with a NameServer of its own unless one is given."""
    async with AsyncExitStack() as stack:
        if names is None:
            server = await stack.enter_async_context(
                name_server(
                    directory / "names",
                    support_acting_master=True,
                    notify_min_broker_id_changed=notices,
                )
            )
            names = server.address
        common = {
            "name_servers": (names,),
            "enable_slave_acting_master": True,
            "enable_remote_escape": True,
            "sync_broker_member_group_period": 0.1,
            "metadata_sync_interval": 0.1,
            **settings,
        }
        found = Cluster(directory, names, common)
        if other:
            found.other = await stack.enter_async_context(
                broker_in(directory / "other", **common | {"broker_name": "broker-b"})
            )
            async with BrokerClient(found.other.address) as client:
                await client.send("T", b"first of b")
        await found.start_master()
        stack.push_async_callback(found.stop_master)
        found.slave = await stack.enter_async_context(
            broker_in(directory / "slave", **common, broker_role=BrokerRole.SLAVE, broker_id=1)
        )
        primary = found.master.parts.master
        assert primary is not None
        await until(lambda: primary.primary.slaves)
        yield found
