import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.brokers import Running
from benchmarks.checkouts import Checkout
from benchmarks.compare import __main__ as command
from benchmarks.compare import stages
from benchmarks.compare.cells import BY_NAME, MAIN, Cell
from tests.unit.benchmarks.sample_rounds import sample_results


@contextmanager
def refuse(
    name: str, flush: str, checkout: Checkout | None, *, access_control: bool
) -> Iterator[Running]:
    raise RuntimeError(f"{name} does not start")
    yield


def test_a_failed_cell_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "started", refuse)
    cells = [BY_NAME["send-64"], Cell("send-1", "", "", BY_NAME["send-1"].load, contenders=())]
    results = sample_results(tmp_path / "a.json")
    options = argparse.Namespace(
        millions=1.0, rounds=1, seconds=1.0, warm_up=1.0, access_control=False
    )
    command._measure_stage(MAIN, cells, results, options)
    assert list(results.missing) == ["send-64"]
    assert "does not start" in results.missing["send-64"]
    assert list(results.cells) == ["send-1"]


def test_the_order_of_brokers_alternates() -> None:
    turns = [list(command._in_turn("ab", number)) for number in range(4)]
    assert turns == [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]
