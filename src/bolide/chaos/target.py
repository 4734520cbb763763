"""The cluster under test: what nemeses and measurements need of it.

A `LocalTarget` is a `LocalCluster` of our servers. Another cluster, such as one of Apache
RocketMQ's processes, needs a class with the same methods.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from bolide.admin import AdminClient
from bolide.chaos.faults import FAULTS_VARIABLE, Faults
from bolide.cluster.control import masters
from bolide.cluster.local_cluster import Launch, LocalCluster
from bolide.cluster.plan import ClusterOptions, ClusterPlan, Role
from bolide.errors import BolideError
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.controller import MetadataReply
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

_ASK_WITHIN = 1.0
_CLUSTER = "DefaultCluster"
READY_WITHIN = 60.0
"""Seconds for which the bench waits for a cluster."""


class Target(Protocol):
    """A cluster whose members can be harmed."""

    @property
    def name_servers(self) -> str: ...

    @property
    def can_cut(self) -> bool: ...

    @property
    def can_inject(self) -> bool:
        """Whether `inject` works."""
        ...

    def members(self, role: str) -> Sequence[str]:
        """Names of the members with a role: namesrv, controller or broker."""
        ...

    def group_of(self, member: str) -> str:
        """The broker group of a member."""
        ...

    def address_of(self, member: str) -> str: ...

    def controllers(self) -> Mapping[str, str]:
        """Addresses of the controllers, by the member in which each runs."""
        ...

    async def masters(self) -> dict[str, str]:
        """The member that is master, by broker group, as far as it can be found out now."""
        ...

    async def kill(self, member: str) -> None: ...

    async def stop(self, member: str) -> None: ...

    async def start(self, member: str) -> None:
        """Start a member again if it does not run, and wait until it serves."""

    def pause(self, member: str) -> None: ...

    def resume(self, member: str) -> None: ...

    async def cut(self, member: str, others: Iterable[str], direction: str) -> None: ...

    async def slow(self, member: str, delay: float, rate: float) -> None: ...

    async def heal(self, member: str | None = None) -> None: ...

    async def inject(self, member: str, faults: Faults) -> None:
        """Set the faults inside a broker process."""


class LocalTarget:
    """A local cluster whose brokers are started with faults in their reach."""

    def __init__(self, options: ClusterOptions) -> None:
        self._faults = options.data.absolute() / "faults"
        self._faults.mkdir(parents=True, exist_ok=True)
        names = ClusterPlan.names(options)
        self.cluster = LocalCluster(
            options,
            Launch(
                module="bolide.chaos.member",
                environment={name: {FAULTS_VARIABLE: str(self._file(name))} for name in names},
            ),
        )

    def _file(self, member: str) -> Path:
        return self._faults / f"{member}.json"

    @property
    def name_servers(self) -> str:
        return self.cluster.name_servers

    @property
    def can_cut(self) -> bool:
        return self.cluster.network.kind != "plain"

    @property
    def can_inject(self) -> bool:
        return True

    def members(self, role: str) -> list[str]:
        return [member.name for member in self.cluster.members(Role(role))]

    def group_of(self, member: str) -> str:
        return self.cluster.plan.require(member).group

    def address_of(self, member: str) -> str:
        return self.cluster.plan.address(self.cluster.plan.require(member))

    def controllers(self) -> dict[str, str]:
        return self.cluster.plan.controllers

    async def masters(self) -> dict[str, str]:
        """From the NameServers."""
        by_address = {self.address_of(each): each for each in self.members("broker")}
        found = await masters(self.name_servers) or {}
        addresses = {group: brokers.get(0, "") for group, brokers in found.items()}
        return {group: by_address[at] for group, at in addresses.items() if at in by_address}

    async def kill(self, member: str) -> None:
        await self.cluster.kill(member)

    async def stop(self, member: str) -> None:
        await self.cluster.stop(member)

    async def start(self, member: str) -> None:
        await self.cluster.start(member)

    def pause(self, member: str) -> None:
        self.cluster.pause(member)

    def resume(self, member: str) -> None:
        self.cluster.resume(member)

    async def cut(self, member: str, others: Iterable[str], direction: str) -> None:
        await self.cluster.cut(member, others, direction)

    async def unplug(self, member: str) -> None:
        """Cut a member off from everybody, at one moment."""
        await self.cluster.unplug(member)

    async def slow(self, member: str, delay: float, rate: float) -> None:
        await self.cluster.slow(member, delay, rate)

    async def heal(self, member: str | None = None) -> None:
        await self.cluster.heal(member)

    async def inject(self, member: str, faults: Faults) -> None:
        await asyncio.to_thread(faults.write, self._file(member))


async def leading_controller(target: Target) -> str:
    """The member whose controller leads.

    Raises:
        BolideError: none said so in time.
    """
    deadline = time.monotonic() + READY_WITHIN
    async with RemotingClient() as client:
        while time.monotonic() < deadline:
            for member, address in target.controllers().items():
                with suppress(BolideError):
                    code = RequestCode.CONTROLLER_GET_METADATA_INFO
                    answer = await client.call(address, code, within=_ASK_WITHIN)
                    if MetadataReply.from_fields(answer.fields).is_leader:
                        return member
            await asyncio.sleep(0.1)
    raise BolideError(f"no controller led within {READY_WITHIN:g} s")


async def create_topic(
    name_servers: str, topic: str, queues: int, attributes: Mapping[str, str] | None = None
) -> None:
    """Create a topic on every master; raises the error of the last try if it takes too long."""
    async with AdminClient(name_servers) as admin:
        deadline = time.monotonic() + READY_WITHIN
        while True:
            try:
                await admin.topics.create(topic, _CLUSTER, queues=queues, attributes=attributes)
            except BolideError as exc:
                if time.monotonic() > deadline:
                    raise
                log.info("the topic %s cannot be created yet: %s", topic, exc)
                await asyncio.sleep(0.2)
            else:
                return


class BrokerGroup(Protocol):
    """What `until_whole` needs of a target."""

    @property
    def name_servers(self) -> str: ...

    def members(self, role: str) -> Sequence[str]: ...

    def address_of(self, member: str) -> str: ...

    async def masters(self) -> dict[str, str]: ...


async def until_whole(target: BrokerGroup, within: float = READY_WITHIN) -> str:
    """Wait until the group has a master with all others in sync; returns the master.

    Raises:
        BolideError: that did not happen in time.
    """
    slaves = len(target.members("broker")) - 1
    deadline = time.monotonic() + within
    async with AdminClient(target.name_servers) as admin:
        while time.monotonic() < deadline:
            for master in (await target.masters()).values():
                with suppress(BolideError):
                    status = await admin.brokers.ha_status(target.address_of(master))
                    if status.in_sync_slave_nums >= slaves:
                        return master
            await asyncio.sleep(0.1)
    raise BolideError(f"the slaves were not in sync within {within:g} s")
