"""Broker groups with two members and one controller: ours, and Apache RocketMQ's."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from bolide.chaos.target import LocalTarget
from bolide.cluster.control import masters
from bolide.cluster.plan import ClusterOptions
from tests.interop import apache
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.replica_group import SYNC_OFTEN
from tests.support.ports import free_port

RELEASE = "5.x"
GROUP = "broker-a"
# Neighbours of a NameServer's port, at which our cluster has the other members.
_PORTS_OF_OURS = (2, 102, *(at + shift for at in (1035, 1135) for shift in (-2, 0, 1)))
# What the interop tests relax for busy machines, as RocketMQ has it.
_DEFAULTS_OF_APACHE: Mapping[str, str | int | bool] = {
    "waitTimeMillsInSendQueue": 200,
    "osPageCacheBusyTimeOutMills": 1000,
}


class Group(Protocol):
    """What the rounds need of a broker group; part of `bolide.chaos.target.Target`."""

    @property
    def name_servers(self) -> str: ...

    def members(self, role: str) -> list[str]: ...

    def address_of(self, member: str) -> str: ...

    async def masters(self) -> dict[str, str]: ...

    async def kill(self, member: str) -> None: ...

    async def start(self, member: str) -> None: ...

    def pause(self, member: str) -> None: ...

    def resume(self, member: str) -> None: ...


class ApacheGroup:
    """A NameServer with a controller and brokers, which keep ports and stores at restarts."""

    def __init__(
        self, bench: Bench, directory: Path, members: int = 2, **settings: str | int | bool
    ) -> None:
        self._bench = bench
        self._directory = directory
        self._settings = settings
        names = [f"broker-{number}" for number in range(members)]
        self._ports = {name: free_port(BROKER_NEIGHBOURS) for name in names}
        self._servers: dict[str, Server] = {}
        controller = free_port()
        self._controller = f"127.0.0.1:{controller}"
        namesrv = bench.namesrv(
            RELEASE,
            enableControllerInNamesrv=True,
            controllerDLegerGroup="failover",
            controllerDLegerPeers=f"n0-{self._controller}",
            controllerDLegerSelfId="n0",
            controllerStorePath=str(directory / "controller"),
        )
        self.name_servers = namesrv.address

    def members(self, role: str) -> list[str]:
        return list(self._ports) if role == "broker" else []

    def address_of(self, member: str) -> str:
        return f"127.0.0.1:{self._ports[member]}"

    async def masters(self) -> dict[str, str]:
        by_address = {self.address_of(each): each for each in self._ports}
        found = await masters(self.name_servers) or {}
        addresses = {group: brokers.get(0, "") for group, brokers in found.items()}
        return {group: by_address[at] for group, at in addresses.items() if at in by_address}

    async def start(self, member: str) -> None:
        store = self._directory / member
        self._servers[member] = await asyncio.to_thread(
            self._bench.broker, RELEASE, self.name_servers, jvm=SYNC_OFTEN,
            brokerName=GROUP, listenPort=self._ports[member], haListenPort=0,
            storePathRootDir=str(store), storePathCommitLog=str(store / "commitlog"),
            enableControllerMode=True, controllerAddr=self._controller,
            allAckInSyncStateSet=True, **_DEFAULTS_OF_APACHE, **self._settings,
        )  # fmt: skip

    async def kill(self, member: str) -> None:
        await asyncio.to_thread(self._servers[member].kill)

    def pause(self, member: str) -> None:
        os.killpg(self._servers[member].process.pid, signal.SIGSTOP)

    def resume(self, member: str) -> None:
        os.killpg(self._servers[member].process.pid, signal.SIGCONT)


@asynccontextmanager
async def _ours(directory: Path) -> AsyncIterator[Group]:
    options = ClusterOptions(
        replicas=2, controllers=1, data=directory, base_port=free_port(_PORTS_OF_OURS),
        network="plain",
    )  # fmt: skip
    target = LocalTarget(options)
    async with target.cluster:
        yield target


@asynccontextmanager
async def _apache(directory: Path) -> AsyncIterator[Group]:
    with Bench(directory / "homes") as bench:
        group = await asyncio.to_thread(ApacheGroup, bench, directory)
        for member in group.members("broker"):
            await group.start(member)
        yield group


SERVERS: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Group]]] = {
    "bolide": _ours,
    "apache": _apache,
}


def title(server: str) -> str:
    """The name of a server in tables."""
    if server == "bolide":
        return "Bolide"
    return f"Apache RocketMQ {apache.releases()[RELEASE].version}"
