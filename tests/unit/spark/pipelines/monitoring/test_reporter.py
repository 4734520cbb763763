import logging
import threading
from queue import Queue

import pytest

from bolide.errors import BolideError
from bolide.spark.pipelines.monitoring.reporter import Reporter, new_run
from bolide.spark.pipelines.monitoring.status_topic import Event, Kind, Progress

PATIENCE = 10.0


class Voice:
    """A topic of one listener."""

    def __init__(self) -> None:
        self.told: Queue[Event] = Queue()
        self.asked: list[Event] = []
        self.broken = False

    def __enter__(self) -> "Voice":
        return self

    def __exit__(self, *reason: object) -> None: ...

    def ensure_topic(self) -> None: ...

    def tell(self, event: Event) -> None:
        self.told.put(event)
        if self.broken:
            raise BolideError("nobody there")

    def listen(self) -> list[Event]:
        asked, self.asked = self.asked, []
        return asked

    def next(self) -> Event:
        return self.told.get(timeout=PATIENCE)

    def until(self, kind: Kind) -> Event:
        while (event := self.next()).kind is not kind:
            pass
        return event


def reporter(voice: Voice, stop: threading.Event, interval: float = 0.01) -> Reporter:
    return Reporter(voice, new_run("orders", "a to b", once=False, interval=interval), stop=stop)


def test_a_run_tells_that_it_started_how_far_it_is_and_how_it_ended() -> None:
    voice = Voice()

    with reporter(voice, threading.Event()) as told:
        first = voice.next()
        told.progress(Progress(rows=7))
        while (later := voice.until(Kind.PROGRESS)).progress is None:
            pass
        told.change(Kind.FINISHED)
    last = voice.until(Kind.FINISHED)

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
    assert voice.told.empty()


def test_an_error_is_reported_if_nobody_did() -> None:
    voice = Voice()

    with pytest.raises(ValueError, match="too bad"), reporter(voice, threading.Event()):
        raise ValueError("too bad")

    assert voice.until(Kind.FAILED).reason == "too bad"


@pytest.mark.parametrize("run", ["", "own"])
def test_a_request_sets_the_stop_and_is_told_at_once(run: str) -> None:
    voice, stop = Voice(), threading.Event()

    with reporter(voice, stop) as told:
        voice.next()
        wanted = told.run.run if run else ""
        voice.asked = [Event(kind=Kind.REQUEST_STOP, pipeline="orders", run=wanted)]
        assert stop.wait(PATIENCE)
        voice.until(Kind.STOPPING)


@pytest.mark.parametrize(
    "other",
    [
        Event(kind=Kind.REQUEST_STOP, pipeline="returns"),
        Event(kind=Kind.REQUEST_STOP, pipeline="orders", run="another"),
        Event(kind=Kind.STOPPING, pipeline="orders"),
    ],
)
def test_what_others_are_asked_for_does_not_stop_it(other: Event) -> None:
    voice, stop = Voice(), threading.Event()

    with reporter(voice, stop):
        voice.next()
        voice.asked = [other]
        while voice.asked:
            voice.next()
        voice.next()

    assert not stop.is_set()


def test_a_cluster_that_is_away_stops_nothing_and_is_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    voice = Voice()
    voice.broken = True

    with caplog.at_level(logging.WARNING), reporter(voice, threading.Event()) as told:
        kinds = [voice.next().kind for _ in range(3)]
        voice.broken = False
        voice.until(Kind.PROGRESS)
        told.change(Kind.FINISHED)

    assert kinds == [Kind.STARTED] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "the pipeline goes on, but cannot report: nobody there"
    ]
