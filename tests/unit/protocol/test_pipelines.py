from typing import Any

import pytest

from bolide.protocol.bodies.pipelines import (
    VERSION,
    Problem,
    Progress,
    Report,
    State,
    StopRequest,
    StoredReport,
    encode,
    find_message,
    run_states,
)

NOW = 1_000_000


def report(state: State, run: str = "r1", **facts: Any) -> Report:
    known: dict[str, Any] = {"interval": 10.0, "started": 5}
    return Report(version=VERSION, state=state, pipeline="orders", run=run, **known | facts)


def state_of(*states: State, seen: int = NOW) -> State:
    told = [StoredReport(report(state), seen) for state in states]
    (state,) = run_states(told, NOW)
    return state.state


@pytest.mark.parametrize(
    "written",
    [
        report(
            State.RUNNING,
            kind="mirror",
            spark="4.3.0",
            once=True,
            reason="é",
            problems=[Problem(3, "gone")],
            progress=Progress(
                rows=3,
                total=9,
                rows_per_second=1.5,
                rows_out_per_second=0.0,
                batch=0,
                behind={"t": 6},
                behind_seconds={"t": 0.5},
                committed=7,
            ),
        ),
        StopRequest(version=VERSION, pipeline="orders", run="r1"),
    ],
)
def test_a_message_is_read_as_it_was_written(written: Report | StopRequest) -> None:
    assert find_message(encode(written)) == written


def test_messages_have_the_names_that_the_reference_gives() -> None:
    progress = Progress(rows=3, rows_per_second=2.0, behind_seconds={"a": 1.0})

    assert encode(report(State.FAILED, progress=progress, reason="x")) == (
        b'{"type":"report","version":1,"state":"failed","pipeline":"orders","run":"r1",'
        b'"started":5,"interval":10.0,'
        b'"progress":{"rows":3,"rowsPerSecond":2.0,"behindSeconds":{"a":1.0}},"reason":"x"}'
    )
    assert encode(StopRequest(version=VERSION, pipeline="orders")) == (
        b'{"type":"stop","version":1,"pipeline":"orders"}'
    )


def test_what_others_write_to_the_topic_is_passed_over() -> None:
    later = b'{"type":"report","version":%d,"state":"running","pipeline":"a","run":"b","new":{}}'
    known = find_message(later % VERSION)
    assert isinstance(known, Report)  # a member was added
    assert find_message(later % (VERSION + 1)) is None
    assert find_message(b"hello") is None
    assert find_message(b"[]") is None
    assert find_message(b'{"type":"report","version":1,"state":"dancing","pipeline":"x"}') is None
    assert find_message(b"\xff") is None
    assert find_message(b"[" * 100_000) is None


def test_the_newest_report_tells_the_state() -> None:
    assert state_of(State.STARTING) is State.STARTING
    assert state_of(State.STARTING, State.RUNNING) is State.RUNNING
    assert state_of(State.RUNNING, State.STOPPING) is State.STOPPING
    assert state_of(State.RUNNING, State.STOPPED) is State.STOPPED
    assert state_of(State.RUNNING, State.FINISHED) is State.FINISHED
    assert state_of(State.RUNNING, State.FAILED) is State.FAILED


def test_a_run_that_is_silent_for_three_intervals_is_lost() -> None:
    assert state_of(State.RUNNING, seen=NOW - 30_000) is State.RUNNING
    assert state_of(State.RUNNING, seen=NOW - 30_001) is State.LOST
    assert state_of(State.STARTING, seen=NOW - 30_001) is State.LOST
    assert state_of(State.STOPPING, seen=NOW - 30_001) is State.LOST
    assert state_of(State.FINISHED, seen=NOW - 30_001) is State.FINISHED


def test_a_report_that_comes_late_does_not_bring_a_run_back() -> None:
    assert state_of(State.STOPPED, State.RUNNING) is State.STOPPED


def test_reports_count_in_the_order_in_which_brokers_stored_them() -> None:
    told = [
        StoredReport(report(State.FAILED, reason="x"), NOW),
        StoredReport(report(State.RUNNING), NOW - 1),
    ]

    (state,) = run_states(told, NOW)

    assert (state.state, state.reason) == (State.FAILED, "x")


def test_each_run_has_a_state() -> None:
    told = [
        StoredReport(report(State.FINISHED, "r1"), 10),
        StoredReport(report(State.RUNNING, "r2", started=9), NOW),
    ]

    assert [(state.run, state.state) for state in run_states(told, NOW)] == [
        ("r2", State.RUNNING),
        ("r1", State.FINISHED),
    ]
