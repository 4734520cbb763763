"""The bench works with Java alone, so that a failure elsewhere is not the bench's."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop import apache, golang
from tests.interop.bench import Bench, Server
from tests.interop.processes import ChildProcess, ProcessFailed, is_alive

REPOSITORY = Path(__file__).resolve().parents[2]

STARTS_A_NAMESRV_AND_WAITS = """
import sys, time
from pathlib import Path
from tests.interop.bench import Bench

server = Bench(Path(sys.argv[1])).namesrv(sys.argv[2])
print(server.process.pid, flush=True)
time.sleep(600)
"""


@dataclass(frozen=True)
class Cluster:
    namesrv: Server
    broker: Server


@pytest.fixture(scope="module")
def cluster(rocketmq: str, java_module_bench: Bench) -> Cluster:
    namesrv = java_module_bench.namesrv(rocketmq)
    return Cluster(namesrv, java_module_bench.broker(rocketmq, namesrv.address))


def test_a_hundred_messages_reach_the_consumer(
    rocketmq: str, cluster: Cluster, java_client: Callable[..., ChildProcess]
) -> None:
    job = (cluster.namesrv.address, "Hundred", 100)

    assert java_client(rocketmq, "SendMessages", *job).wait() == ["sent 100"]
    assert java_client(rocketmq, "ReceiveMessages", *job).wait() == ["ready", "received 100"]


def test_a_client_program_prints_the_route_of_a_topic(
    rocketmq: str, cluster: Cluster, java_client: Callable[..., ChildProcess]
) -> None:
    routes = java_client(rocketmq, "Routes", cluster.namesrv.address, "TBW102")

    assert routes.wait_for_line("broker-a 0")
    assert routes.wait()[-1] == "queues 8"


def test_a_client_program_that_fails_says_why(
    rocketmq: str, cluster: Cluster, java_client: Callable[..., ChildProcess]
) -> None:
    routes = java_client(rocketmq, "Routes", cluster.namesrv.address, "Nowhere")

    with pytest.raises(ProcessFailed, match=r"exit code 1(.|\n)*Nowhere"):
        routes.wait()


def test_mqadmin_lists_the_broker(
    rocketmq: str, cluster: Cluster, java_mqadmin: Callable[..., str]
) -> None:
    listed = java_mqadmin(rocketmq, "clusterList", namesrv=cluster.namesrv.address)

    assert "broker-a" in listed
    assert cluster.broker.address in listed


def test_an_error_of_mqadmin_is_not_taken_for_output(
    rocketmq: str, cluster: Cluster, java_mqadmin: Callable[..., str]
) -> None:
    with pytest.raises(ProcessFailed, match="No topic route info"):
        java_mqadmin(rocketmq, "topicRoute", "-t", "Nowhere", "-n", cluster.namesrv.address)


def test_a_client_program_speaks_tls_when_told(
    rocketmq: str, java_bench: Bench, java_client: Callable[..., ChildProcess]
) -> None:
    secure = java_bench.namesrv(rocketmq, jvm=["-Dtls.server.mode=enforcing"])
    routes = java_client(rocketmq, "Routes", secure.address, "Nowhere", "--tls")

    with pytest.raises(ProcessFailed, match="No topic route info in name server"):
        routes.wait()


def test_a_stopped_server_is_gone(rocketmq: str, java_namesrv: Callable[..., Server]) -> None:
    server = java_namesrv(rocketmq)
    assert is_alive(server.process.pid)

    server.stop()

    assert not is_alive(server.process.pid)
    assert (server.directory / "logs" / "rocketmq.log").exists()


def test_a_server_that_cannot_start_shows_its_last_words(
    rocketmq: str, java_namesrv: Callable[..., Server]
) -> None:
    with socket.socket() as occupant:
        occupant.bind(("0.0.0.0", 0))
        occupant.listen()
        with pytest.raises(ProcessFailed, match="Address already in use"):
            java_namesrv(rocketmq, listenPort=occupant.getsockname()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_a_killed_parent_leaves_no_java_process(rocketmq: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_A_NAMESRV_AND_WAITS, str(tmp_path), rocketmq]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < deadline, "the Java process outlives its parent"
        time.sleep(0.05)


def test_what_cannot_be_fetched_is_reported_and_is_no_failure(tmp_path: Path) -> None:
    for tool in ("java", "javac", "mvn", "go"):
        fake = tmp_path / tool
        fake.write_text("#!/bin/sh\necho the repository is out of reach\nexit 1\n")
        fake.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.apache"],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": path, "BOLIDE_CACHE": str(tmp_path / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )

    for release in apache.releases().values():
        assert f"Apache RocketMQ {release.version} could not be fetched by Maven" in done.stdout
    assert f"client {golang.client_version()} for Go could not be fetched" in done.stdout
    assert "the repository is out of reach" in done.stdout


def test_a_missing_tool_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(apache.Unobtainable, match="`mvn` is not on PATH: install"):
        apache.tool("mvn")
