"""Publishes the state and progress of a run on its topic, and receives requests to stop.

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
from bolide.protocol.bodies.pipelines import (
    VERSION,
    Problem,
    Progress,
    Report,
    State,
    StopRequest,
)

log = logging.getLogger(__name__)
REPORT_INTERVAL = 5.0
MAX_INTERVAL = 60.0
_POLL_INTERVAL = 1.0
_FINAL_REPORT_TIMEOUT = 10.0
_ACTIVE = {State.STARTING, State.RUNNING}
_MAX_PROBLEMS = 5
_MAX_TEXT = 2000


class Channel(Protocol):
    """The part of `StatusTopic` that a reporter uses."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def ensure_topic(self) -> None: ...

    def publish(self, message: Report) -> None: ...

    def poll(self) -> list[StopRequest]: ...


class NoChannel:
    """For a run that reports nothing, and that nobody can ask to stop."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None: ...

    def ensure_topic(self) -> None: ...

    def publish(self, message: Report) -> None: ...

    def poll(self) -> list[StopRequest]:
        return []


def new_run(pipeline: str, text: str, *, once: bool, interval: float, **facts: str) -> Report:
    """The description of a run that every report repeats; `facts` are more members of it."""
    return Report(
        version=VERSION,
        state=State.STARTING,
        pipeline=pipeline,
        run=uuid.uuid4().hex[:12],
        text=text,
        once=once,
        host=socket.gethostname(),
        pid=os.getpid(),
        started=int(time.time() * 1000),
        interval=interval,
        **facts,  # type: ignore[arg-type]  # names of members that are texts
    )


class Reporter:
    """Publishes the start of a run on entry of its `with` block, and its end on exit."""

    def __init__(
        self,
        channel: Channel,
        run: Report,
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
    def run(self) -> Report:
        with self._lock:
            if self._stop.is_set() and self._current.state in _ACTIVE:
                self._current = msgspec.structs.replace(self._current, state=State.STOPPING)
            return self._current

    def record_progress(self, progress: Progress) -> None:
        """Record progress for the next report; the run has started."""
        with self._lock:
            known = self._current.progress
            if known is not None:  # what other threads have found out
                progress = msgspec.structs.replace(
                    progress, committed=known.committed, behind_seconds=known.behind_seconds
                )
            starting = self._current.state is State.STARTING
            state = State.RUNNING if starting else self._current.state
            self._current = msgspec.structs.replace(self._current, progress=progress, state=state)
        if starting:
            self._wake.set()

    def record_position(
        self, *, committed: int | None, behind_seconds: dict[str, float] | None
    ) -> None:
        """Record when the position was committed (in ms since 1970), and how old it is by topic."""
        with self._lock:
            known = self._current.progress or Progress()
            progress = msgspec.structs.replace(
                known, committed=committed, behind_seconds=behind_seconds
            )
            self._current = msgspec.structs.replace(self._current, progress=progress)

    def record_problem(self, text: str) -> None:
        """Record an error that does not end the run; the last ones are in the reports."""
        problem = Problem(int(time.time() * 1000), text[:_MAX_TEXT])
        with self._lock:
            last = [each for each in self._current.problems if each.text != problem.text]
            problems = [*last, problem][-_MAX_PROBLEMS:]
            self._current = msgspec.structs.replace(self._current, problems=problems)

    def set_state(self, state: State, reason: str | None = None) -> None:
        """Publish another state soon."""
        self._update(state=state, reason=None if reason is None else reason[:_MAX_TEXT])
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
        if exc is not None and self.run.state is not State.FAILED:
            reason = str(exc) or type(exc).__name__
            self._update(state=State.FAILED, reason=reason[:_MAX_TEXT])
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

    def _wait_for_next_report(self) -> None:
        """Poll for stop requests until the next report is due or the state changes."""
        until, published = time.monotonic() + self.run.interval, self.run.state
        while time.monotonic() < until and self.run.state is published:
            if self._wake.wait(min(_POLL_INTERVAL, self.run.interval)):
                break
            self._poll_stop_requests()
        self._wake.clear()

    def _poll_stop_requests(self) -> None:
        try:
            requests = self._channel.poll()
        except BolideError as exc:  # the next report logs the failure
            log.debug("cannot poll for stop requests: %s", exc)
            return
        run = self.run
        if any(each.pipeline == run.pipeline and each.run in {"", run.run} for each in requests):
            self._stop.set()
