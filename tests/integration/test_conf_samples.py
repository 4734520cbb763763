"""The samples in `conf`, started as they are but for ports, directories and sizes."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bolide.protocol.refusals import Refusal
from tests.interop.bench import BROKER_NEIGHBOURS
from tests.interop.ours import bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient
from tests.support.ports import free_port

CONF = Path(__file__).parents[2] / "conf"
SMALL = (
    "mappedFileSizeCommitLog=1048576",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "slaveReadEnable=true",
)
_PATIENCE = 30.0


@contextmanager
def sample_brokers(
    directory: Path, name_server: str, files: Sequence[str]
) -> Iterator[dict[str, str]]:
    """Start sample files; returns the address of each broker."""
    with ExitStack() as stack:
        found: dict[str, str] = {}
        starting = []
        for file in files:
            port = free_port(BROKER_NEIGHBOURS)
            home = directory / Path(file).stem
            home.mkdir(parents=True)
            command = [
                sys.executable, "-m", "bolide", "broker", "-c", str(CONF / file), "-n", name_server,
                f"listenPort={port}", f"storePathRootDir={home / 'store'}", "brokerIP1=127.0.0.1",
                *SMALL,
            ]  # fmt: skip
            process = ChildProcess(file, command, os.environ | {"HOME": str(home)})
            stack.callback(process.stop)
            starting.append(process)
            found[Path(file).stem] = f"127.0.0.1:{port}"
        for process in starting:
            process.wait_for_line("boot success", 30)
        yield found


async def send_to(address: str, body: bytes) -> None:
    """Send to a broker until it acknowledges: it may not be master yet, or lack its slave."""
    async with BrokerClient(address) as client, asyncio.timeout(_PATIENCE):
        while True:
            with suppress(Refusal):
                await client.send("T", body)
                return
            await asyncio.sleep(0.1)


async def read_from(address: str, body: bytes) -> None:
    """Pull from a broker until a message is there."""
    async with BrokerClient(address) as client, asyncio.timeout(_PATIENCE):
        while True:
            with suppress(Refusal):  # a slave may not know the topic yet
                if body in (await client.pull("T")).bodies:
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("sample", ["2m-2s-async", "2m-2s-sync"])
@on_loop
async def test_two_masters_have_a_slave_each(tmp_path: Path, sample: str) -> None:
    names = ["broker-a", "broker-a-s", "broker-b", "broker-b-s"]
    files = [f"{sample}/{name}.properties" for name in names]
    with (
        bolide_namesrv(tmp_path / "names") as names_server,
        sample_brokers(tmp_path, names_server.address, files) as brokers,
    ):
        for master, slave in (("broker-a", "broker-a-s"), ("broker-b", "broker-b-s")):
            body = f"by {master}".encode()
            await send_to(brokers[master], body)
            await read_from(brokers[master], body)
            await read_from(brokers[slave], body)


@on_loop
async def test_a_group_for_dledger_elects_a_master(tmp_path: Path) -> None:
    files = [f"dledger/broker-n{number}.conf" for number in range(3)]
    with (
        bolide_namesrv(
            tmp_path / "names",
            listenPort=free_port((2, 102)),
            enableControllerInNamesrv=True,
            controllerStorePath=str(tmp_path / "controller"),
        ) as names_server,
        sample_brokers(tmp_path, names_server.address, files) as brokers,
    ):
        sending = [
            asyncio.create_task(send_to(address, b"by the master")) for address in brokers.values()
        ]
        (master,), others = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await master
        for address in brokers.values():
            await read_from(address, b"by the master")


def test_a_controller_alone_starts(tmp_path: Path) -> None:
    peers = f"controllerDLegerPeers=n0-127.0.0.1:{free_port((100,))}"
    with started(tmp_path, "controller", "controller/controller-standalone.conf", peers):
        pass


def test_name_servers_with_controllers_start(tmp_path: Path) -> None:
    ports = [free_port((2, 102)) for _ in range(3)]
    words = [f"n{number}-127.0.0.1:{port + 2}" for number, port in enumerate(ports)]
    peers = f"controllerDLegerPeers={';'.join(words)}"
    with ExitStack() as stack:
        for number, port in enumerate(ports):
            file = f"controller/cluster-3n-namesrv-plugin/namesrv-n{number}.conf"
            home = tmp_path / str(number)
            stack.enter_context(started(home, "namesrv", file, peers, f"listenPort={port}"))


@contextmanager
def started(home: Path, role: str, file: str, *settings: str) -> Iterator[None]:
    """Start a sample of a NameServer or a controller; it has no key that is unknown."""
    home.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "bolide", role, "--strict", "-c", str(CONF / file),
        f"controllerStorePath={home}", *settings,
    ]  # fmt: skip
    process = ChildProcess(file, command, os.environ | {"HOME": str(home)})
    try:
        process.wait_for_line("boot success", 30)
        yield
    finally:
        process.stop()
