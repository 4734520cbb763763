"""The comparison with replicas: its cells, its report and its verdict."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.brokers import APACHE, APACHE_SYNC_SLAVE, ASYNC_SLAVE, BOLIDE, SYNC_SLAVE
from benchmarks.compare import __main__ as command
from benchmarks.compare import replicas
from benchmarks.compare.loads import HalfLoad, Replicated
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import LoadResult, ResourceUsage, Round


def measured(file: Path, *, with_slave: float = 1.0, theirs: float = 4.0) -> Results:
    """Results in which our broker costs 1 CPU-second for 1,000 messages.

    Args:
        with_slave: CPU-seconds of our master with an ASYNC slave.
        theirs: CPU-seconds of RocketMQ's SYNC_MASTER, and of its slave.
    """
    results = Results(file, {"rounds": 1, "seconds": 3.0}, "a machine", "Bolide 1, commit abc")
    plain = LoadResult(1000, 1.0, 0.1, p50_us=100.0, p99_us=500.0, extra={"rate": 2000.0})
    rounds = [
        Round(BOLIDE, plain, ResourceUsage(cpu_seconds=1.0)),
        Round(ASYNC_SLAVE, _slave(plain, 1.0), ResourceUsage(cpu_seconds=with_slave)),
        Round(SYNC_SLAVE, _slave(plain, 1.0, p50_us=250.0), ResourceUsage(cpu_seconds=1.0)),
        Round(APACHE, plain, ResourceUsage(cpu_seconds=3.0)),
        Round(APACHE_SYNC_SLAVE, _slave(plain, theirs), ResourceUsage(cpu_seconds=theirs)),
    ]
    for name in replicas.CELLS:
        results.cells[name] = rounds
    return results


def _slave(loaded: LoadResult, seconds: float, **more: float) -> LoadResult:
    return replace(loaded, extra=loaded.extra | {"slave_cpu_seconds": seconds}, **more)  # type: ignore[arg-type]


def test_the_report_has_goals_rows_machine_and_commit(tmp_path: Path) -> None:
    text = replicas.report(measured(tmp_path / "a.json", with_slave=1.25))
    assert "a machine; Bolide 1, commit abc" in text
    for name in replicas.COSTS:
        assert f"`{name}`: messages per master-CPU-second with an ASYNC slave" in text
        assert f"(`{name}`) | {BOLIDE} |" in text
    assert "| at least 80 % | 80 % | met |" in text
    assert "| at least 2 times | 4 times | met |" in text


def test_the_report_says_what_waiting_for_a_slave_adds_to_a_send(tmp_path: Path) -> None:
    text = replicas.report(measured(tmp_path / "a.json"))
    assert "| latency of a send, 2,000 messages/s | p50 µs | p99 µs |" in text
    assert f"| {BOLIDE}: added by the slave | +150 | +0 |" in text


@pytest.mark.parametrize(
    ("with_slave", "theirs", "met"), [(1.25, 2.0, True), (1.3, 2.0, False), (1.25, 1.9, False)]
)
def test_the_goals_are_four_fifths_with_a_slave_and_twice_of_a_sync_master(
    tmp_path: Path, with_slave: float, theirs: float, met: bool
) -> None:
    results = measured(tmp_path / "a.json", with_slave=with_slave, theirs=theirs)
    assert replicas.is_met(results) is met


def test_a_cell_without_figures_misses_the_goal(tmp_path: Path) -> None:
    results = measured(tmp_path / "a.json")
    results.fail("pipelined", "the slave did not start")
    assert not replicas.is_met(results)
    assert "`pipelined` has no figures: the slave did not start" in replicas.report(results)


def test_latencies_are_compared_at_a_rate_that_every_broker_reaches() -> None:
    (cell,) = replicas.select(["half-load"])
    assert isinstance(cell.load, Replicated)
    assert isinstance(cell.load.load, HalfLoad)
    assert cell.load.load.server == APACHE_SYNC_SLAVE
    assert cell.contenders == replicas.CONTENDERS


def test_the_report_says_that_other_programs_disturbed_the_run(tmp_path: Path) -> None:
    results = measured(tmp_path / "a.json")
    assert "Other programs" not in replicas.report(results)
    for name, rounds in results.cells.items():
        busy = [replace(each, used=replace(each.used, other_cores=2.5)) for each in rounds]
        results.cells[name] = busy
    assert "Other programs used 1.5 cores meanwhile" in replicas.report(results)


@pytest.mark.parametrize("more", [["--resume"], ["--cells", "send-1"], ["--baseline", "x"]])
def test_options_that_contradict_are_refused(more: list[str]) -> None:
    with pytest.raises(SystemExit):
        command._options(["--replicas", *more])
