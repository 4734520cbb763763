"""`--workers`: several brokers of one command, killed, stopped and started again."""

import asyncio
import os
import re
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest

from bolide import Message, Producer
from bolide.admin.client import AdminClient
from bolide.protocol.refusals import NoPermission
from tests.interop.bench import BROKER_NEIGHBOURS
from tests.interop.processes import accepts_connections, is_alive
from tests.support.aio import on_loop, until
from tests.support.commands import Running, run
from tests.support.ports import free_port
from tests.support.process_figures import children, private_memory, require_proc
from tests.support.topic_contents import contents

SMALL = ("mappedFileSizeCommitLog=1048576", "maxHashSlotNum=1000", "maxIndexNum=4000")
SERVING = r"2 workers serve: worker-0 is (\S+)-0, worker-1 is \1-1\."


class Workers:
    """A NameServer and two workers on ports that are free."""

    def __init__(self, started: list[Running], *words: str) -> None:
        self.port = free_port((*BROKER_NEIGHBOURS, 8, 10, 11))
        names = free_port()
        self.name_server = f"127.0.0.1:{names}"
        self.running = Running(
            "bolide", "standalone", "--workers", "2", "--host", "127.0.0.1",
            "--namesrv-port", str(names), "--broker-port", str(self.port), *SMALL, *words,
        )  # fmt: skip
        started.append(self.running)
        self.running.wait_for(SERVING)

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def pid_of(self, word: str) -> int:
        (found,) = [pid for pid, command in children(self.pid).items() if word in command]
        return found

    async def send(self, count: int) -> Counter[str]:
        """Send messages of different bodies; says how many each worker took."""
        async with AdminClient(self.name_server) as admin:
            await admin.topics.create("T", "DefaultCluster", queues=2)
        async with Producer("senders", name_server=self.name_server) as producer:
            sent = [await producer.send(Message("T", str(n).encode())) for n in range(count)]
        return Counter(each.queue.broker_name for each in sent)

    async def bodies(self) -> list[int]:
        found = await contents(self.name_server, "T")
        return sorted(int(each.body) for messages in found.values() for each in messages)


def test_a_killed_worker_comes_back_with_its_messages_and_all_end_in_order(
    started: list[Running], home: Path
) -> None:
    require_proc()
    cluster = Workers(started)
    assert asyncio.run(cluster.send(40)) == {"broker-a-0": 20, "broker-a-1": 20}
    killed = cluster.pid_of("brokerName=broker-a-1")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(killed, signal.SIGKILL)
        cluster.running.wait_for(r"worker-1 was ended by SIGKILL; it is started again in 0\.5 s")
        other.bind(("127.0.0.1", cluster.port + 10))
        other.listen()
        cluster.running.wait_for(r"worker-1 ended with exit code 3; it is started again in 1 s")
    cluster.running.wait_for("worker-1 serves again")
    assert asyncio.run(cluster.bodies()) == list(range(40))
    assert cluster.running.stop() == 0
    assert cluster.running.output.endswith("The Name Server stopped.\nAll workers stopped.\n")
    assert not list(home.glob("data/store/worker-*/abort"))
    assert len(list(home.glob("data/store/worker-*/checkpoint"))) == 2


def test_workers_end_with_the_process_that_watches_over_them(
    started: list[Running], home: Path
) -> None:
    require_proc()
    cluster = Workers(started)
    assert private_memory(cluster.pid) < 30 * 2**20
    pids = list(children(cluster.pid))
    assert len(pids) == 3
    cluster.running.process.kill()
    cluster.running.process.wait()
    asyncio.run(_gone(pids))
    assert not accepts_connections(cluster.port)
    assert not list(home.glob("data/store/worker-*/abort"))


async def _gone(pids: list[int]) -> None:
    await until(lambda: not any(map(is_alive, pids)))


@on_loop
async def test_what_is_changed_at_one_worker_is_not_changed_at_the_other(
    started: list[Running], home: Path
) -> None:
    require_proc()
    cluster = Workers(started)
    first, second = (f"127.0.0.1:{cluster.port + step}" for step in (0, 10))
    async with AdminClient(cluster.name_server) as admin:
        await admin.brokers.update_config(second, {"fileReservedTime": "7"})
        with pytest.raises(NoPermission, match="listenPort"):
            await admin.brokers.update_config(second, {"listenPort": "1"})
        os.kill(cluster.pid_of("brokerName=broker-a-1"), signal.SIGTERM)
        cluster.running.wait_for("worker-1 serves again")
        found = [await admin.brokers.config(each) for each in (first, second)]
    assert [each["fileReservedTime"] for each in found] == ["72", "7"]
    assert [each["workers"] for each in found] == ["2", "2"]


def test_each_process_has_its_log_and_a_hangup_reaches_all(
    started: list[Running], home: Path
) -> None:
    file = home / "logging.toml"
    file.write_text('file = "logs/first.log"\n')
    cluster = Workers(started, "--log-config", str(file))
    assert "bolide.namesrv" in Path("logs/first-namesrv.log").read_text()
    assert Path("logs/first.log").exists()
    file.write_text('file = "logs/second.log"\nconsole = true\n')
    cluster.running.process.send_signal(signal.SIGHUP)
    every = ("second.log", "second-namesrv.log", "second-worker-0.log", "second-worker-1.log")
    asyncio.run(_written([Path("logs") / name for name in every]))
    assert cluster.running.stop() == 0
    assert re.search(r"^\[namesrv\] \S+ INFO bolide\.", cluster.running.output, re.MULTILINE)


async def _written(files: list[Path]) -> None:
    """Wait until every log file has a line: a file is created a little before its first line."""
    await until(
        lambda: all(
            file.exists() and "configuration reloaded" in file.read_text() for file in files
        )
    )


def test_one_worker_is_a_broker_as_without_the_option(started: list[Running], home: Path) -> None:
    here = ("bindAddress=127.0.0.1", "listenPort=0", "storePathRootDir=store", *SMALL)
    broker = Running("mqbroker", "--workers", "1", "brokerName=x", *here)
    started.append(broker)
    broker.wait_for(r"The broker\[x, ")
    assert broker.stop() == 0
    assert Path("store", "checkpoint").exists()
    done = run("mqbroker", "workers=2", *here)
    assert done.returncode == 3
    assert "without workers; move all of it to store/worker-0" in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--workers", "0"), "workers=0: must be a whole number from 1 to 256"),
        (("--workers", "4", "listenPort=65530"), "worker-1 would need port"),
        (("--workers", "1"), "--workers 2"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    home: Path, words: tuple[str, ...], reason: str
) -> None:
    Path("store", "worker-1").mkdir(parents=True)
    done = run("bolide", "broker", "storePathRootDir=store", *words)
    assert done.returncode == 3
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_worker_that_cannot_start_ends_the_others(home: Path) -> None:
    Path("store").mkdir()
    Path("store", "worker-1").write_text("no directory")
    port = free_port((*BROKER_NEIGHBOURS, 8, 10, 11))
    here = ("bindAddress=127.0.0.1", f"listenPort={port}", "storePathRootDir=store", *SMALL)
    done = run("bolide", "broker", "--workers", "2", *here)
    assert done.returncode == 3
    assert "worker-1 ended with exit code 3 before it served" in done.stderr
    assert not accepts_connections(port)
