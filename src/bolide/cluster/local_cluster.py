"""A cluster of child processes, and what can be done to its members and their links."""

import asyncio
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bolide.cluster.data_directory import ClusterState, DataDirectory, MemberState
from bolide.cluster.member_process import MemberProcess
from bolide.cluster.network import Network, make_network
from bolide.cluster.plan import ClusterOptions, ClusterPlan, Member, Role
from bolide.cluster.proxy import CLIENTS, Flow
from bolide.errors import ConfigError

log = logging.getLogger(__name__)

DIRECTIONS = ("both", "in", "out")
EVERYBODY = "all"
"""In place of the names of all other members and the clients."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How members are started, for those that inject faults into them."""

    module: str = "bolide"
    environment: Mapping[str, Mapping[str, str]] | None = None
    """More environment variables, by member."""


class LocalCluster:
    """Runs in its `async with` block; belongs to one event loop.

    Attributes:
        plan: with namespaces its addresses are only final inside the block.
        control: the socket on which the cluster takes commands, if it does.

    Raises:
        ConfigError: a port or the directory is taken, or the network cannot be had.
        MemberFailed: a member did not start; those started before have been stopped.
    """

    def __init__(self, options: ClusterOptions, launch: Launch | None = None) -> None:
        self._launch = launch or Launch()
        self._cuts: set[Flow] = set()
        self._slow: set[str] = set()
        self._unplugged: set[str] = set()
        self._options = options
        self._directory = DataDirectory(options.data)
        self._is_starting, self._is_closing = True, False
        self.control = ""
        names = ClusterPlan.names(options)
        self.network: Network = make_network(options.network, names, self._pids)
        self._lay_out()

    def _lay_out(self) -> None:
        """Plan the members for the addresses of the network."""
        self.plan = ClusterPlan.of(self._options, self.network.addresses())
        self._processes = {
            member.name: MemberProcess(
                member, self.network.command_prefix(member.name), self._launch.module
            )
            for member in self.plan.members
        }

    @property
    def name_servers(self) -> str:
        """Addresses of the NameServers, as clients take them."""
        return self.plan.name_servers

    @property
    def data(self) -> Path:
        return self._options.data

    @property
    def is_open(self) -> bool:
        """Whether all members have started, and the cluster is not about to end."""
        return not self._is_starting and not self._is_closing

    async def __aenter__(self) -> Self:
        self._directory.acquire_for_start()
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self) -> None:
        await self.network.claim()
        self._lay_out()
        self.write_state()
        self.plan.write_files()
        await self.network.open(self.plan.members)
        for role in Role:  # NameServers first, brokers last
            await self._start_all(each.name for each in self.plan.members if each.role is role)
        self._is_starting = False
        self.write_state()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all members, brokers first, and remove the network."""
        self._is_closing = True
        try:
            for role in reversed(Role):
                chosen = [each for each in self._processes.values() if each.member.role is role]
                await asyncio.gather(*(process.stop() for process in chosen))
            for process in self._processes.values():
                process.close()
            await self.network.close()
            self._directory.remove_state()  # nothing is left that `down` would have to end
        finally:
            self._directory.release()

    async def _start_all(self, names: Iterable[str]) -> None:
        results = await asyncio.gather(*map(self.start, names), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    # ---- members

    def members(self, role: Role | None = None) -> list[Member]:
        return [each for each in self.plan.members if role in {None, each.role}]

    def process(self, name: str) -> MemberProcess:
        """Raises ConfigError: there is no such member."""
        return self._processes[self.plan.require(name).name]

    async def start(self, name: str) -> None:
        """Start a member that has ended, and wait until it serves; MemberFailed if it does not."""
        environment = (self._launch.environment or {}).get(name)
        await self.process(name).start(environment)
        self.write_state()

    async def kill(self, name: str) -> None:
        """SIGKILL."""
        await self.process(name).kill()
        self.write_state()

    async def stop(self, name: str) -> None:
        """SIGTERM, and wait for the end."""
        await self.process(name).stop()
        self.write_state()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.process(name).pause()
        self.write_state()

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.process(name).resume()
        self.write_state()

    # ---- links

    async def cut(self, name: str, others: Iterable[str] = (), direction: str = "both") -> None:
        """Cut a member off from others, by default from all other members and the clients.

        Args:
            direction: `in` lets nothing reach the member, `out` lets nothing leave it.
        """
        for flow in self._flows(name, others, direction):
            await self.network.cut(*flow)
            self._cuts.add(flow)
        self.write_state()

    async def unplug(self, name: str) -> None:
        """Cut a member off from all others and the clients, at one moment."""
        self.plan.require(name)
        await self.network.unplug(name)
        self._unplugged.add(name)
        self.write_state()

    async def heal(self, name: str | None = None) -> None:
        """Undo all cuts and slow links of a member, or of all members."""
        if name is not None:
            self.plan.require(name)
        for flow in sorted(self._cuts):
            if name is None or name in flow:
                await self.network.heal(*flow)
                self._cuts.discard(flow)
        for each in sorted(self._slow):
            if name in {None, each}:
                await self.network.quicken(each)
                self._slow.discard(each)
        for each in sorted(self._unplugged):
            if name in {None, each}:
                await self.network.plug(each)
                self._unplugged.discard(each)
        self.write_state()

    async def slow(self, name: str, delay: float, rate: float = 0.0) -> None:
        """Make all links of a member slow.

        Args:
            delay: seconds, each way; in namespaces it needs a kernel with netem.
            rate: bytes per second; 0 is unlimited.
        """
        self.plan.require(name)
        await self.network.slow(name, delay, rate)
        self._slow.add(name)
        self.write_state()

    def _flows(self, name: str, others: Iterable[str], direction: str) -> list[Flow]:
        if direction not in DIRECTIONS:
            raise ConfigError(f"--direction {direction}: must be one of {', '.join(DIRECTIONS)}")
        self.plan.require(name)
        if name in (others := list(others)):
            raise ConfigError(f"--from {name}: a member cannot be cut off from itself")
        chosen = others or [each.name for each in self.plan.members] + [CLIENTS]
        for other in chosen:
            if other != CLIENTS:
                self.plan.require(other)
        found = []
        for other in chosen:
            if other != name:
                found += [(other, name)] if direction in {"both", "in"} else []
                found += [(name, other)] if direction in {"both", "out"} else []
        return found

    # ---- state

    def write_state(self) -> None:
        """Write the state file if something has changed, as long as the block runs."""
        if not self._directory.is_held:
            return
        state = ClusterState(
            pid=os.getpid(), control=self.control, is_starting=self._is_starting,
            network=self.network.kind, bridge=self.network.bridge, name_servers=self.name_servers,
            members=tuple(self.states()),
        )  # fmt: skip
        try:
            self._directory.write(state)
        except OSError as exc:  # the next change tries again
            log.warning("the state of the cluster in %s cannot be written: %s", self.data, exc)

    def states(self) -> list[MemberState]:
        flows = self._cuts.union(*(self._flows(name, (), "both") for name in self._unplugged))
        cuts = cuts_by_member(flows, [each.name for each in self.plan.members])
        return [self._state(member, cuts[member.name]) for member in self.plan.members]

    def _state(self, member: Member, cut_from: dict[str, str]) -> MemberState:
        process = self._processes[member.name]
        is_slow = member.name in self._slow
        if process.pid is None:
            state = "dead"
        elif process.is_paused:
            state = "paused"
        elif cut_from:
            state = "cut"
        else:
            state = "slow" if is_slow else "alive"
        return MemberState(
            name=member.name, role=member.role.value, address=self.plan.address(member),
            state=state, pid=process.pid, started_at=process.started_at,
            directory=os.fspath(member.directory), group=member.group, ports=member.served_ports,
            cut_from=cut_from, is_slow=is_slow,
        )  # fmt: skip

    def _pids(self) -> dict[str, list[int]]:
        return {name: process.pids for name, process in self._processes.items()}


def cuts_by_member(flows: Collection[Flow], members: Sequence[str]) -> dict[str, dict[str, str]]:
    """From whom each member is cut off, and in which direction, as MemberState has it."""
    others = {name: {*members, CLIENTS} - {name} for name in members}
    alone_in = {name for name in members if all((each, name) in flows for each in others[name])}
    alone_out = {name for name in members if all((name, each) in flows for each in others[name])}
    found = {}
    for name in members:
        # What a cut from everybody explains is shown where that was done, once.
        rest = [flow for flow in flows if flow[0] not in alone_out and flow[1] not in alone_in]
        into = {source for source, target in rest if target == name}
        out_of = {target for source, target in rest if source == name}
        into |= {EVERYBODY} if name in alone_in else set()
        out_of |= {EVERYBODY} if name in alone_out else set()
        found[name] = {
            each: "both" if each in into & out_of else "in" if each in into else "out"
            for each in sorted(into | out_of)
        }
    return found
