"""What runs of pipelines tell on the topic BOLIDE_PIPELINES, and what that says of each.

A message has the pipeline's name as its key, the kind as its tag, and an `Event` as JSON.
Every event of a run repeats what the run is, so that the newest alone tells all.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec

TOPIC = "BOLIDE_PIPELINES"
LOST_AFTER = 3
"""A run that has not reported for so many of its intervals is taken for lost."""


class Kind(StrEnum):
    STARTED = "started"
    PROGRESS = "progress"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    REQUEST_STOP = "request-stop"


class State(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"

    @property
    def is_live(self) -> bool:
        return self in {State.RUNNING, State.STOPPING}


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far a run is."""

    rows: int = 0
    """Dealt with by this run: offsets of the source, whether or not a filter let them pass."""
    total: int | None = None
    """Of how many, if the run has an end."""
    rows_per_second: float = 0.0
    """Over the last batches."""
    batch: int | None = None
    behind: dict[str, int] | None = None
    """Messages of each topic that were there and not read yet."""

    @property
    def backlog(self) -> int | None:
        return None if self.behind is None else sum(self.behind.values())


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    kind: Kind
    pipeline: str
    run: str = ""
    """Of a stop request: the run that is meant; any run of the pipeline if it is empty."""
    text: str = ""
    once: bool = False
    host: str = ""
    pid: int = 0
    started: int = 0
    """When the run began, in ms since 1970."""
    interval: float = 0.0
    """Seconds between two reports."""
    progress: Progress | None = None
    reason: str | None = None


class Told(NamedTuple):
    """An event and when the broker stored it, in ms since 1970."""

    event: Event
    stored: int


class RunState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the newest event of a run tells."""

    pipeline: str
    run: str
    state: State
    text: str
    once: bool
    host: str
    pid: int
    started: int
    seen: int
    progress: Progress
    reason: str | None


_STATES = {
    Kind.STARTED: State.RUNNING,
    Kind.PROGRESS: State.RUNNING,
    Kind.STOPPING: State.STOPPING,
    Kind.STOPPED: State.STOPPED,
    Kind.FINISHED: State.FINISHED,
    Kind.FAILED: State.FAILED,
}


def encode(event: Event) -> bytes:
    return msgspec.json.encode(event)


def find_event(body: bytes) -> Event | None:
    """The event of a message; None for what is none: anybody may write to an ordinary topic."""
    try:
        return msgspec.json.decode(body, type=Event)
    except msgspec.DecodeError:
        return None


def run_states(told: Iterable[Told], now: int) -> list[RunState]:
    """The state of every run, those that began last first; `now` in ms since 1970."""
    newest: dict[str, Told] = {}
    for item in sorted(told, key=lambda item: item.stored):  # stable: queues keep their order
        if item.event.kind is not Kind.REQUEST_STOP:
            before = newest.get(item.event.run)
            newest[item.event.run] = _latest(before, item)
    states = [_state(item, now) for item in newest.values()]
    return sorted(states, key=lambda state: (-state.started, state.pipeline))


def _latest(before: Told | None, item: Told) -> Told:
    """A report that was under way when the run ended does not bring it back to life."""
    ended = before is not None and _STATES[before.event.kind] not in {
        State.RUNNING,
        State.STOPPING,
    }
    return before if ended and before is not None else item


def _state(told: Told, now: int) -> RunState:
    event = told.event
    state = _STATES[event.kind]
    if state.is_live and now - told.stored > LOST_AFTER * event.interval * 1000:
        state = State.LOST
    return RunState(
        pipeline=event.pipeline,
        run=event.run,
        state=state,
        text=event.text,
        once=event.once,
        host=event.host,
        pid=event.pid,
        started=event.started,
        seen=told.stored,
        progress=event.progress or Progress(),
        reason=event.reason,
    )
