"""`bolide cluster` as it is installed: up, look, harm, heal, down."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.cluster.state import require_state
from tests.interop.processes import free_port
from tests.support.commands import Running, home, run, started

__all__ = ["home", "started"]

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


def test_a_cluster_in_the_foreground_says_what_runs_and_stops_on_a_signal(
    started: list[Running], port: int
) -> None:
    running = Running("bolide", "cluster", "up", "--base-port", str(port))
    started.append(running)

    running.wait_for("The cluster runs; Ctrl-C or `bolide cluster down` stops it.")

    assert f"NameServers for clients: 127.0.0.1:{port}" in running.output
    assert running.stop(signal.SIGINT) == 0
    assert running.output.endswith("All members stopped.\n")


@pytest.mark.usefixtures("home")
def test_a_start_that_fails_in_the_background_is_reported(port: int) -> None:
    done = run(
        "bolide", "cluster", "up", "--detach", "--base-port", str(port), "flushDiskType=NEVER"
    )

    assert done.returncode != 0
    assert "broker-a-0 ended before it served: bolide: " in done.stderr


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, pid
        time.sleep(0.02)
