from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compare.results import Results
from tests.unit.benchmarks.rounds_at_hand import a_round, results_of


def reopened(results: Results) -> Results:
    again = Results(results.file, results.settings, "now")
    again.go_on()
    return again


def test_a_run_goes_on_with_the_rounds_of_the_one_before(tmp_path: Path) -> None:
    results = results_of(tmp_path / "deep" / "a.json")
    results.add("send-64", [a_round("ours", p99_us=3.0, sync_s=0.5)])
    again = reopened(results)
    assert again.rounds("send-64") == results.rounds("send-64")
    assert again.machine == "a machine"


def test_a_cell_that_failed_is_told_until_it_is_measured(tmp_path: Path) -> None:
    results = results_of(tmp_path / "a.json")
    results.fail("send-64", "no such broker")
    assert reopened(results).missing == {"send-64": "no such broker"}
    results.add("send-64", [a_round("ours")])
    assert reopened(results).missing == {}


def test_rounds_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    results = results_of(tmp_path / "a.json")
    results.save()
    other = replace(results, settings=results.settings | {"seconds": 9.0})
    with pytest.raises(SystemExit, match="give the same options"):
        other.go_on()
