"""The commands that make and remove network namespaces, run by a kernel that is a set of names."""

import asyncio
from collections.abc import Callable

import pytest

from bolide.cluster.data_directory import Bridge
from bolide.cluster.network import NamespaceNetwork, NetworkFailed, remove_namespaces
from bolide.errors import ConfigError
from tests.support.aio import on_loop

NAMES = ["namesrv-0", "broker-a-0"]


class Kernel:
    """Records commands, and knows which devices and namespaces there are.

    Each command lets others run, as a process does.
    """

    def __init__(self) -> None:
        self.hardware: dict[str, str] = {}
        self.namespaces: set[str] = set()
        self.ran: list[str] = []
        self.fails: Callable[[str], bool] = lambda _: False

    @property
    def left(self) -> set[str]:
        return self.hardware.keys() | self.namespaces

    async def run(self, *words: str) -> str:
        text = " ".join(words)
        self.ran.append(text)
        await asyncio.sleep(0)
        if self.fails(text):
            raise NetworkFailed(words, "Operation not permitted")
        match words:
            case ("ip", "link", "add", name, *more):
                self._refuse_taken(words, name, self.hardware)
                self.hardware[name] = more[1] if more[0] == "address" else "02:aa"
            case ("ip", "link", "del", name):
                self._require(words, name, self.hardware)
                del self.hardware[name]
            case ("ip", "netns", "add", name):
                self._refuse_taken(words, name, self.namespaces)
                self.namespaces.add(name)
            case ("ip", "netns", "del", name):
                self._require(words, name, self.namespaces)
                self.namespaces.remove(name)
            case ("ip", "netns", "list"):
                return "".join(f"{name} (id: 0)\n" for name in sorted(self.namespaces))
            case ("ip", "-o", "link", "show", "dev", name):
                self._require(words, name, self.hardware)
                return f"5: {name}: <UP>\\    link/ether {self.hardware[name]} brd ff"
            case ("ip", "-o", "link", "show", "master", bridge):
                ports = [name for name in self.hardware if name.startswith(f"{bridge}v")]
                return "".join(f"7: {name}@if2: <UP>\n" for name in ports)
            case ("ip", "-n", _, "-o", "link", "show", "dev", _):
                return "2: eth0@if3: <UP>\\    link/ether 02:bb brd ff"
        return ""

    def _refuse_taken(self, words: tuple[str, ...], name: str, names: object) -> None:
        if name in names:  # type: ignore[operator]
            raise NetworkFailed(words, "RTNETLINK answers: File exists")

    def _require(self, words: tuple[str, ...], name: str, names: object) -> None:
        if name not in names:  # type: ignore[operator]
            raise NetworkFailed(words, f'Cannot find device "{name}"')


async def opened(kernel: Kernel) -> NamespaceNetwork:
    network = NamespaceNetwork(NAMES, kernel.run)
    await network.claim()
    await network.open([])
    return network


@on_loop
async def test_networks_that_open_together_take_different_numbers() -> None:
    kernel = Kernel()

    first, second = await asyncio.gather(opened(kernel), opened(kernel))

    assert first.bridge is not None
    assert second.bridge is not None
    assert {first.bridge.name, second.bridge.name} == {"bol0", "bol1"}
    assert {first.addresses().subnet, second.addresses().subnet} == {
        "10.213.0.0/24", "10.213.1.0/24",
    }  # fmt: skip
    hosts = [*first.addresses().announced.values(), *second.addresses().announced.values()]
    assert len(set(hosts)) == 4


@on_loop
async def test_a_network_removes_what_it_made_and_nothing_else() -> None:
    kernel = Kernel()
    first, second = await opened(kernel), await opened(kernel)
    theirs = {name for name in kernel.left if name.startswith("bol0")}

    await second.close()

    assert kernel.left == theirs
    await first.close()
    assert kernel.left == set()


@on_loop
async def test_a_network_that_fails_to_open_leaves_nothing_and_the_others_alone() -> None:
    kernel = Kernel()
    await opened(kernel)
    theirs = kernel.left
    kernel.fails = lambda text: "bol1v11 type veth" in text
    network = NamespaceNetwork(NAMES, kernel.run)
    await network.claim()

    with pytest.raises(NetworkFailed, match="not permitted"):
        await network.open([])
    await network.close()

    assert kernel.left == theirs


@on_loop
async def test_a_network_that_claimed_nothing_removes_nothing() -> None:
    kernel = Kernel()
    await opened(kernel)
    theirs = kernel.left
    kernel.fails = lambda text: "link add" in text
    network = NamespaceNetwork(NAMES, kernel.run)

    with pytest.raises(NetworkFailed, match="not permitted"):
        await network.claim()
    await network.close()

    assert kernel.left == theirs


@on_loop
async def test_a_cancelled_start_removes_the_bridge_that_it_was_making() -> None:
    kernel = Kernel()
    network = NamespaceNetwork(NAMES, kernel.run)
    claiming = asyncio.create_task(network.claim())
    while not kernel.ran:  # noqa: ASYNC110  until the command runs
        await asyncio.sleep(0)

    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await network.close()

    assert kernel.left == set()


@on_loop
async def test_there_are_256_numbers() -> None:
    kernel = Kernel()
    kernel.hardware = {f"bol{number}": "02:aa" for number in range(256)}

    with pytest.raises(ConfigError, match="256 clusters in namespaces are running"):
        await NamespaceNetwork(NAMES, kernel.run).claim()


@on_loop
async def test_what_a_killed_cluster_left_is_removed_by_its_bridge() -> None:
    kernel = Kernel()
    killed, _ = await opened(kernel), await opened(kernel)
    others = {name for name in kernel.left if name.startswith("bol1")}
    assert killed.bridge is not None

    await remove_namespaces(killed.bridge, kernel.run)

    assert kernel.left == others


@on_loop
async def test_a_bridge_of_the_same_name_that_another_cluster_made_stays() -> None:
    kernel = Kernel()
    await opened(kernel)
    before = set(kernel.left)

    await remove_namespaces(Bridge("bol0", "02:00:00:00:00:01"), kernel.run)
    await remove_namespaces(Bridge("bol7", "02:00:00:00:00:01"), kernel.run)

    assert kernel.left == before
