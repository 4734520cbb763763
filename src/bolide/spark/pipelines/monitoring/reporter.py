"""Publishes the state and progress of a run on BOLIDE_PIPELINES, and receives stop requests.

The reporter has a thread of its own; its failures never stop the pipeline.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import msgspec

from bolide.errors import BolideError
from bolide.spark.pipelines.monitoring.status_topic import Event, Kind, Progress

log = logging.getLogger(__name__)
REPORT_INTERVAL = 10.0
MAX_INTERVAL = 60.0
_LISTEN_INTERVAL = 1.0
_LAST_WORD = 10.0
_GOING_ON = {Kind.STARTED, Kind.PROGRESS}


class Voice(Protocol):
    """The topic, as a reporter uses it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def ensure_topic(self) -> None: ...

    def tell(self, event: Event) -> None: ...

    def listen(self) -> list[Event]: ...


def new_run(pipeline: str, text: str, *, once: bool, interval: float) -> Event:
    """What every event of a run repeats."""
    return Event(
        kind=Kind.STARTED,
        pipeline=pipeline,
        run=uuid.uuid4().hex[:12],
        text=text,
        once=once,
        host=socket.gethostname(),
        pid=os.getpid(),
        started=int(time.time() * 1000),
        interval=interval,
    )


class Reporter:
    """Tells that the run started when its `with` block begins, and how it ended when it ends."""

    def __init__(
        self,
        voice: Voice,
        run: Event,
        *,
        stop: threading.Event,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Take where to tell it, and what the run is.

        Args:
            voice: the topic.
            run: what all events repeat, from `new_run`.
            stop: set when somebody asks the run to stop.
            on_tick: called with every report, on the reporter's thread; it may be slow.
        """
        self._stop = stop
        self._voice = voice
        self._now = run
        self._on_tick = on_tick
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._lock = threading.Lock()  # guards _now: the run changes it, the thread reads it
        self._thread = threading.Thread(target=self._speak, name="pipeline-reporter", daemon=True)
        self._complained = False
        self._topic_known = False

    @property
    def run(self) -> Event:
        with self._lock:
            if self._stop.is_set() and self._now.kind in _GOING_ON:
                self._now = msgspec.structs.replace(self._now, kind=Kind.STOPPING)
            return self._now

    def progress(self, progress: Progress) -> None:
        """Note how far the run is; it is told with the next report."""
        self._change(progress=progress)

    def change(self, kind: Kind, reason: str | None = None) -> None:
        """Tell another state, soon."""
        self._change(kind=kind, reason=reason)
        self._wake.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None and self.run.kind is not Kind.FAILED:
            self._change(kind=Kind.FAILED, reason=str(exc) or type(exc).__name__)
        self._ending.set()
        self._wake.set()
        self._thread.join(_LAST_WORD)

    def _change(self, **facts: object) -> None:
        with self._lock:
            self._now = msgspec.structs.replace(self._now, **facts)

    # The thread

    def _speak(self) -> None:
        with self._voice:
            self._hear()  # the first time it only finds the place to listen from
            while True:
                is_last = self._ending.is_set()
                self._report()
                if is_last:
                    return
                self._pause()

    def _report(self) -> None:
        self._on_tick()
        try:
            self._tell()
        except BolideError as exc:
            if not self._complained:
                log.warning("the pipeline goes on, but cannot report: %s", exc)
            self._complained = True
        else:
            self._complained = False

    def _tell(self) -> None:
        if not self._topic_known:
            self._voice.ensure_topic()
            self._topic_known = True
        self._voice.tell(self.run)
        with self._lock:
            if self._now.kind is Kind.STARTED:
                self._now = msgspec.structs.replace(self._now, kind=Kind.PROGRESS)

    def _pause(self) -> None:
        """Listen for requests until the next report is due, or something is to be told."""
        until, told = time.monotonic() + self.run.interval, self.run.kind
        while time.monotonic() < until and self.run.kind is told:
            if self._wake.wait(min(_LISTEN_INTERVAL, self.run.interval)):
                break
            self._hear()
        self._wake.clear()

    def _hear(self) -> None:
        try:
            heard = self._voice.listen()
        except BolideError as exc:  # the next report complains of it
            log.debug("requests cannot be heard: %s", exc)
            return
        if any(_asks(event, self.run) for event in heard):
            self._stop.set()


def _asks(event: Event, run: Event) -> bool:
    return (
        event.kind is Kind.REQUEST_STOP
        and event.pipeline == run.pipeline
        and event.run in {"", run.run}
    )
