from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.brokers import APACHE, BOLIDE
from benchmarks.compare import plot, report
from benchmarks.compare.cells import BY_NAME, CELLS, STAGES
from tests.unit.benchmarks.sample_rounds import sample_results, sample_round


def test_rows_show_median_and_spread_and_the_ratio_to_rocketmq(tmp_path: Path) -> None:
    ours = [sample_round(BOLIDE, per_second=rate, cpu_us=10) for rate in (1_000, 2_000, 4_000)]
    results = sample_results(tmp_path / "a", send_64=[*ours, sample_round(APACHE, cpu_us=40)])
    (row,) = (row for row in report.whole(results).splitlines() if f"| {BOLIDE} | 2,000" in row)
    cells = [cell.strip() for cell in row.split("|")]
    assert "[1,000" in cells[3]
    assert cells[5:7] == ["100,000", "4.00"]


def test_all_rows_of_a_table_have_the_same_number_of_cells(tmp_path: Path) -> None:
    results = sample_results(
        tmp_path / "a",
        send_64=[sample_round(BOLIDE), sample_round(APACHE)],
        start=[sample_round(BOLIDE, start_s=1.0), sample_round(APACHE, start_s=2.0)],
        ten_million=[sample_round(BOLIDE, stored=5), sample_round(APACHE, stored=5)],
    )
    results.context = [
        {"broker": "x", "tool": "y", "load": "z", "rates": [1.0], "server_cpu_us": []}
    ]
    widths = [
        {row.count("|") for row in table.splitlines() if row.startswith("|")}
        for table in report.whole(results).split("\n\n")
    ]
    assert all(len(found) <= 1 for found in widths)
    assert sum(map(len, widths)) == 6


def test_a_cell_that_failed_is_named_with_the_reason(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "a")
    results.fail("send-64-workers", "no option\n--workers")
    assert "`send-64-workers` has no figures: no option --workers" in report.whole(results)


def test_the_summary_has_a_row_for_each_main_load_that_was_measured(tmp_path: Path) -> None:
    rounds = [sample_round(BOLIDE, per_second=3_000, cpu_us=10), sample_round(APACHE, cpu_us=40)]
    text = report.summary(sample_results(tmp_path / "a", pipelined=rounds))
    assert "| 3,000/s | 1,000/s | 4.0 times RocketMQ's |" in text
    assert text.count("/s |") == 2


def test_a_plot_is_a_line_through_all_points() -> None:
    drawn = ET.fromstring(plot.lines({"a <b>": [(1, 5), (2, 5), (4, 10)]}, "across", "up"))
    (line,) = drawn.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert points[0][1] == points[1][1] > points[2][1]
    assert points[2][0] - points[1][0] == 2 * (points[1][0] - points[0][0])


def test_cell_names_are_unique_and_stages_are_contiguous() -> None:
    assert len(BY_NAME) == len(CELLS)
    stages = [cell.stage for cell in CELLS]
    assert [name for name in stages if name not in STAGES] == []
    assert sorted(stages, key=list(STAGES).index) == stages


def test_failures_are_summed_over_all_rounds(tmp_path: Path) -> None:
    ours = [sample_round(BOLIDE, failures=each) for each in (0, 0, 7)]
    text = report.whole(sample_results(tmp_path / "a", send_64=ours))
    (row,) = (row for row in text.splitlines() if f"| {BOLIDE} |" in row)
    assert row.endswith("| 7 |")


def test_the_head_names_the_command_the_code_and_the_machine(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "a", send_64=[sample_round(BOLIDE)])
    results.code, results.settings = "Bolide 1", report.DEFAULTS | {"seconds": 2.0}
    results.facts = {"page_us": 8.04, "page_again_us": 1.1, "disk_gb": 12.4}
    head = report.whole(results)
    assert '`make bench-compare COMPARE="--seconds 2"` on a machine; Bolide 1.' in head
    assert "took 8.0 µs of CPU time at the start, and 1.1 µs in memory" in head
    assert "up to 12 GB of disk" in head


def test_the_summary_counts_goals_that_were_missed_or_not_measured(tmp_path: Path) -> None:
    rounds = [sample_round(BOLIDE, cpu_us=1), sample_round(APACHE, cpu_us=6.5)]
    last = report.summary(sample_results(tmp_path / "a", pipelined=rounds)).splitlines()[-1]
    assert last.startswith("2 of ")
    assert ", 1 missed, " in last
    assert last.endswith(" not measured.")
