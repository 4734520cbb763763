"""`bolide status`, `bolide shutdown` and the units of systemd, with real servers."""

import csv
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bolide.version import __version__
from tests.support.commands import Running, home, run, started
from tests.support.ports import free_port

__all__ = ["home", "started"]

UNITS = Path(__file__).resolve().parents[2] / "conf" / "systemd"
SMALL = "mappedFileSizeCommitLog=1048576"


def shown() -> dict[str, dict[str, Any]]:
    """The output of `bolide status`, by kind and name."""
    done = run("bolide", "status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return {f"{each['kind']} {each['name']}".strip(): each for each in json.loads(done.stdout)}


def begin(started: list[Running], *words: str) -> Running:
    running = Running(*words)
    started.append(running)
    return running


def test_servers_are_shown_and_stopped(home: Path, started: list[Running]) -> None:
    port, broker_port = free_port(), free_port((-2, 1, 8, 10, 11))
    names = begin(started, "bolide", "namesrv", f"listenPort={port}")
    names.wait_for("boot success")
    broker = begin(
        started, "bolide", "broker", "-n", f"127.0.0.1:{port}", "--workers", "2", SMALL,
        "brokerName=pair", f"listenPort={broker_port}", f"storePathRootDir={home / 'store'}",
    )  # fmt: skip
    broker.wait_for("2 workers serve")
    standalone = begin(
        started, "bolide", "standalone", "--namesrv-port", str(free_port()), "--broker-port",
        str(free_port((-2, 1))), SMALL,
    )  # fmt: skip
    standalone.wait_for("The broker.* boot success")

    servers = shown()
    assert set(servers) == {
        "namesrv", "broker pair", "broker pair-0", "broker pair-1", "standalone broker-a",
    }  # fmt: skip
    assert {each["state"] for each in servers.values()} == {"ready"}
    assert {each["version"] for each in servers.values()} == {__version__}
    assert servers["namesrv"]["addresses"] == [f"127.0.0.1:{port}"]
    assert servers["broker pair-1"]["addresses"][0] == f"127.0.0.1:{broker_port + 10}"
    assert servers["broker pair-1"]["memberOf"] == "workers"
    assert servers["broker pair"]["data"] == str(home / "store")
    assert servers["broker pair"]["pid"] == broker.process.pid
    table = run("bolide", "status").stdout
    assert re.search(rf"^namesrv +- +{names.process.pid} +ready ", table, re.MULTILINE)
    rows = list(csv.DictReader(run("bolide", "status", "--output", "csv").stdout.splitlines()))
    assert {row["pid"] for row in rows} == {str(each["pid"]) for each in servers.values()}
    documents = yaml.safe_load(run("bolide", "status", "--output", "yaml").stdout)
    assert [each["pid"] for each in documents] == [int(row["pid"]) for row in rows]

    # A worker would be started again, and is not what the name says; nor is another broker.
    worker = str(servers["broker pair-1"]["pid"])
    refused = run("bolide", "shutdown", "broker", "--pid", worker)
    assert refused.returncode == 1
    assert "is a worker, which would be started again" in refused.stderr
    assert run("bolide", "shutdown", "broker", "--name", "nobody").returncode == 1

    done = run("bolide", "shutdown", "broker")
    pid = broker.process.pid
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Send shutdown request to mqbroker({pid}) OK" in done.stdout
    assert f"Broker pair (process {pid}) stopped after" in done.stdout
    broker.wait_for("All workers stopped")
    again = run("bolide", "shutdown", "broker")
    assert (again.returncode, again.stdout) == (1, "No mqbroker running.\n")
    assert "mqshutdown standalone" in again.stderr

    assert run("bolide", "shutdown", "all").returncode == 0
    assert shown() == {}
    assert names.stop() == standalone.stop() == 0
    assert run("bolide", "status").stdout.startswith("No Bolide server of this user runs")


def test_a_killed_server_is_not_shown_and_a_hanging_one_is_not_killed(
    home: Path, started: list[Running]
) -> None:
    killed = begin(started, "bolide", "namesrv", f"listenPort={free_port()}")
    hanging = begin(started, "bolide", "namesrv", f"listenPort={free_port()}")
    for each in (killed, hanging):
        each.wait_for("boot success")
    killed.process.kill()
    killed.process.wait()
    hanging.process.send_signal(signal.SIGSTOP)
    assert [each["pid"] for each in shown().values()] == [hanging.process.pid]
    assert shown()["namesrv"]["state"] == "paused"

    late = run("bolide", "shutdown", "namesrv", "--timeout", "0")
    assert late.returncode == 1
    assert f"kill -9 {hanging.process.pid}" in late.stderr
    assert hanging.process.wait(20) == 0  # it went on, and ended in order


def test_what_cannot_be_stopped_has_its_exit_code(home: Path) -> None:
    proxy = run("bolide", "shutdown", "proxy")
    assert (proxy.returncode, proxy.stdout) == (4, "")
    assert "Bolide has no proxy" in proxy.stderr
    assert run("bolide", "shutdown", "kafka").returncode == 2
    assert run("bolide", "shutdown").returncode == 2
    assert run("bolide", "status", "--json", "--output", "csv").returncode == 2


def test_mqshutdown_is_the_command_under_its_name(home: Path) -> None:
    program = "import sys; sys.argv = ['mqshutdown', 'broker']; from bolide.cli import mqshutdown"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; mqshutdown()"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "No mqbroker running.\n")


def test_the_service_manager_hears_when_a_server_is_ready_and_stops(
    home: Path, started: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(home / "notify"))
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(home / "notify"))
        server = begin(started, "bolide", "namesrv", f"listenPort={free_port()}")

        assert manager.recv(100) == b"READY=1"
        server.process.terminate()
        assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_the_units_are_valid(tmp_path: Path) -> None:
    """The programs are replaced by one that is there."""
    units = sorted(UNITS.glob("*.service"))
    assert {unit.name for unit in units} == {
        "bolide-namesrv.service", "bolide-controller.service", "bolide-broker.service",
        "bolide-console.service",
        "bolide-broker@.service", "bolide-standalone.service",
    }  # fmt: skip
    for unit in units:
        text = unit.read_text().replace("/opt/bolide/bin/bolide", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True, text=True, check=False, env=os.environ | {"SYSTEMD_LOG_LEVEL": "info"},
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if "bolide" in line]
    assert (done.returncode, ours) == (0, [])


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists(home: Path, unit: Path) -> None:
    command = re.search(r"^ExecStart=/opt/bolide/bin/bolide (\w+) (\S+)", unit.read_text(), re.M)
    assert command is not None
    help_text = run("bolide", command[1], "--help").stdout
    assert command[2] in help_text
