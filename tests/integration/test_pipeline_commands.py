"""What runs of pipelines report to the cluster, and the commands that read it; without Spark."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bolide.arrow.cluster import Connection
from bolide.cli import app
from bolide.protocol.bodies.pipelines import VERSION, Progress, State, StopRequest
from bolide.spark.pipelines.errors import AlreadyRunning
from bolide.spark.pipelines.monitoring.reporter import Reporter, new_run
from bolide.spark.pipelines.monitoring.status_topic import StatusTopic
from bolide.spark.pipelines.runner import refuse_second_run
from tests.support.cluster_process import ClusterProcess, cluster_process

PATIENCE = 20.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def connection(served: ClusterProcess) -> Connection:
    return Connection(name_server=served.address)


def reporter(connection: Connection, name: str, stop: threading.Event) -> Reporter:
    told = new_run(name, "rocketmq a to rocketmq b", once=False, interval=0.5)
    return Reporter(StatusTopic(connection), told, stop=stop)


def pipeline(*words: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *words])


def reason(done: Result) -> str:
    """What the command says of its failure, without the program's name."""
    assert done.exit_code == 1
    return done.stderr.partition(": ")[2].strip()


def find_state(connection: Connection, name: str) -> State | None:
    with StatusTopic(connection) as status_topic:
        return next((each.state for each in status_topic.states(60) if each.pipeline == name), None)


def until_state(connection: Connection, name: str, state: State) -> None:
    deadline = time.monotonic() + PATIENCE
    while find_state(connection, name) is not state:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_is_listed_shown_and_stopped_by_other_programs(
    served: ClusterProcess, connection: Connection
) -> None:
    words = ("-n", served.address)
    stop = threading.Event()

    with reporter(connection, "orders", stop) as reports:
        reports.record_progress(Progress(rows=1500, total=2000, batch=3, behind={"a": 500}))
        until_state(connection, "orders", State.RUNNING)
        with pytest.raises(AlreadyRunning, match="pipeline 'orders' runs already, process"):
            refuse_second_run(connection, "orders")

        def end() -> None:
            stop.wait(PATIENCE)
            reports.set_state(State.STOPPED)

        ending = threading.Thread(target=end)
        ending.start()
        stopped = pipeline("stop", "orders", *words)
        ending.join()
    listed = pipeline("list", *words)
    document = json.loads(pipeline("list", "--json", *words).stdout)
    shown = pipeline("status", "orders", *words)
    again = pipeline("stop", "orders", *words)
    refuse_second_run(connection, "orders")

    assert (stopped.exit_code, stopped.stdout) == (0, "pipeline orders has stopped\n")
    assert stop.is_set()
    row = listed.stdout.splitlines()[1].split()
    assert row[:5] == ["orders", "stopped", "1,500/2,000", "0", "500"]
    assert document["progress"] == {
        "rows": 1500, "total": 2000, "batch": 3, "behind": {"a": 500},
    }  # fmt: skip
    assert "state      stopped" in shown.stdout
    assert "behind in a 500" in shown.stdout
    assert reason(again) == "pipeline 'orders' is not running"


def test_a_run_that_says_no_more_is_lost_and_one_that_failed_says_why(
    served: ClusterProcess, connection: Connection
) -> None:
    words = ("-n", served.address)
    with StatusTopic(connection) as status_topic:
        status_topic.ensure_topic()
        silent = new_run("silent", "", once=False, interval=0.001)
        status_topic.publish(silent)
    with (
        pytest.raises(ValueError, match="too bad"),
        reporter(connection, "broken", threading.Event()),
    ):
        raise ValueError("too bad")

    assert reason(pipeline("status", "silent", *words)) == "pipeline silent is lost"
    assert reason(pipeline("status", "broken", *words)) == "too bad"
    assert reason(pipeline("status", "nobody", *words)) == (
        "pipeline 'nobody' has reported nothing since 1d ago; see --since"
    )


def test_a_run_whose_process_was_killed_may_be_started_again_at_once(
    connection: Connection,
) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    run = new_run("killed", "", once=False, interval=60.0)
    with StatusTopic(connection) as status_topic:
        status_topic.ensure_topic()
        status_topic.publish(msgspec.structs.replace(run, pid=killed.pid))

    refuse_second_run(connection, "killed")

    with StatusTopic(connection) as status_topic:
        status_topic.publish(msgspec.structs.replace(run, host="another", pid=killed.pid))
    with pytest.raises(AlreadyRunning, match="on another"):
        refuse_second_run(connection, "killed")


def test_a_listener_hears_what_comes_after_it_began(connection: Connection) -> None:
    asked = StopRequest(version=VERSION, pipeline="heard")
    with StatusTopic(connection) as teller, StatusTopic(connection) as listener:
        teller.ensure_topic()
        teller.publish(asked)
        first = listener.poll()
        teller.publish(asked)
        teller.publish(asked)

        assert first == []
        assert listener.poll() == [asked, asked]
        assert listener.poll() == []


def test_a_cluster_without_the_topic_has_no_pipelines(tmp_path: Path) -> None:
    with cluster_process(tmp_path) as cluster:
        listed = pipeline("list", "-n", cluster.address)

    assert listed.exit_code == 0
    assert len(listed.stdout.splitlines()) == 1


def test_a_cluster_that_cannot_be_reached_is_named() -> None:
    listed = pipeline("list", "-n", "127.0.0.1:1")

    assert listed.exit_code == 3
    assert "127.0.0.1:1" in listed.stderr
    assert len(listed.stderr.splitlines()) == 1
