"""The commands of other processes: what they are told if something fails."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bolide.cluster.control import ControlServer, NotRunning, control, take_down
from bolide.cluster.data_directory import ClusterState, DataDirectory, MemberState, read_state
from bolide.cluster.local_cluster import LocalCluster
from bolide.cluster.member_process import MEMBER_VARIABLE
from bolide.cluster.plan import ClusterOptions
from bolide.errors import ConfigError
from tests.support.aio import on_loop, until


class Scripted(LocalCluster):
    """A cluster without processes, whose commands fail as they are told."""

    failure: Exception | None = None

    async def _open(self) -> None:
        self.write_state()
        self._is_starting = self.failure is None

    async def start(self, name: str) -> None:
        del name
        assert self.failure is not None
        raise self.failure


def scripted(directory: Path, failure: Exception | None) -> Scripted:
    cluster = Scripted(ClusterOptions(data=directory, network="plain"))
    cluster.failure = failure
    return cluster


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (PermissionError(13, "Permission denied", "output.log"), "Permission denied.*output.log"),
        (TimeoutError(), "TimeoutError"),
        (ConfigError("not now"), "not now"),
    ],
)
@on_loop
async def test_a_command_that_fails_says_why(tmp_path: Path, failure: Exception, text: str) -> None:
    cluster = scripted(tmp_path, failure)
    async with ControlServer(cluster, lambda: None), cluster:
        with pytest.raises(ConfigError, match=text):
            await control(tmp_path, "start", name="broker-a-0")


@on_loop
async def test_a_cluster_that_starts_takes_only_down(tmp_path: Path) -> None:
    downs: list[str] = []
    cluster = scripted(tmp_path, None)
    async with ControlServer(cluster, lambda: downs.append("down")), cluster:
        with pytest.raises(ConfigError, match="starting or stopping"):
            await control(tmp_path, "start", name="broker-a-0")
        await control(tmp_path, "down")

    assert downs == ["down"]


@on_loop
async def test_a_cluster_without_commands_names_its_process(tmp_path: Path) -> None:
    async with scripted(tmp_path, None):
        with pytest.raises(ConfigError, match=f"belongs to process {os.getpid()}"):
            await take_down(tmp_path)


@on_loop
async def test_a_process_that_ends_during_a_command_is_named(tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    socket = str(tmp_path / "control")
    async with (
        await asyncio.start_unix_server(hang_up, socket),
        scripted(tmp_path, None) as cluster,
    ):
        cluster.control = socket
        cluster.write_state()

        with pytest.raises(ConfigError, match=f"process {os.getpid()} of the cluster has ended"):
            await control(tmp_path, "heal")


def left_in(directory: Path, *members: str) -> None:
    """What a killed process leaves: a state file without a lock."""
    DataDirectory(directory).write(
        ClusterState(
            pid=2**22 + 1, network="plain", name_servers="127.0.0.1:1",
            members=tuple(
                MemberState(
                    name=name, role="broker", address="127.0.0.1:2", state="alive", pid=None,
                    started_at=0.0, directory=str(directory / name),
                )
                for name in members
            ),
        )
    )  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_stopped_workers_without_their_broker_are_killed(tmp_path: Path) -> None:
    left_in(tmp_path, "broker-a-0", "broker-b-0")
    # The shell ends at once, so the other has another parent, as a worker of a killed broker.
    shell = subprocess.run(
        ["sh", "-c", "sleep 60 >&2 & echo $!"], stdout=subprocess.PIPE, check=True,
        env={**os.environ, MEMBER_VARIABLE: str(tmp_path / "broker-a-0")},
    )  # fmt: skip
    worker = int(shell.stdout)
    os.kill(worker, signal.SIGSTOP)

    @on_loop
    async def end_it() -> None:
        assert await take_down(tmp_path) == ["broker-a-0"]
        await until(lambda: not command_of(worker))
        assert read_state(tmp_path) is None
        with pytest.raises(NotRunning):
            await take_down(tmp_path)

    end_it()


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
