"""Where installed servers listen by default, and what they print about it."""

import re
import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.attackers import own_address
from tests.support.commands import Running

SMALL = ("mappedFileSizeCommitLog=1048576", "maxHashSlotNum=1000", "maxIndexNum=4000")
STORE = ("listenPort=0", "storePathRootDir=store", *SMALL)
PORTS = ("--namesrv-port", "0", "--broker-port", "0")
HERE_ONLY = "Reachable from this machine only."
OPEN = (
    r"Reachable from the network at 0\.0\.0\.0:\d+\. Access control is off: anybody who reaches it"
    r" can send and read; administration is taken from this machine only\."
)
NAMESRV, BROKER = r"boot success.*address \S+:(\d+)", r"The broker\[\S+, (\S+):(\d+)\] boot success"


@pytest.fixture
def server(started: list[Running]) -> "Starter":
    return Starter(started)


class Starter:
    def __init__(self, started: list[Running]) -> None:
        self._started = started

    def __call__(self, *words: str) -> Running:
        running = Running(*words)
        self._started.append(running)
        return running


def accepts(host: str, port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(10)
        return probe.connect_ex((host, port)) == 0


def test_a_broker_is_for_this_machine_only(server: Starter) -> None:
    broker = server("bolide", "broker", *STORE)
    host, port = broker.wait_for(BROKER).groups()
    assert host == "127.0.0.1"
    assert HERE_ONLY in broker.output
    assert "Serving plain text only" in broker.output
    assert accepts("127.0.0.1", int(port))
    assert not accepts(own_address(), int(port))
    assert not accepts(own_address(), int(port) - 2)


def test_a_name_server_is_for_this_machine_only(server: Starter) -> None:
    names = server("bolide", "namesrv", "listenPort=0")
    port = int(names.wait_for(NAMESRV)[1])
    names.wait_for(HERE_ONLY)
    assert accepts("127.0.0.1", port)
    assert not accepts(own_address(), port)


def test_a_name_server_can_be_opened_to_the_network(server: Starter) -> None:
    names = server("bolide", "namesrv", "--bind-address", "0.0.0.0", "listenPort=0")
    port = int(names.wait_for(NAMESRV)[1])
    names.wait_for(r"Reachable from the network at 0\.0\.0\.0:\d+\. Access control is off: anybody")
    assert accepts(own_address(), port)


def test_a_file_with_an_address_for_others_opens_the_broker_and_says_so(
    server: Starter, home: Path
) -> None:
    address = own_address()
    file = home / "broker.conf"
    file.write_text("".join(f"{line}\n" for line in (f"brokerIP1={address}", *STORE)))
    broker = server("bolide", "broker", "-c", str(file))
    host, port = broker.wait_for(BROKER).groups()
    assert host == address
    assert re.search(OPEN, broker.output)
    assert accepts(address, int(port))
    assert accepts("127.0.0.1", int(port))


def test_standalone_is_for_this_machine_only(server: Starter) -> None:
    cluster = server("bolide", "standalone", *PORTS, *SMALL)
    host, port = cluster.wait_for(BROKER).groups()
    names = int(cluster.wait_for(NAMESRV)[1])
    assert host == "127.0.0.1"
    assert cluster.output.count(HERE_ONLY) == 2
    assert not accepts(own_address(), int(port))
    assert not accepts(own_address(), names)


def test_standalone_can_be_opened_to_the_network(server: Starter) -> None:
    cluster = server("bolide", "standalone", "--host", "0.0.0.0", *PORTS, *SMALL)
    host, port = cluster.wait_for(BROKER).groups()
    names = int(cluster.wait_for(NAMESRV)[1])
    assert host == own_address()
    assert re.search(OPEN, cluster.output)
    assert accepts(own_address(), int(port))
    assert accepts(own_address(), names)


@pytest.mark.parametrize(("words", "is_open"), [((), False), (("bindAddress=0.0.0.0",), True)])
def test_workers_listen_where_one_broker_would(
    server: Starter, words: tuple[str, ...], is_open: bool
) -> None:
    workers = server("bolide", "broker", "--workers", "2", *STORE, *words)
    workers.wait_for("2 workers serve")
    found = re.findall(BROKER, workers.output)
    assert len(found) == 2
    for _, port in found:
        assert accepts("127.0.0.1", int(port))
        assert accepts(own_address(), int(port)) is is_open
    assert len(re.findall(OPEN, workers.output)) == (2 if is_open else 0)
