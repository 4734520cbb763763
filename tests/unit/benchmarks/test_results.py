from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compare import code, report
from benchmarks.compare.results import Results
from tests.unit.benchmarks.sample_rounds import sample_results, sample_round


def reopened(results: Results) -> Results:
    again = Results(results.file, results.settings, results.machine)
    again.resume()
    return again


def test_a_resumed_run_has_the_rounds_of_the_previous_one(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "deep" / "a.json")
    results.add("send-64", [sample_round("ours", p99_us=3.0, sync_s=0.5)])
    again = reopened(results)
    assert again.rounds("send-64") == results.rounds("send-64")
    assert again.machine == "a machine"


def test_a_failed_cell_is_missing_until_it_is_measured(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "a.json")
    results.fail("send-64", "no such broker")
    assert reopened(results).missing == {"send-64": "no such broker"}
    results.add("send-64", [sample_round("ours")])
    assert reopened(results).missing == {}


def test_rounds_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "a.json")
    results.save()
    other = replace(results, settings=results.settings | {"seconds": 9.0})
    with pytest.raises(SystemExit, match="use the same"):
        other.resume()


def test_rounds_of_other_code_are_mixed_only_on_request(tmp_path: Path) -> None:
    results = replace(sample_results(tmp_path / "a.json"), code="Bolide 1, sources aa")
    results.add("send-64", [sample_round("ours")])
    other = replace(results, code="Bolide 1, sources bb", cells={}, codes={})
    with pytest.raises(SystemExit, match="add --other-code"):
        other.resume()
    other.resume(other_code=True)
    other.add("send-1", [sample_round("ours")])
    assert other.codes == {"send-64": "Bolide 1, sources aa", "send-1": "Bolide 1, sources bb"}
    assert "Measured with Bolide 1, sources aa: `send-64`." in report.whole(other)


def test_a_commit_without_changed_sources_is_the_same_code(tmp_path: Path) -> None:
    results = replace(sample_results(tmp_path / "a.json"), code="commit 1, sources aa")
    results.add("send-64", [sample_round("ours")])
    other = replace(results, code="commit 2, sources aa")
    other.resume()
    assert "commit 1" not in report.whole(other)


def test_rounds_of_another_machine_are_not_mixed(tmp_path: Path) -> None:
    results = replace(sample_results(tmp_path / "a.json"), machine="2 cores, monday")
    results.save()
    replace(results, machine="2 cores, tuesday").resume()
    with pytest.raises(SystemExit, match="a machine 2 cores, this run has 4 cores"):
        replace(results, machine="4 cores, monday").resume()


def test_a_new_run_keeps_the_file_of_the_previous_one(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "a.json")
    results.add("send-64", [sample_round("ours")])
    before = results.file.read_bytes()
    sample_results(results.file).start_over()
    assert (tmp_path / "a.before.json").read_bytes() == before
    assert not results.file.exists()


def test_the_digest_of_the_sources_is_stable() -> None:
    assert code.digest() == code.digest()
    assert code.version().endswith(f"sources {code.digest()}")
