"""The networks in which a local cluster can run, and how their links are cut and slowed.

| Network | Addresses | What can be cut |
| --- | --- | --- |
| plain | all members on 127.0.0.1 | nothing |
| proxy | announced on 127.0.0.1, bound to 127.0.2.n, same port | each pair, one or both ways |
| namespaces | 10.x.y.n, one network namespace for each member | each pair, one or both ways |

A name is that of a member, or CLIENTS for everything outside of the cluster.
"""

import asyncio
import secrets
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bolide.cluster.data_directory import Bridge
from bolide.cluster.plan import Addresses, Member
from bolide.cluster.proxy import CLIENTS, ConnectionOwners, Flows, Proxy
from bolide.errors import BolideError, ConfigError
from bolide.remoting.tasks import uninterrupted

_LOOPBACK = "127.0.0.1"
_MOST_NAMESPACE_NETWORKS = 256

Run = Callable[..., Awaitable[str]]
"""Runs a command and returns its output; raises NetworkFailed."""


class NetworkFailed(BolideError):
    """A command that sets up the network failed."""

    def __init__(self, words: Sequence[str], output: str) -> None:
        super().__init__(f"{' '.join(words)}: {output.strip() or 'failed'}")
        self.is_taken = "File exists" in output
        """There is something of that name already."""


class Network(Protocol):
    """Where the members of a cluster run."""

    kind: str
    bridge: Bridge | None
    """None without namespaces, or if they are not open."""

    def addresses(self) -> Addresses:
        """Where the members are; only final after `claim`."""
        ...

    async def claim(self) -> None:
        """Take addresses that no other cluster has."""

    async def open(self, members: Sequence[Member]) -> None:
        """Prepare the links, before the members start."""

    async def close(self) -> None:
        """Remove what this object made, also if `claim` or `open` failed."""

    def command_prefix(self, name: str) -> list[str]:
        """Words before the command of a member."""
        ...

    async def cut(self, source: str, target: str) -> None:
        """Let nothing that `source` sends reach `target`."""

    async def slow(self, name: str, delay: float, rate: float) -> None:
        """Make what a member sends and receives late, or limit its bytes per second."""

    async def heal(self, source: str, target: str) -> None:
        """Undo a cut."""

    async def quicken(self, name: str) -> None:
        """Undo `slow`."""

    async def unplug(self, name: str) -> None:
        """Cut a member off from everybody at one moment, as a loss of its machine does."""

    async def plug(self, name: str) -> None:
        """Undo `unplug`."""


def make_network(
    kind: str, names: Sequence[str], processes: Callable[[], Mapping[str, Iterable[int]]]
) -> Network:
    """The network of that kind; `auto` is the proxy on Linux and plain loopback elsewhere.

    Raises:
        ConfigError: this machine or user cannot have such a network.
    """
    if kind == "auto":
        kind = "proxy" if sys.platform == "linux" else "plain"
    if kind != "plain" and sys.platform != "linux":
        raise ConfigError(f"--network {kind}: needs Linux")
    if kind == "namespaces":
        if reason := why_no_namespaces():
            raise ConfigError(f"--network namespaces: {reason}")
        return NamespaceNetwork(names)
    return ProxyNetwork(names, processes) if kind == "proxy" else PlainNetwork(names)


class PlainNetwork:
    """Everything on 127.0.0.1; links cannot be changed."""

    kind = "plain"
    bridge: Bridge | None = None

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def addresses(self) -> Addresses:
        hosts = dict.fromkeys(self._names, _LOOPBACK)
        return Addresses(announced=hosts, bound=hosts)

    async def claim(self) -> None:
        pass

    async def open(self, members: Sequence[Member]) -> None:
        pass

    async def close(self) -> None:
        pass

    def command_prefix(self, name: str) -> list[str]:
        del name
        return []

    async def cut(self, source: str, target: str) -> None:
        raise ConfigError(f"cut {source} {target}: start the cluster with --network proxy")

    async def slow(self, name: str, delay: float, rate: float) -> None:
        del delay, rate
        raise ConfigError(f"slow {name}: start the cluster with --network proxy")

    async def heal(self, source: str, target: str) -> None:
        pass

    async def quicken(self, name: str) -> None:
        pass

    async def unplug(self, name: str) -> None:
        raise ConfigError(f"unplug {name}: start the cluster with --network proxy")

    async def plug(self, name: str) -> None:
        pass


class ProxyNetwork:
    """A TCP proxy in front of each member, for users without privileges."""

    kind = "proxy"
    bridge: Bridge | None = None

    def __init__(
        self, names: Sequence[str], processes: Callable[[], Mapping[str, Iterable[int]]]
    ) -> None:
        self._names = names
        self._flows = Flows()
        self._owners = ConnectionOwners(processes)
        self._proxies: dict[str, Proxy] = {}

    def addresses(self) -> Addresses:
        return Addresses(
            announced=dict.fromkeys(self._names, _LOOPBACK),
            bound={name: f"127.0.2.{number}" for number, name in enumerate(self._names, 1)},
        )

    async def claim(self) -> None:
        """Ports are what clusters share, and they are taken in `open`."""

    async def open(self, members: Sequence[Member]) -> None:
        bound = self.addresses().bound
        for member in members:
            proxy = Proxy(member.name, self._flows, self._owners.owner_of)
            self._proxies[member.name] = proxy
            for port in member.served_ports:
                try:
                    await proxy.listen(_LOOPBACK, port, (bound[member.name], port))
                except OSError as exc:
                    raise ConfigError(
                        f"{member.name} cannot have port {port}: {exc.strerror}; choose another"
                        " --base-port"
                    ) from exc

    async def close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()

    def command_prefix(self, name: str) -> list[str]:
        del name
        return []

    async def cut(self, source: str, target: str) -> None:
        self._flows.cut(source, target)

    async def heal(self, source: str, target: str) -> None:
        self._flows.heal(source, target)

    async def slow(self, name: str, delay: float, rate: float) -> None:
        for other in self._others(name):
            self._flows.slow(name, other, delay, rate)
            self._flows.slow(other, name, delay, rate)

    async def quicken(self, name: str) -> None:
        for other in self._others(name):
            self._flows.slow(name, other, 0.0)
            self._flows.slow(other, name, 0.0)

    async def unplug(self, name: str) -> None:
        for other in self._others(name):
            self._flows.cut(name, other)
            self._flows.cut(other, name)

    async def plug(self, name: str) -> None:
        for other in self._others(name):
            self._flows.heal(name, other)
            self._flows.heal(other, name)

    def _others(self, name: str) -> list[str]:
        return [each for each in (*self._names, CLIENTS) if each != name]


@dataclass(frozen=True, slots=True)
class _Host:
    """A namespace and its end of the bridge."""

    namespace: str
    outer: str
    """Its device in the namespace of the clients."""
    address: str


class NamespaceNetwork:
    """One network namespace for each member, joined by a bridge in that of the clients.

    A cut gives the sender a wrong hardware address of the receiver: its packets leave and reach
    nobody. That needs neither iptables nor a module of the kernel, and works one way.
    """

    kind = "namespaces"

    def __init__(self, names: Sequence[str], run: Run | None = None) -> None:
        self._names = names
        self._run = run or _run
        self._hardware: dict[str, str] = {}
        self._undo: list[tuple[str, ...]] = []
        """Commands that remove what this object made, the last of it first."""
        self.bridge: Bridge | None = None
        self._take(0)

    def _take(self, number: int) -> None:
        self._number = number
        self._device = f"bol{number}"
        self._hosts = {
            name: _Host(f"bol{number}-{name}", f"bol{number}v{at}", self._address(at))
            for at, name in enumerate(self._names, 10)
        }

    def _address(self, at: int) -> str:
        return f"10.213.{self._number}.{at}"

    def addresses(self) -> Addresses:
        hosts = {name: host.address for name, host in self._hosts.items()}
        return Addresses(announced=hosts, bound=hosts, subnet=f"10.213.{self._number}.0/24")

    def command_prefix(self, name: str) -> list[str]:
        return ["ip", "netns", "exec", self._hosts[name].namespace]

    async def claim(self) -> None:
        """Make the bridge: its number is ours if nobody has a bridge with it.

        To look for a free number first would give two clusters that start together the same one.
        """
        hardware = ":".join(f"{byte:02x}" for byte in (2, *secrets.token_bytes(5)))
        for number in range(_MOST_NAMESPACE_NETWORKS):
            self._take(number)
            add = ("ip", "link", "add", self._device, "address", hardware, "type", "bridge")
            try:
                await self._make(add, ("ip", "link", "del", self._device))
            except NetworkFailed as exc:
                if not exc.is_taken:
                    raise
            else:
                self.bridge = Bridge(self._device, hardware)
                return
        raise ConfigError(
            f"{_MOST_NAMESPACE_NETWORKS} clusters in namespaces are running; remove one with"
            " `bolide cluster down`"
        )

    async def open(self, members: Sequence[Member]) -> None:
        del members
        await self._run("ip", "addr", "add", f"{self._address(1)}/24", "dev", self._device)
        await self._run("ip", "link", "set", self._device, "up")
        for host in self._hosts.values():
            await self._add(host)
        await self._know_everybody()

    async def _add(self, host: _Host) -> None:
        inside = ("ip", "-n", host.namespace)
        await self._make(
            ("ip", "netns", "add", host.namespace), ("ip", "netns", "del", host.namespace)
        )
        veth = ("type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        await self._make(
            ("ip", "link", "add", host.outer, *veth), ("ip", "link", "del", host.outer)
        )
        await self._run("ip", "link", "set", host.outer, "master", self._device, "up")
        await self._run(*inside, "link", "set", "lo", "up")
        await self._run(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
        await self._run(*inside, "link", "set", "eth0", "up")

    async def _make(self, words: Sequence[str], undo: tuple[str, ...]) -> None:
        """Run a command that makes something, and note how to remove it."""

        async def make() -> None:
            await self._run(*words)
            self._undo.append(undo)

        await uninterrupted(make())  # a start that is cancelled must know what it made

    async def _know_everybody(self) -> None:
        """Note hardware addresses, and set all of them for good: a cut must not be resolved."""
        assert self.bridge is not None
        self._hardware[CLIENTS] = self.bridge.hardware
        for name, host in self._hosts.items():
            inside = ("ip", "-n", host.namespace)
            self._hardware[name] = await _hardware_address(self._run, *inside, device="eth0")
        everybody = (*self._names, CLIENTS)
        for source in everybody:
            for target in everybody:
                if source != target:
                    await self.heal(source, target)

    async def close(self) -> None:
        """Remove what this object made: other clusters have devices of the same kind."""
        while self._undo:
            await _try(self._run, *self._undo.pop())
        self.bridge = None

    async def cut(self, source: str, target: str) -> None:
        await self._set_neighbour(source, target, "02:00:00:00:00:00")

    async def heal(self, source: str, target: str) -> None:
        await self._set_neighbour(source, target, self._hardware[target])

    async def _set_neighbour(self, source: str, target: str, hardware: str) -> None:
        address = self._address(1) if target == CLIENTS else self._hosts[target].address
        where = [] if source == CLIENTS else ["-n", self._hosts[source].namespace]
        device = self._device if source == CLIENTS else "eth0"
        await self._run(
            "ip", *where, "neigh", "replace", address, "lladdr", hardware, "dev", device,
            "nud", "permanent",
        )  # fmt: skip

    async def slow(self, name: str, delay: float, rate: float) -> None:
        """Late by netem if the kernel has it, else slow by a token bucket."""
        host = self._hosts[name]
        for where, device in (([], host.outer), (["-n", host.namespace], "eth0")):
            base = ("tc", *where, "qdisc", "replace", "dev", device, "root")
            limit = ["rate", f"{int(rate)}bps"] if rate else []
            if await _try(self._run, *base, "netem", "delay", f"{int(delay * 1000)}ms", *limit):
                continue
            await self._run(
                *base, "tbf", "rate", f"{int(rate or 64 * 1024)}bps", "burst", "16kb",
                "latency", "2s",
            )  # fmt: skip

    async def quicken(self, name: str) -> None:
        host = self._hosts[name]
        await _try(self._run, "tc", "qdisc", "del", "dev", host.outer, "root")
        await _try(self._run, "tc", "-n", host.namespace, "qdisc", "del", "dev", "eth0", "root")

    async def unplug(self, name: str) -> None:
        await self._run("ip", "-n", self._hosts[name].namespace, "link", "set", "eth0", "down")

    async def plug(self, name: str) -> None:
        await self._run("ip", "-n", self._hosts[name].namespace, "link", "set", "eth0", "up")
        for target in (*self._names, CLIENTS):  # forgotten with the link
            if target != name:
                await self.heal(name, target)


def why_no_namespaces() -> str:
    """The reason why this process cannot make network namespaces; empty if it can."""
    if sys.platform != "linux":
        return "needs Linux"
    if shutil.which("ip") is None:
        return "the program `ip` (iproute2) is not installed"
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff"))
    if not int(effective.split()[1], 16) >> 21 & 1:  # CAP_SYS_ADMIN
        return "needs root"
    return ""


async def remove_namespaces(bridge: Bridge, run: Run | None = None) -> None:
    """Remove what a cluster that was killed left behind, unless its bridge is gone."""
    run = run or _run
    try:
        if await _hardware_address(run, "ip", device=bridge.name) != bridge.hardware:
            return
    except NetworkFailed:
        return
    # Links go before namespaces, with which they would only go a moment later: the next cluster
    # may take the same names.
    for line in (await run("ip", "-o", "link", "show", "master", bridge.name)).splitlines():
        await _try(run, "ip", "link", "del", line.split()[1].partition("@")[0])
    for line in (await run("ip", "netns", "list")).splitlines():
        name = line.split()[0]
        if name.startswith(f"{bridge.name}-"):
            await _try(run, "ip", "netns", "del", name)
    await _try(run, "ip", "link", "del", bridge.name)


async def _hardware_address(run: Run, *ip: str, device: str) -> str:
    shown = await run(*ip, "-o", "link", "show", "dev", device)
    return shown.split("link/ether ")[1].split()[0]


async def _run(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    text = output.decode(errors="replace")
    if process.returncode:
        raise NetworkFailed(words, text)
    return text


async def _try(run: Run, *words: str) -> bool:
    try:
        await run(*words)
    except (NetworkFailed, OSError):
        return False
    return True
