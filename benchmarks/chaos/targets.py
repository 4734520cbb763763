"""Broker groups in controller mode that the fault bench harms: ours, and RocketMQ's.

Both have one NameServer with one controller in it, which is not harmed, and three brokers on
loopback. So the faults are those that processes on loopback can have: no cuts, for which each would
need a network namespace of its own, no failing disks, no clocks.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from benchmarks.failover.groups import GROUP, ApacheGroup
from bolide.chaos.faults import Faults
from bolide.chaos.target import LocalTarget, Target
from bolide.cluster.plan import ClusterOptions
from bolide.errors import ConfigError
from tests.interop.bench import Bench
from tests.support.ports import free_port

MEMBERS = 3
NEMESES = ("kill", "kill-all", "restart", "pause")
TRANSACTIONS: Mapping[str, int] = {
    "transactionCheckInterval": 2000,
    "transactionTimeOut": 1000,
    "transactionCheckMax": 1000,
}
"""Open transactions are asked about soon, at both."""
# Neighbours of a NameServer's port, at which our cluster has the other members.
_PORTS_OF_OURS = (
    2, 102, *(at + shift for at in (1035, 1135, 1235) for shift in (-2, 0, 1)),
)  # fmt: skip


class ApacheTarget(ApacheGroup):
    """A group of RocketMQ as the nemeses see it."""

    can_cut = False
    can_inject = False

    def group_of(self, member: str) -> str:
        del member
        return GROUP

    def controllers(self) -> dict[str, str]:
        """None runs in a member that can be harmed."""
        return {}

    async def stop(self, member: str) -> None:
        await asyncio.to_thread(self._servers[member].stop)

    async def cut(self, member: str, others: Iterable[str], direction: str) -> None:
        del others, direction
        raise ConfigError(f"{member} cannot be cut off")

    async def slow(self, member: str, delay: float, rate: float) -> None:
        del delay, rate
        raise ConfigError(f"the links of {member} cannot be slowed")

    async def heal(self, member: str | None = None) -> None:
        """Nothing is ever cut."""

    async def inject(self, member: str, faults: Faults) -> None:
        del faults
        raise ConfigError(f"{member} is a process of RocketMQ: nothing can be injected")


@asynccontextmanager
async def _ours(directory: Path) -> AsyncIterator[Target]:
    settings = {
        "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
        **{key: str(value) for key, value in TRANSACTIONS.items()},
    }
    target = LocalTarget(
        ClusterOptions(
            replicas=MEMBERS, controllers=1, data=directory, base_port=free_port(_PORTS_OF_OURS),
            network="plain", settings=settings,
        )
    )  # fmt: skip
    async with target.cluster:
        yield target


@asynccontextmanager
async def _apache(directory: Path) -> AsyncIterator[Target]:
    with Bench(directory / "homes") as bench:
        target = await asyncio.to_thread(
            ApacheTarget, bench, directory, MEMBERS, timerWheelEnable=True, **TRANSACTIONS
        )
        for member in target.members("broker"):
            await target.start(member)
        yield target


SERVERS: Mapping[str, Callable[[Path], AbstractAsyncContextManager[Target]]] = {
    "bolide": _ours,
    "apache": _apache,
}
