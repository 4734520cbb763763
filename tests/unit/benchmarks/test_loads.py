import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.brokers import APACHE, BOLIDE, Running
from benchmarks.compare.loads import warm_up
from benchmarks.compare.rounds import LoadResult, ResourceUsage, Round
from benchmarks.compare.stages import Stage
from tests.unit.benchmarks.sample_rounds import sample_results


@dataclass
class ShortLoad:
    """Load whose rounds end after 50 ms, whatever their duration should be."""

    warm_up: bool = True
    durations: list[float] = field(default_factory=list)

    def prepare(self, stage: Stage, broker: Running) -> None:
        self.durations.append(0.0)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        self.durations.append(seconds)
        time.sleep(0.05)
        return Round(broker.name, LoadResult(1, 0.05, 0.0), ResourceUsage())


def warmed_up(load: ShortLoad, name: str, file: Path) -> ShortLoad:
    stage = Stage(Path("no generator"), sample_results(file), 1.0)
    broker = Running(name, 1, (1,), (1,), "", 0.0, 0.0, lambda: None)
    assert stage.claim_start_warm_up(broker)
    assert not stage.claim_start_warm_up(broker)
    warm_up(load, stage, broker, 0.8)
    return load


def test_a_jvm_is_warmed_up_for_the_whole_time_even_if_rounds_end_early(tmp_path: Path) -> None:
    begin = time.monotonic()
    prepared, first, *more = warmed_up(ShortLoad(), APACHE, tmp_path / "a").durations
    assert (prepared, first) == (0.0, 0.8)
    assert more
    assert max(more) < 0.8
    assert time.monotonic() - begin > 0.25


def test_our_broker_is_warmed_up_by_one_round(tmp_path: Path) -> None:
    assert warmed_up(ShortLoad(), BOLIDE, tmp_path / "a").durations == [0.0, 0.8]


def test_a_load_that_needs_no_warm_up_is_prepared_only(tmp_path: Path) -> None:
    assert warmed_up(ShortLoad(warm_up=False), APACHE, tmp_path / "a").durations == [0.0]
