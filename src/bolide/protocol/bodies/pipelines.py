"""Messages on the topic BOLIDE_PIPELINE_PROGRESS: reports of runs, and requests to stop.

A message has the pipeline's name as its key, and JSON as its body. Every report of a run repeats
the description of the run, so the newest report alone tells its state. docs/reference/pipelines.md
documents the JSON for other programs. Within a version, members are only added: a reader ignores
those it does not know.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec

VERSION = 1
LOST_AFTER = 3
"""Missed report intervals after which a run counts as lost."""
REQUEST_TAG = "request-stop"


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"
    """In no report: a reader's conclusion, as the reports have ended without a final one."""

    @property
    def is_live(self) -> bool:
        return self in {State.STARTING, State.RUNNING, State.STOPPING}


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Progress of a run."""

    rows: int = 0
    """Offsets of the source processed by this run, filtered ones included."""
    total: int | None = None
    """Total number of rows, if the run has an end."""
    rows_per_second: float = 0.0
    """Read over the last half minute."""
    rows_out_per_second: float | None = None
    """Written over the last half minute; None if the sink does not count them."""
    batch: int | None = None
    behind: dict[str, int] | None = None
    """Unread messages per topic."""
    behind_seconds: dict[str, float] | None = None
    """Age of the oldest unread message per topic; 0 if there is none."""
    committed: int | None = None
    """Time at which the position was last committed, in ms since 1970."""

    @property
    def backlog(self) -> int | None:
        return None if self.behind is None else sum(self.behind.values())


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """An error that did not end the run."""

    time: int
    """In ms since 1970."""
    text: str


class Report(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="report",
):
    """What a run tells every few seconds, and at once when its state changes."""

    version: int
    state: State
    pipeline: str
    run: str
    kind: str = ""
    """Name of the built-in pipeline, or `file` for a declared one."""
    text: str = ""
    once: bool = False
    host: str = ""
    pid: int = 0
    spark: str = ""
    """Version of Spark."""
    group: str = ""
    """Consumer group that gets the position."""
    started: int = 0
    """Start of the run, in ms since 1970."""
    interval: float = 0.0
    """Seconds between two reports."""
    progress: Progress | None = None
    reason: str | None = None
    """Why the run failed."""
    problems: list[Problem] = []
    """The last ones."""


class StopRequest(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="stop",
):
    """Asks a run to end after its batch."""

    version: int
    pipeline: str
    run: str = ""
    """Empty for any run of the pipeline."""


class StoredReport(NamedTuple):
    """A report with its store time, in ms since 1970."""

    report: Report
    stored: int


class RunState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a run, from its newest report."""

    pipeline: str
    run: str
    kind: str
    state: State
    text: str
    once: bool
    host: str
    pid: int
    spark: str
    group: str
    started: int
    seen: int
    """Store time of the newest report, in ms since 1970."""
    interval: float
    progress: Progress
    reason: str | None
    problems: list[Problem]


_decoder = msgspec.json.Decoder(Report | StopRequest)


def encode(message: Report | StopRequest) -> bytes:
    return msgspec.json.encode(message)


def find_message(body: bytes) -> Report | StopRequest | None:
    """The content of a message; None if it is none that we know, as any client may write there."""
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return found if found.version == VERSION else None


def tag_of(message: Report | StopRequest) -> str:
    return message.state.value if isinstance(message, Report) else REQUEST_TAG


def run_states(reports: Iterable[StoredReport], now: int) -> list[RunState]:
    """The state of every run, latest start first; `now` in ms since 1970."""
    newest: dict[str, StoredReport] = {}
    for item in sorted(reports, key=lambda item: item.stored):  # stable: keeps queue order
        run = item.report.run
        newest[run] = latest(newest.get(run), item)
    states = [state_of(item, now) for item in newest.values()]
    return sorted(states, key=lambda state: (-state.started, state.pipeline))


def latest(before: StoredReport | None, item: StoredReport) -> StoredReport:
    """A report that is stored after the final one does not revive the run."""
    if before is not None and not before.report.state.is_live:
        return before
    return item


def state_of(newest: StoredReport, now: int) -> RunState:
    """The state of a run after its newest report."""
    report = newest.report
    state = report.state
    if state.is_live and now - newest.stored > LOST_AFTER * report.interval * 1000:
        state = State.LOST
    return RunState(
        pipeline=report.pipeline,
        run=report.run,
        kind=report.kind,
        state=state,
        text=report.text,
        once=report.once,
        host=report.host,
        pid=report.pid,
        spark=report.spark,
        group=report.group,
        started=report.started,
        seen=newest.stored,
        interval=report.interval,
        progress=report.progress or Progress(),
        reason=report.reason,
        problems=report.problems,
    )
