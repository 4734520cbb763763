"""`bolide cluster` as it is installed: up, look, harm, heal, down."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.client.producer.producer import Producer
from bolide.cluster.control import require_state
from bolide.cluster.data_directory import read_state
from bolide.cluster.network import why_no_namespaces
from bolide.model.message import Message
from tests.support.commands import Running, home, run, started
from tests.support.ports import free_port

__all__ = ["home", "started"]

WITHIN = 60.0
"""Seconds for what takes one or two when nothing else runs."""

NEIGHBOURS = (10, 1033, 1035, 1036, 1133, 1135, 1136)


@pytest.fixture
def port() -> int:
    return free_port(NEIGHBOURS)


@pytest.fixture
def cluster(home: Path, port: int) -> Iterator[Path]:
    """A cluster in the background, in `cluster` of the current directory."""
    done = run(
        "bolide", "cluster", "up", "--brokers", "2", "--base-port", str(port), "--detach",
        "mappedFileSizeCommitLog=1048576",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    yield home / "cluster"
    run("bolide", "cluster", "down")


def state_of(member: str) -> dict[str, object]:
    document = json.loads(run("bolide", "cluster", "status", "--json").stdout)
    return {each["name"]: each for each in document["members"]}[member]  # type: ignore[no-any-return]


@pytest.mark.usefixtures("cluster")
def test_members_are_shown_harmed_and_healed(port: int) -> None:
    shown = run("bolide", "cluster", "status").stdout
    assert f"broker-a-0  broker   127.0.0.1:{port + 1035}" in shown
    assert "Master of broker-a: broker-a-0" in shown
    assert "Master of broker-b: broker-b-0" in shown

    for words, state in (
        (("pause", "broker-a-0"), "paused"),
        (("resume", "broker-a-0"), "alive"),
        (("cut", "broker-a-0", "--from", "namesrv-0", "--direction", "in"), "cut"),
        (("heal", "broker-a-0"), "alive"),
        (("slow", "broker-a-0", "--delay", "5"), "slow"),
        (("heal",), "alive"),
        (("kill", "broker-a-0"), "dead"),
        (("start", "broker-a-0"), "alive"),
        (("stop", "broker-a-0"), "dead"),
    ):
        done = run("bolide", "cluster", *words)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert state_of("broker-a-0")["state"] == state, words


def shown_states() -> dict[str, str]:
    """The column `State` of `status`."""
    title, *lines = run("bolide", "cluster", "status").stdout.splitlines()
    at, end = title.index("State"), title.index("Directory")
    return {line.split()[0]: line[at:end].strip() for line in lines if " 127.0.0.1:" in line}


@pytest.mark.usefixtures("cluster")
def test_all_that_was_done_to_a_member_is_shown() -> None:
    for words in (
        ("cut", "broker-b-0", "--direction", "in"),
        ("slow", "namesrv-0"),
        ("cut", "namesrv-0", "--from", "broker-a-0"),
        ("pause", "broker-b-0"),
    ):
        done = run("bolide", "cluster", *words)
        assert (done.returncode, done.stderr) == (0, ""), words

    assert shown_states() == {
        "namesrv-0": "cut from broker-a-0, slow",
        "broker-a-0": "cut from namesrv-0",
        "broker-b-0": "paused, cut from all (in)",
    }
    run("bolide", "cluster", "heal")
    run("bolide", "cluster", "cut", "namesrv-0")
    run("bolide", "cluster", "kill", "broker-b-0")
    assert shown_states() == {
        "namesrv-0": "cut from all", "broker-a-0": "alive", "broker-b-0": "dead",
    }  # fmt: skip


@pytest.mark.usefixtures("cluster")
def test_the_masters_are_unknown_without_a_name_server() -> None:
    run("bolide", "cluster", "kill", "namesrv-0")

    shown = run("bolide", "cluster", "status").stdout

    assert "Master of broker-a: unknown" in shown
    assert " dead " in shown


@pytest.mark.usefixtures("cluster")
def test_a_wrong_name_is_refused_with_the_right_ones() -> None:
    done = run("bolide", "cluster", "kill", "broker-z-0")

    assert done.returncode != 0
    assert "broker-z-0: no such member; there are namesrv-0, broker-a-0, broker-b-0" in done.stderr


@pytest.mark.usefixtures("cluster")
def test_a_dead_member_cannot_be_stopped_again() -> None:
    run("bolide", "cluster", "kill", "broker-a-0")
    for verb in ("kill", "stop", "pause", "resume"):
        done = run("bolide", "cluster", verb, "broker-a-0")
        assert done.returncode != 0
        assert "broker-a-0 does not run" in done.stderr


def test_a_directory_has_one_cluster_at_a_time(cluster: Path) -> None:
    done = run("bolide", "cluster", "up")

    assert done.returncode != 0
    assert "a cluster runs there already" in done.stderr
    assert run("bolide", "cluster", "down").stdout == "the cluster is down\n"
    assert not (cluster / "cluster.json").exists()
    assert "no cluster runs in cluster" in run("bolide", "cluster", "status").stderr


def test_a_killed_cluster_is_cleaned_up(cluster: Path) -> None:
    state = require_state(cluster)
    run("bolide", "cluster", "pause", "broker-a-0")  # it cannot see that its parent is gone
    os.kill(state.pid, signal.SIGKILL)
    until_gone(state.pid)

    assert "was killed there" in run("bolide", "cluster", "up").stderr
    assert "`bolide cluster down` ends what it left" in run("bolide", "cluster", "status").stderr
    assert "ended what was left of it: broker-a-0" in run("bolide", "cluster", "down").stdout
    assert not Path(state.control).parent.exists()
    for member in state.members:
        assert member.pid is not None
        until_gone(member.pid)


def test_stopped_workers_of_a_killed_cluster_are_ended(home: Path, port: int) -> None:
    data = home / "cluster"
    up = ("bolide", "cluster", "up", "--workers", "2", "--base-port", str(port), "--detach")
    done = run(*up, "mappedFileSizeCommitLog=1048576")
    assert done.returncode == 0, done.stderr
    run("bolide", "cluster", "pause", "broker-a-0")
    state = require_state(data)
    os.kill(state.pid, signal.SIGKILL)
    until_gone(state.pid)
    assert len(processes_of(data / "broker-a-0")) == 3

    assert "broker-a-0" in run("bolide", "cluster", "down").stdout

    assert processes_of(data / "broker-a-0") == []


@pytest.mark.parametrize(
    "network",
    [
        "plain",
        pytest.param(
            "namespaces",
            marks=pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces()),
        ),
    ],
)
@pytest.mark.parametrize("from_group", ["namesrv", "broker-a"])
def test_what_a_cluster_left_that_was_killed_during_its_start_is_ended(
    started: list[Running], home: Path, port: int, network: str, from_group: str
) -> None:
    data = home / "cluster"
    up = ("cluster", "up", "--workers", "2", "--base-port", str(port), "--network", network)
    running = held_back(from_group, *up, "mappedFileSizeCommitLog=1048576")
    started.append(running)
    deadline = time.monotonic() + WITHIN
    while not any(processes_of(path) for path in data.glob(f"{from_group}*")):
        assert time.monotonic() < deadline, running.output
        time.sleep(0.05)  # looking takes as much of the processor as it gets
    running.process.kill()
    running.process.wait()
    state = read_state(data)
    assert state is not None
    assert state.is_starting

    done = run("bolide", "cluster", "down")

    assert done.returncode == 0, done.stderr
    assert not any(processes_of(path) for path in data.iterdir())
    assert not (data / "cluster.json").exists()
    if state.bridge is not None:
        # Not by /sys, which shows the network of who mounted it.
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
        assert f" {state.bridge.name}: " not in links.stdout


def test_a_cluster_is_taken_down_during_its_start(
    started: list[Running], home: Path, port: int
) -> None:
    running = held_back("namesrv", "cluster", "up", "--base-port", str(port))
    started.append(running)
    deadline = time.monotonic() + WITHIN
    while not processes_of(home / "cluster" / "namesrv-0"):
        assert time.monotonic() < deadline, running.output
        time.sleep(0.05)

    assert run("bolide", "cluster", "down").stdout == "the cluster is down\n"

    running.wait_for("All members stopped.")
    assert "The cluster runs" not in running.output
    assert processes_of(home / "cluster" / "namesrv-0") == []


HELD_BACK = """
import asyncio, sys
from bolide.cli.program import main
from bolide.cluster.member_process import MemberProcess
first = sys.argv.pop(1)
def hold_back(until_ready):
    async def until(self, *more):
        if self.member.name.startswith(first):
            await asyncio.Event().wait()
        return await until_ready(self, *more)
    return until
MemberProcess._until_ready = hold_back(MemberProcess._until_ready)
MemberProcess._until_workers_serve = hold_back(MemberProcess._until_workers_serve)
main()
"""


def held_back(first: str, *words: str) -> Running:
    """Run `bolide` so that members of this name seem never to serve.

    What a test does during a start does not race the start then, on a busy machine or a fast one.
    """
    return Running("python", "-c", HELD_BACK, first, *words)


def test_two_clusters_that_start_together_do_not_share_a_directory(
    started: list[Running], port: int
) -> None:
    both = [Running("bolide", "cluster", "up", "--base-port", str(port)) for _ in range(2)]
    started += both
    deadline = time.monotonic() + WITHIN
    while all(each.process.poll() is None for each in both):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    (refused,) = (each for each in both if each.process.poll() is not None)
    (serving,) = (each for each in both if each is not refused)
    refused.wait_for("--data cluster: a cluster runs there already")
    serving.wait_for("The cluster runs")
    assert serving.stop() == 0


@pytest.mark.parametrize(
    ("words", "size"), [((), 64 * 2**20), (("mappedFileSizeCommitLog=1048576",), 2**20)]
)
def test_log_files_are_small_and_keep_their_size(
    started: list[Running], port: int, words: tuple[str, ...], size: int
) -> None:
    for more in (words, ()):
        running = Running("bolide", "cluster", "up", "--base-port", str(port), *more)
        started.append(running)
        running.wait_for("The cluster runs")
        asyncio.run(send(f"127.0.0.1:{port}"))
        assert running.stop() == 0
        (log_file, *_) = sorted(Path("cluster", "broker-a-0", "store", "commitlog").iterdir())
        assert log_file.stat().st_size == size


async def send(name_servers: str) -> None:
    async with Producer("tests", name_server=name_servers) as producer:
        await producer.send(Message("Orders", b"one"))


def test_a_cluster_in_the_foreground_says_what_runs_and_stops_on_a_signal(
    started: list[Running], port: int
) -> None:
    running = Running("bolide", "cluster", "up", "--base-port", str(port))
    started.append(running)

    running.wait_for("The cluster runs; Ctrl-C or `bolide cluster down` stops it.")

    assert f"NameServers for clients: 127.0.0.1:{port}" in running.output
    assert running.stop(signal.SIGINT) == 0
    assert running.output.endswith("All members stopped.\n")


def test_a_start_that_fails_in_the_background_is_reported(home: Path, port: int) -> None:
    words = ("tls.server.certPath=none.pem", "tls.server.keyPath=none.key")

    done = run("bolide", "cluster", "up", "--detach", "--base-port", str(port), *words)

    assert done.returncode != 0
    assert "broker-a-0 ended before it served: bolide: " in done.stderr
    assert not (home / "cluster" / "cluster.json").exists()


SLOW = """
import sys
from bolide.cli import cluster
from bolide.cli.program import main
cluster._DETACH_WITHIN = float(sys.argv.pop(1))
main()
"""


@pytest.mark.parametrize("within", ["0", "1.0"])
def test_a_start_in_the_background_that_takes_too_long_is_ended(
    home: Path, port: int, within: str
) -> None:
    words = ("cluster", "up", "--detach", "--base-port", str(port), "--brokers", "9")
    done = subprocess.run(
        [sys.executable, "-c", SLOW, within, *words, "mappedFileSizeCommitLog=1048576"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode != 0
    assert f"the cluster did not run within {float(within):g} s, and was ended" in done.stderr
    assert not any(processes_of(path) for path in (home / "cluster").iterdir())
    assert not (home / "cluster" / "cluster.json").exists()


def processes_of(directory: Path) -> list[int]:
    """Processes of the member with this directory."""
    mark = f"BOLIDE_CLUSTER_MEMBER={directory}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + WITHIN
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, pid
        time.sleep(0.02)
