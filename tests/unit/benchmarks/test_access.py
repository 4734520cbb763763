"""The comparison with access control: its cells, its report and its verdict."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.brokers import APACHE, BOLIDE
from benchmarks.compare import __main__ as command
from benchmarks.compare import access
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import LoadResult, ResourceUsage, Round


def measured(file: Path, times: float) -> Results:
    """Bolide's broker stores that many times as many messages in a CPU-second."""
    results = Results(file, {"rounds": 1, "seconds": 3.0}, "a machine", "Bolide 1, commit abc")
    theirs = Round(APACHE, LoadResult(1000, 1.0, 0.1), ResourceUsage(cpu_seconds=1.0))
    used = ResourceUsage(cpu_seconds=1.0 / times)
    for name in access.CELLS:
        results.cells[name] = [replace(theirs, server=BOLIDE, used=used), theirs]
    return results


def test_the_report_has_goals_rows_machine_and_commit(tmp_path: Path) -> None:
    text = access.report(measured(tmp_path / "a.json", 2.5))
    assert "a machine; Bolide 1, commit abc" in text
    for name in access.CELLS:
        assert f"`{name}`, with access control | at least 2 times | 2.5 times | met |" in text
        assert f"(`{name}`) | Bolide |" in text


@pytest.mark.parametrize(("times", "met"), [(2.0, True), (1.9, False)])
def test_the_goal_is_twice_the_messages_per_cpu_second(
    tmp_path: Path, times: float, met: bool
) -> None:
    assert access.is_met(measured(tmp_path / "a.json", times)) is met


def test_a_cell_without_figures_misses_the_goal(tmp_path: Path) -> None:
    results = measured(tmp_path / "a.json", 3.0)
    results.fail("tail-4", "the broker did not start")
    assert not access.is_met(results)
    assert "`tail-4` has no figures: the broker did not start" in access.report(results)


def test_only_the_two_brokers_take_part() -> None:
    assert [cell.name for cell in access.select(["tail-4"])] == ["tail-4"]
    assert {cell.contenders for cell in access.select([])} == {(BOLIDE, APACHE)}


@pytest.mark.parametrize("more", [["--resume"], ["--cells", "send-1"], ["--baseline", "x"]])
def test_options_that_contradict_are_refused(more: list[str]) -> None:
    with pytest.raises(SystemExit):
        command._options(["--access-control", *more])
