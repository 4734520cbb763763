from pathlib import Path

import pytest

from benchmarks.brokers import APACHE, BOLIDE, PLAIN
from benchmarks.compare.cells import BY_NAME
from benchmarks.compare.goals import Goal, goals, java_bound, sync_bound
from benchmarks.compare.results import Results
from tests.unit.benchmarks.sample_rounds import sample_results, sample_round


def find(results: Results, words: str) -> Goal:
    return next(goal for goal in goals(results) if words in goal.what)


def test_a_cheaper_send_meets_its_goal(tmp_path: Path) -> None:
    rounds = [
        sample_round(BOLIDE, cpu_us=10),
        sample_round(APACHE, cpu_us=31),
        sample_round(PLAIN, cpu_us=50),
    ]
    results = sample_results(tmp_path / "a", send_64=rounds)
    assert find(results, "64 synchronous senders").verdict == "met"
    assert find(results, "without a compiler").verdict == "**missed**"


def test_a_goal_with_an_upper_limit_is_missed_above_it(tmp_path: Path) -> None:
    results = sample_results(tmp_path / "a", pipelined=[sample_round(BOLIDE, cpu_us=3.6)])
    goal = find(results, "`pipelined`: 2.5 times")
    assert (goal.limit, goal.verdict) == (3.5, "**missed**")


def test_an_unmeasured_goal_is_neither_met_nor_missed(tmp_path: Path) -> None:
    for goal in goals(sample_results(tmp_path / "a")):
        assert (goal.result, goal.verdict) == ("not measured", "")


def test_the_bound_of_java_clients_takes_the_cheaper_client(tmp_path: Path) -> None:
    rounds = [
        sample_round(BOLIDE, cpu_us=10, client_us=90),
        sample_round(APACHE, cpu_us=40, client_us=20),
    ]
    assert java_bound(sample_results(tmp_path / "a", java_sync=rounds), "java-sync") == 2.0


def test_the_bound_of_synced_sends_takes_the_rate_without_sync(tmp_path: Path) -> None:
    results = sample_results(
        tmp_path / "a",
        sync_8=[sample_round(BOLIDE, per_second=30_000, sync_s=0.0001)],
        send_8=[sample_round(BOLIDE, per_second=80_000)],
    )
    assert sync_bound(results, 8) == pytest.approx(40_000)
    assert find(results, "8 senders, part of").result == "75 %"


def test_memory_after_millions_is_that_of_the_last_round(tmp_path: Path) -> None:
    grown = [sample_round(name, private_mib=mib, stored=1) for name, mib in
             ((BOLIDE, 500), (APACHE, 400), (BOLIDE, 50), (APACHE, 400))]  # fmt: skip
    goal = find(sample_results(tmp_path / "a", ten_million=grown), "after 10 million")
    assert goal.measured == pytest.approx(0.125)


def test_a_broker_that_fails_requests_meets_no_goal(tmp_path: Path) -> None:
    rounds = [sample_round(BOLIDE, p99_us=1, failures=each) for each in (0, 500, 500)]
    results = sample_results(tmp_path / "a", half_load=[*rounds, sample_round(APACHE, p99_us=100)])
    goal = find(results, "p99 of a send")
    assert (goal.measured, goal.verdict) == (0.01, "**missed**")
    assert "33.33% of our requests failed" in goal.detail


def test_failures_of_rocketmq_are_reported_with_the_goal(tmp_path: Path) -> None:
    rounds = [sample_round(BOLIDE, cpu_us=1), sample_round(APACHE, cpu_us=40, failures=250)]
    goal = find(sample_results(tmp_path / "a", pipelined=rounds), "asynchronous sends")
    assert (goal.verdict, goal.detail) == ("met", "20.00% of RocketMQ's requests failed")


def test_every_goal_names_an_existing_cell(tmp_path: Path) -> None:
    assert {goal.cell for goal in goals(sample_results(tmp_path / "a"))} <= {"", *BY_NAME}
