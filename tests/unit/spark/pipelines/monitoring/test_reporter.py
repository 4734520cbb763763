import logging
import threading
from queue import Queue

import pytest

from bolide.errors import BolideError
from bolide.protocol.bodies.pipelines import VERSION, Progress, Report, State, StopRequest
from bolide.spark.pipelines.monitoring.reporter import Reporter, new_run

PATIENCE = 10.0


class FakeChannel:
    """An in-memory status topic."""

    def __init__(self) -> None:
        self.published: Queue[Report] = Queue()
        self.requests: list[StopRequest] = []
        self.broken = False

    def __enter__(self) -> "FakeChannel":
        return self

    def __exit__(self, *reason: object) -> None: ...

    def ensure_topic(self) -> None: ...

    def publish(self, message: Report) -> None:
        self.published.put(message)
        if self.broken:
            raise BolideError("nobody there")

    def poll(self) -> list[StopRequest]:
        requests, self.requests = self.requests, []
        return requests

    def next(self) -> Report:
        return self.published.get(timeout=PATIENCE)

    def until(self, state: State) -> Report:
        while (report := self.next()).state is not state:
            pass
        return report


def reporter(channel: FakeChannel, stop: threading.Event, interval: float = 0.01) -> Reporter:
    return Reporter(channel, new_run("orders", "a to b", once=False, interval=interval), stop=stop)


def test_a_run_tells_that_it_started_how_far_it_is_and_how_it_ended() -> None:
    channel = FakeChannel()

    with reporter(channel, threading.Event()) as active:
        first = channel.next()
        active.record_progress(Progress(rows=7))
        later = channel.until(State.RUNNING)
        active.record_position(committed=99, behind_seconds={"t": 1.5})
        active.record_progress(Progress(rows=8))
        for text in ("a", "b", "a"):
            active.record_problem(text)
        active.set_state(State.FINISHED)
    last = channel.until(State.FINISHED)

    assert first.state is State.STARTING
    assert (first.pipeline, first.text, first.host != "", first.pid > 0) == (
        "orders",
        "a to b",
        True,
        True,
    )
    assert later.progress == Progress(rows=7)
    assert last.progress == Progress(rows=8, committed=99, behind_seconds={"t": 1.5})
    assert [problem.text for problem in last.problems] == ["b", "a"]
    assert len({first.run, later.run, last.run}) == 1
    assert channel.published.empty()


def test_an_error_is_reported_if_nobody_did() -> None:
    channel = FakeChannel()

    with pytest.raises(ValueError, match="too bad"), reporter(channel, threading.Event()):
        raise ValueError("too bad")

    assert channel.until(State.FAILED).reason == "too bad"


@pytest.mark.parametrize("run", ["", "own"])
def test_a_request_sets_the_stop_and_is_told_at_once(run: str) -> None:
    channel, stop = FakeChannel(), threading.Event()

    with reporter(channel, stop) as active:
        channel.next()
        wanted = active.run.run if run else ""
        channel.requests = [StopRequest(version=VERSION, pipeline="orders", run=wanted)]
        assert stop.wait(PATIENCE)
        channel.until(State.STOPPING)


@pytest.mark.parametrize(
    "other",
    [
        StopRequest(version=VERSION, pipeline="returns"),
        StopRequest(version=VERSION, pipeline="orders", run="another"),
    ],
)
def test_what_others_are_asked_for_does_not_stop_it(other: StopRequest) -> None:
    channel, stop = FakeChannel(), threading.Event()

    with reporter(channel, stop):
        channel.next()
        channel.requests = [other]
        while channel.requests:
            channel.next()
        channel.next()

    assert not stop.is_set()


def test_a_cluster_that_is_away_stops_nothing_and_is_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel = FakeChannel()
    channel.broken = True

    with caplog.at_level(logging.WARNING), reporter(channel, threading.Event()) as active:
        states = [channel.next().state for _ in range(3)]
        channel.broken = False
        active.record_progress(Progress(rows=1))
        channel.until(State.RUNNING)
        active.set_state(State.FINISHED)

    assert states == [State.STARTING] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "cannot publish the state of the pipeline, which continues: nobody there"
    ]
