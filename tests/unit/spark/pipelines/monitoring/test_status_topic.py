from bolide.spark.pipelines.monitoring.status_topic import (
    Event,
    Kind,
    Progress,
    State,
    StoredEvent,
    encode,
    find_event,
    run_states,
)

NOW = 1_000_000


def event(kind: Kind, run: str = "r1", **facts: object) -> Event:
    return Event(kind=kind, pipeline="orders", run=run, interval=10.0, started=5, **facts)  # type: ignore[arg-type]


def state_of(*kinds: Kind, seen: int = NOW) -> State:
    told = [StoredEvent(event(kind), seen) for kind in kinds]
    (state,) = run_states(told, NOW)
    return state.state


def test_an_event_is_read_as_it_was_written() -> None:
    progress = Progress(rows=3, total=9, rows_per_second=1.5, batch=0, behind={"t": 6})
    written = event(Kind.PROGRESS, progress=progress, once=True, reason="é")

    assert find_event(encode(written)) == written


def test_an_event_has_the_names_that_the_reference_gives() -> None:
    progress = Progress(rows=3, rows_per_second=2.0)

    assert encode(event(Kind.REQUEST_STOP, progress=progress)) == (
        b'{"kind":"request-stop","pipeline":"orders","run":"r1","started":5,"interval":10.0,'
        b'"progress":{"rows":3,"rowsPerSecond":2.0}}'
    )


def test_what_others_write_to_the_topic_is_passed_over() -> None:
    assert find_event(b"hello") is None
    assert find_event(b"[]") is None
    assert find_event(b'{"kind":"dancing","pipeline":"x"}') is None
    assert find_event(b"\xff") is None


def test_the_newest_event_tells_the_state() -> None:
    assert state_of(Kind.STARTED) is State.RUNNING
    assert state_of(Kind.STARTED, Kind.PROGRESS) is State.RUNNING
    assert state_of(Kind.STARTED, Kind.STOPPING) is State.STOPPING
    assert state_of(Kind.PROGRESS, Kind.STOPPED) is State.STOPPED
    assert state_of(Kind.PROGRESS, Kind.FINISHED) is State.FINISHED
    assert state_of(Kind.PROGRESS, Kind.FAILED) is State.FAILED


def test_a_run_that_is_silent_for_three_intervals_is_lost() -> None:
    assert state_of(Kind.PROGRESS, seen=NOW - 30_000) is State.RUNNING
    assert state_of(Kind.PROGRESS, seen=NOW - 30_001) is State.LOST
    assert state_of(Kind.STOPPING, seen=NOW - 30_001) is State.LOST
    assert state_of(Kind.FINISHED, seen=NOW - 30_001) is State.FINISHED


def test_a_report_that_comes_late_does_not_bring_a_run_back() -> None:
    assert state_of(Kind.STOPPED, Kind.PROGRESS) is State.STOPPED


def test_events_count_in_the_order_in_which_brokers_stored_them() -> None:
    told = [
        StoredEvent(event(Kind.FAILED, reason="x"), NOW),
        StoredEvent(event(Kind.PROGRESS), NOW - 1),
    ]

    (state,) = run_states(told, NOW)

    assert (state.state, state.reason) == (State.FAILED, "x")


def test_each_run_has_a_state_and_requests_have_none() -> None:
    told = [
        StoredEvent(event(Kind.FINISHED, "r1"), 10),
        StoredEvent(
            Event(kind=Kind.STARTED, pipeline="orders", run="r2", started=9, interval=10.0), NOW
        ),
        StoredEvent(Event(kind=Kind.REQUEST_STOP, pipeline="orders"), NOW),
    ]

    assert [(state.run, state.state) for state in run_states(told, NOW)] == [
        ("r2", State.RUNNING),
        ("r1", State.FINISHED),
    ]
