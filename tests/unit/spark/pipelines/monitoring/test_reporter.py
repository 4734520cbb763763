import logging
import threading
from queue import Queue

import pytest

from bolide.errors import BolideError
from bolide.spark.pipelines.monitoring.reporter import Reporter, new_run
from bolide.spark.pipelines.monitoring.status_topic import Event, Kind, Progress

PATIENCE = 10.0


class FakeChannel:
    """An in-memory status topic."""

    def __init__(self) -> None:
        self.published: Queue[Event] = Queue()
        self.requests: list[Event] = []
        self.broken = False

    def __enter__(self) -> "FakeChannel":
        return self

    def __exit__(self, *reason: object) -> None: ...

    def ensure_topic(self) -> None: ...

    def publish(self, event: Event) -> None:
        self.published.put(event)
        if self.broken:
            raise BolideError("nobody there")

    def poll(self) -> list[Event]:
        requests, self.requests = self.requests, []
        return requests

    def next(self) -> Event:
        return self.published.get(timeout=PATIENCE)

    def until(self, kind: Kind) -> Event:
        while (event := self.next()).kind is not kind:
            pass
        return event


def reporter(channel: FakeChannel, stop: threading.Event, interval: float = 0.01) -> Reporter:
    return Reporter(channel, new_run("orders", "a to b", once=False, interval=interval), stop=stop)


def test_a_run_tells_that_it_started_how_far_it_is_and_how_it_ended() -> None:
    channel = FakeChannel()

    with reporter(channel, threading.Event()) as active:
        first = channel.next()
        active.record_progress(Progress(rows=7))
        while (later := channel.until(Kind.PROGRESS)).progress is None:
            pass
        active.set_state(Kind.FINISHED)
    last = channel.until(Kind.FINISHED)

    assert first.kind is Kind.STARTED
    assert (first.pipeline, first.text, first.host != "", first.pid > 0) == (
        "orders",
        "a to b",
        True,
        True,
    )
    assert later.progress == Progress(rows=7)
    assert last.progress == Progress(rows=7)
    assert len({first.run, later.run, last.run}) == 1
    assert channel.published.empty()


def test_an_error_is_reported_if_nobody_did() -> None:
    channel = FakeChannel()

    with pytest.raises(ValueError, match="too bad"), reporter(channel, threading.Event()):
        raise ValueError("too bad")

    assert channel.until(Kind.FAILED).reason == "too bad"


@pytest.mark.parametrize("run", ["", "own"])
def test_a_request_sets_the_stop_and_is_told_at_once(run: str) -> None:
    channel, stop = FakeChannel(), threading.Event()

    with reporter(channel, stop) as active:
        channel.next()
        wanted = active.run.run if run else ""
        channel.requests = [Event(kind=Kind.REQUEST_STOP, pipeline="orders", run=wanted)]
        assert stop.wait(PATIENCE)
        channel.until(Kind.STOPPING)


@pytest.mark.parametrize(
    "other",
    [
        Event(kind=Kind.REQUEST_STOP, pipeline="returns"),
        Event(kind=Kind.REQUEST_STOP, pipeline="orders", run="another"),
        Event(kind=Kind.STOPPING, pipeline="orders"),
    ],
)
def test_what_others_are_asked_for_does_not_stop_it(other: Event) -> None:
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
        kinds = [channel.next().kind for _ in range(3)]
        channel.broken = False
        channel.until(Kind.PROGRESS)
        active.set_state(Kind.FINISHED)

    assert kinds == [Kind.STARTED] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "cannot publish the state of the pipeline, which continues: nobody there"
    ]
