"""`bolide pipeline list|status|stop|bundle`; `run` and `explain` are in `pipeline_run`."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bolide.cli import pipeline_options as opt
from bolide.cli.command_line import FAILED, ExitOnError, fail, parse_settings, require_spark
from bolide.cli.documents import print_document
from bolide.cli.tables import Table

if TYPE_CHECKING:
    from bolide.arrow.cluster import Connection
    from bolide.protocol.bodies.pipelines import RunState
    from bolide.spark.pipelines.monitoring.status_topic import StatusTopic

_POLL_INTERVAL = 0.5
_SINCE = "1d"
_RECENT_SECONDS = 180.0


def list_(
    name_server: opt.NameServer = None,
    option: opt.SourceOption = None,
    since: opt.Since = _SINCE,
    every_run: opt.All = False,
    as_json: opt.Json = False,
) -> None:
    """List the pipelines that have reported recently, with their state."""
    with require_spark(), ExitOnError():
        states = _states(_connection(name_server, option), since)
    shown = states if every_run else _last_of_each(states)
    if as_json:
        for state in shown:
            print_document(state)
        return
    _print_states(shown)


def status(
    name: opt.Pipeline,
    name_server: opt.NameServer = None,
    option: opt.SourceOption = None,
    since: opt.Since = _SINCE,
    as_json: opt.Json = False,
) -> None:
    """Show the progress of the last run of a pipeline; exit code 1 if it failed or is lost."""
    with require_spark(), ExitOnError():
        states = _states(_connection(name_server, option), since)
    state = next((state for state in states if state.pipeline == name), None)
    if state is None:
        fail(f"pipeline {name!r} has reported nothing since {since} ago; see --since", FAILED)
    if as_json:
        print_document(state)
    else:
        _print_state(state)
    if state.state in {"failed", "lost"}:
        fail(state.reason or f"pipeline {name} is {state.state}", FAILED)


def stop(
    name: opt.Pipeline,
    name_server: opt.NameServer = None,
    option: opt.SourceOption = None,
    run: opt.Run = "",
    timeout: opt.Timeout = 120.0,
) -> None:
    """Stop a pipeline after its current batch, and wait for its end."""
    with require_spark(), ExitOnError():
        from bolide.protocol.bodies.pipelines import VERSION, StopRequest  # noqa: PLC0415
        from bolide.spark.pipelines.monitoring.status_topic import StatusTopic  # noqa: PLC0415

        with StatusTopic(_connection(name_server, option)) as status_topic:
            if not _is_running(status_topic, name, run):
                fail(f"pipeline {name!r} is not running", FAILED)
            status_topic.publish(StopRequest(version=VERSION, pipeline=name, run=run))
            until = time.monotonic() + timeout
            while _is_running(status_topic, name, run):
                if time.monotonic() > until:
                    fail(f"pipeline {name!r} has not stopped within {timeout:g} s", FAILED)
                time.sleep(_POLL_INTERVAL)
    print(f"pipeline {name} has stopped")


def bundle(file: opt.BundleFile) -> None:
    """Pack the package into a file that `pipeline run --ship` copies to Spark's workers."""
    from bolide.spark.bundle import write_bundle  # noqa: PLC0415

    with ExitOnError(OSError):
        print(write_bundle(file))


def _connection(name_server: str | None, option: list[str] | None) -> "Connection":
    from bolide.spark.pipelines.builtin import RunSettings  # noqa: PLC0415

    return RunSettings(
        name_server=name_server or "", source_options=parse_settings(option)
    ).connect()


def _states(connection: "Connection", since: str) -> "list[RunState]":
    from bolide.spark.pipelines.monitoring.status_topic import StatusTopic  # noqa: PLC0415
    from bolide.spark.pipelines.times import parse_duration  # noqa: PLC0415

    seconds = parse_duration(since, option="--since")
    with StatusTopic(connection) as status_topic:
        return status_topic.states(seconds)


def _last_of_each(states: "Iterable[RunState]") -> "list[RunState]":
    found: dict[str, RunState] = {}
    for state in states:
        found.setdefault(state.pipeline, state)
    return list(found.values())


def _is_running(status_topic: "StatusTopic", name: str, run: str) -> bool:
    return any(
        state.pipeline == name and run in {"", state.run} and state.state.is_live
        for state in status_topic.states(_RECENT_SECONDS)
    )


def _print_states(states: "list[RunState]") -> None:
    table = Table("PIPELINE", "STATE", "ROWS", "ROWS/S", "BEHIND", "STARTED", "REPORTED", "WHAT")
    for state in states:
        progress = state.progress
        table.add(
            state.pipeline,
            state.state,
            f"{progress.rows:,}" + (f"/{progress.total:,}" if progress.total is not None else ""),
            f"{progress.rows_per_second:,.0f}",
            "-" if progress.backlog is None else f"{progress.backlog:,}",
            _time_text(state.started),
            _time_text(state.seen),
            state.text,
        )
    table.print()


def _print_state(state: "RunState") -> None:
    progress = state.progress
    facts = {
        "pipeline": state.pipeline,
        "does": state.text,
        "state": state.state,
        "why": state.reason,
        "kind": state.kind or None,
        "run": f"{state.run}, process {state.pid} on {state.host}",
        "started": _time_text(state.started),
        "reported": _time_text(state.seen),
        "rows": f"{progress.rows:,}" + (f" of {progress.total:,}" if progress.total else ""),
        "rows/s": f"{progress.rows_per_second:,.0f}",
        "spark": state.spark or None,
        "batch": progress.batch,
    }
    facts |= {f"behind in {topic}": f"{n:,}" for topic, n in (progress.behind or {}).items()}
    for name, value in facts.items():
        if value is not None:
            print(f"{name:<10} {value}")


def _time_text(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
