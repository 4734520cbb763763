"""`bolide pipeline run FILE` as people run it: topic to database, Ctrl-C, and on from there."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from bolide import Message
from bolide.arrow.cluster import Connection
from bolide.protocol.bodies.pipelines import State
from bolide.spark.pipelines.monitoring.status_topic import StatusTopic
from tests.interop.apache import Unobtainable
from tests.support import sqlite_driver
from tests.support.cluster_process import ClusterProcess
from tests.support.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "examples" / "pipelines" / "orders-to-sqlite.yaml"
HOW_TO = ROOT / "docs" / "how-to" / "pipeline-to-a-database.md"
NAME = "orders-to-sqlite"
PATIENCE = 150.0


class Run:
    """The command in a process group of its own, as a shell would have it."""

    def __init__(self, *words: str, **environment: str) -> None:
        command = [str(COMMANDS / "bolide"), "pipeline", "run", str(SAMPLE), *words]
        self._process = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        """As Ctrl-C does: all processes in front of the terminal get it."""
        os.killpg(self._process.pid, signal.SIGINT)

    def finish(self) -> tuple[int, str]:
        output, _ = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, output


@pytest.fixture(scope="module")
def driver() -> Path:
    try:
        return sqlite_driver.obtain()
    except Unobtainable as missing:
        pytest.skip(str(missing))


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def orders(topic: str, numbers: range) -> list[Message]:
    found = [{"id": n, "customer": f"c{n % 7}", "amount": n / 4} for n in numbers]
    return [Message(topic, json.dumps(order).encode()) for order in found]


@pytest.mark.long
@pytest.mark.timeout(400)  # the driver may have to be fetched
def test_orders_come_into_a_database_once_through_an_interrupt_and_a_repeated_batch(
    cluster: ClusterProcess, tmp_path: Path, driver: Path
) -> None:
    (create,) = code_blocks(HOW_TO, "sql")
    database = tmp_path / "orders.db"
    with sqlite3.connect(database) as connected:
        connected.execute(create)
    topic = "OrdersToDatabase"
    cluster.create_topic(topic, 2)
    cluster.send([*orders(topic, range(50)), Message(topic, b"no JSON")])
    words = ["-n", cluster.address, "-o", f"topic={topic}", "--report-interval", "0.5"]
    words += ["--conf", f"spark.jars={driver}", "--conf", "spark.driver.memory=1g"]
    environment = {"ORDERS_DB": str(database), "BOLIDE_HOME": str(tmp_path)}

    stream = Run(*words, "--every", "1 second", **environment)
    try:
        until_rows(database, 50, stream)
    finally:
        stream.interrupt()
    code, output = stream.finish()
    forget_last_commit(tmp_path / "pipelines" / NAME / "checkpoint")
    cluster.send(orders(topic, range(50, 60)))
    again, said = Run(*words, "--once", **environment).finish()

    assert code == 0, output
    assert "51 rows" in output
    assert again == 0, said
    assert "61 of 61 rows" in said
    assert sorted(ids(database)) == list(range(60))
    with StatusTopic(Connection(name_server=cluster.address)) as status_topic:
        states = [each.state for each in status_topic.states(600) if each.pipeline == NAME]
    assert states == [State.FINISHED, State.STOPPED]


def test_the_how_to_shows_the_sample() -> None:
    assert [block.strip() for block in code_blocks(HOW_TO, "yaml")] == [
        SAMPLE.read_text().partition("\n")[2].strip()
    ]


def forget_last_commit(checkpoint: Path) -> None:
    """As if the run had been killed between writing a batch and noting that it had."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def until_rows(database: Path, count: int, run: Run) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(ids(database)) < count:
        assert run.is_alive, run.finish()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ids(database: Path) -> list[int]:
    with sqlite3.connect(database) as connected:
        return [number for (number,) in connected.execute("select id from orders")]
