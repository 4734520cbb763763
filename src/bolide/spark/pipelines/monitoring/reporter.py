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
_POLL_INTERVAL = 1.0
_FINAL_REPORT_TIMEOUT = 10.0
_ACTIVE = {Kind.STARTED, Kind.PROGRESS}


class EventChannel(Protocol):
    """The part of `StatusTopic` that a reporter uses."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def ensure_topic(self) -> None: ...

    def publish(self, event: Event) -> None: ...

    def poll(self) -> list[Event]: ...


def new_run(pipeline: str, text: str, *, once: bool, interval: float) -> Event:
    """The description of a run that every event repeats."""
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
    """Publishes the start of a run on entry of its `with` block, and its end on exit."""

    def __init__(
        self,
        channel: EventChannel,
        run: Event,
        *,
        stop: threading.Event,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the reporter; its thread starts with the `with` block.

        Args:
            channel: the status topic.
            run: the description of the run, from `new_run`.
            stop: set when a stop request arrives.
            on_tick: called with every report, on the reporter's thread; it may block.
        """
        self._stop = stop
        self._channel = channel
        self._current = run
        self._on_tick = on_tick
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._lock = threading.Lock()  # guards _current, shared with the thread
        self._thread = threading.Thread(target=self._run, name="pipeline-reporter", daemon=True)
        self._warned = False
        self._topic_known = False

    @property
    def run(self) -> Event:
        with self._lock:
            if self._stop.is_set() and self._current.kind in _ACTIVE:
                self._current = msgspec.structs.replace(self._current, kind=Kind.STOPPING)
            return self._current

    def record_progress(self, progress: Progress) -> None:
        """Record progress for the next report."""
        self._update(progress=progress)

    def set_state(self, kind: Kind, reason: str | None = None) -> None:
        """Publish another state soon."""
        self._update(kind=kind, reason=reason)
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
            self._update(kind=Kind.FAILED, reason=str(exc) or type(exc).__name__)
        self._ending.set()
        self._wake.set()
        self._thread.join(_FINAL_REPORT_TIMEOUT)

    def _update(self, **changes: object) -> None:
        with self._lock:
            self._current = msgspec.structs.replace(self._current, **changes)

    # On the reporter's thread

    def _run(self) -> None:
        with self._channel:
            self._poll_stop_requests()  # the first poll only finds the end of the topic
            while True:
                is_last = self._ending.is_set()
                self._report()
                if is_last:
                    return
                self._wait_for_next_report()

    def _report(self) -> None:
        self._on_tick()
        try:
            self._publish()
        except BolideError as exc:
            if not self._warned:
                log.warning("cannot publish the state of the pipeline, which continues: %s", exc)
            self._warned = True
        else:
            self._warned = False

    def _publish(self) -> None:
        if not self._topic_known:
            self._channel.ensure_topic()
            self._topic_known = True
        self._channel.publish(self.run)
        with self._lock:
            if self._current.kind is Kind.STARTED:
                self._current = msgspec.structs.replace(self._current, kind=Kind.PROGRESS)

    def _wait_for_next_report(self) -> None:
        """Poll for stop requests until the next report is due or the state changes."""
        until, published = time.monotonic() + self.run.interval, self.run.kind
        while time.monotonic() < until and self.run.kind is published:
            if self._wake.wait(min(_POLL_INTERVAL, self.run.interval)):
                break
            self._poll_stop_requests()
        self._wake.clear()

    def _poll_stop_requests(self) -> None:
        try:
            events = self._channel.poll()
        except BolideError as exc:  # the next report logs the failure
            log.debug("cannot poll for stop requests: %s", exc)
            return
        if any(_is_stop_request(event, self.run) for event in events):
            self._stop.set()


def _is_stop_request(event: Event, run: Event) -> bool:
    return (
        event.kind is Kind.REQUEST_STOP
        and event.pipeline == run.pipeline
        and event.run in {"", run.run}
    )
