import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import checkouts
from benchmarks.brokers import BASELINE, BOLIDE
from benchmarks.compare import __main__ as command
from benchmarks.compare import baseline
from benchmarks.compare.baseline import Comparison
from benchmarks.compare.cells import LONG_LIVED
from benchmarks.compare.rounds import Round
from tests.unit.benchmarks.sample_rounds import sample_results, sample_round


def rounds_of(old_us: list[float], new_us: list[float], failures: int = 0) -> list[Round]:
    """Rounds of both brokers in turns, by their CPU time for a message."""
    return [
        each
        for old, new in zip(old_us, new_us, strict=True)
        for each in (
            sample_round(BASELINE, cpu_us=old),
            sample_round(BOLIDE, cpu_us=new, failures=failures),
        )
    ]


@pytest.mark.parametrize(
    ("new_us", "problem"),
    [
        (8.0, ""),
        (10.4, ""),
        (10.6, "worse by 5.7 %, the limit is 5 %"),
    ],
)
def test_a_cell_fails_when_it_is_worse_by_more_than_the_limit(new_us: float, problem: str) -> None:
    assert Comparison("send-64", rounds_of([10.0], [new_us]), 5.0).problem == problem


def test_the_limit_can_be_chosen() -> None:
    rounds = rounds_of([10.0], [12.0])
    assert Comparison("send-64", rounds, 15.0).problem
    assert not Comparison("send-64", rounds, 20.0).problem


def test_the_medians_decide_so_one_slow_round_changes_nothing() -> None:
    found = Comparison("send-64", rounds_of([10.0] * 3, [10.0, 10.0, 50.0]), 5.0)
    assert found.ratio == pytest.approx(1.0)
    assert found.round_ratios == pytest.approx([1.0, 1.0, 0.2])
    assert not found.problem


def test_a_machine_that_slows_down_changes_nothing() -> None:
    found = Comparison("send-64", rounds_of([10.0, 20.0, 21.0], [10.0, 10.1, 20.0]), 5.0)
    assert found.ratio == pytest.approx(1.05)
    slower = rounds_of([10.0, 10.0, 20.0, 20.0, 30.0], [10.9, 11.0, 21.9, 22.0, 33.0])
    assert Comparison("send-64", slower, 5.0).problem.startswith("worse by 9.1 %")


def test_reads_are_compared_together_with_their_sends() -> None:
    rounds = [
        replace(each, loaded=replace(each.loaded, extra={"whole_cpu_us": whole}))
        for each, whole in zip(rounds_of([2.0], [3.0]), (5.0, 5.0), strict=True)
    ]
    assert Comparison("tail-4", rounds, 5.0).ratio == pytest.approx(1.0)


def test_a_cell_without_rounds_fails_with_the_end_of_its_reason(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "a.json")
    results.fail("send-64", "RuntimeError: no start\nImportError: no module")
    (found,) = baseline.compare(results, baseline.select(["send-64"]), 5.0)
    assert found.problem == "not measured: ImportError: no module"


def test_a_broker_that_fails_requests_fails_the_comparison_however_cheap() -> None:
    found = Comparison("send-64", rounds_of([10.0], [1.0], failures=100), 5.0)
    assert found.problem == "9.09% of the requests failed"


def test_the_default_cells_are_compared_between_the_two_checkouts() -> None:
    cells = baseline.select([])
    assert {cell.name for cell in cells} == set(baseline.DEFAULT_CELLS)
    assert {cell.contenders for cell in cells} == {(BOLIDE, BASELINE)}
    assert {BOLIDE, BASELINE} <= set(LONG_LIVED)


@pytest.mark.parametrize("name", ["start", "half-load", "idle-5000", "send-64-workers"])
def test_cells_without_a_cost_per_message_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} cannot be compared"):
        baseline.select(["send-64", name])


def test_the_report_has_both_commits_the_machine_and_a_verdict_for_each_cell(
    tmp_path: Path,
) -> None:
    results = sample_results(
        tmp_path / "a", send_64=rounds_of([10.0], [9.0]), pipelined=rounds_of([2.0], [3.0])
    )
    results.code = "Bolide 2, commit bbb"
    cells = baseline.select(["send-64", "pipelined"])
    text = baseline.report(results, "Bolide 1, commit aaa", baseline.compare(results, cells, 5.0))
    for part in ("Old: Bolide 1, commit aaa", "New: Bolide 2, commit bbb", "a machine"):
        assert part in text
    rows = [row for row in text.splitlines() if row.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert ["1.111" in row and row.endswith("| ok |") for row in rows[2:]] == [True, False]
    assert text.endswith("- `pipelined`: worse by 33.3 %, the limit is 5 %")


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new_us: float, into: Path) -> int:
    """A whole run against a checkout, with measured rounds in place of brokers."""
    current = checkouts.Checkout.current()
    monkeypatch.setattr(checkouts.Checkout, "at", lambda path: replace(current, root=path))
    monkeypatch.setattr(
        command, "_rounds", lambda cell, stage, options: rounds_of([10.0] * 2, [new_us] * 2)
    )
    words = ["compare", "--baseline", str(tmp_path), "--cells", "send-64", "catch-up"]
    words += ["--into", str(into), "--json", str(tmp_path / "rounds.json")]
    monkeypatch.setattr("sys.argv", words)
    return command.main()


def test_a_run_exits_with_0_and_writes_the_table_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "report.md"
    assert run(monkeypatch, tmp_path, 10.1, into) == 0
    assert into.read_text() == capsys.readouterr().out
    assert "No cell is worse by more than 5 %." in into.read_text()


def test_a_run_with_a_worse_cell_exits_with_1_and_writes_json_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "report.json"
    assert run(monkeypatch, tmp_path, 20.0, into) == 1
    cells = json.loads(into.read_text())["cells"]
    assert list(cells) == ["send-64", "catch-up"]
    assert cells["send-64"]["ratio"] == pytest.approx(0.5)


def test_a_run_with_a_directory_that_is_no_checkout_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["compare", "--baseline", str(tmp_path)])
    with pytest.raises(SystemExit, match="is missing: run `make"):
        command.main()


@pytest.mark.parametrize(
    "words",
    [
        ("--into", "README.md"),
        ("--into", "docs/benchmarks.md"),
        ("--summary", "README.md"),
        ("--plot", "plot.svg"),
        ("--resume",),
        ("--context",),
        ("--cells", "start"),
    ],
)
def test_options_that_do_not_go_with_a_baseline_are_refused_before_anything_is_measured(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[3]
    words = tuple(str(root / each) if each.endswith(".md") else each for each in words)
    with pytest.raises(SystemExit):
        command._options(["--baseline", "somewhere", *words])
    assert "baseline" in capsys.readouterr().err.splitlines()[-1]
