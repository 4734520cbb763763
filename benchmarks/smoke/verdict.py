"""Ratios that were stored, and whether those of today are worse than chance explains.

Two kinds of chance. Rounds of one run differ: so the rounds must not only have a median past the
limit, they must show that it is not there by luck. And runs differ, on a busy machine more than on
an idle one: the limit leaves room for that, as much as the runs had that were stored.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("ratios.json")

LEAST_MARGIN, MOST_MARGIN = 0.15, 0.20
"""With less a machine that is busy today cries wolf, with more a third hides."""
DOUBT = 0.025


@dataclass(frozen=True)
class Stored:
    """A ratio: the median of several runs, and how far these lay apart, as a part of it."""

    ratio: float
    spread: float

    @property
    def margin(self) -> float:
        return min(max(self.spread, LEAST_MARGIN), MOST_MARGIN)

    @property
    def limit(self) -> float:
        return self.ratio * (1 + self.margin)


@dataclass(frozen=True)
class Record:
    """What a run is compared with, and where that was measured."""

    machine: str
    kernel: str
    cells: dict[str, Stored]

    @classmethod
    def read(cls, file: Path = FILE) -> "Record":
        found = json.loads(file.read_text(encoding="utf-8"))
        cells = {name: Stored(**values) for name, values in found["cells"].items()}
        return cls(found["machine"], found["kernel"], cells)

    def write(self, file: Path = FILE) -> None:
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def of_runs(medians: Sequence[float]) -> Stored:
    middle = statistics.median(medians)
    return Stored(round(middle, 4), round((max(medians) - min(medians)) / middle, 4))


def at_least(ratios: Sequence[float]) -> float:
    """What the true median is above with all but certainty, by the order of the rounds alone."""
    count, rank, chance = len(ratios), 0, 0.0
    while (chance := chance + math.comb(count, rank) / 2**count) <= DOUBT:
        rank += 1
    return sorted(ratios)[max(rank - 1, 0)]


def worse(stored: Mapping[str, Stored], measured: Mapping[str, Sequence[float]]) -> list[str]:
    """Cells that are past their limit."""
    return [name for name, ratios in measured.items() if at_least(ratios) > stored[name].limit]


HEAD = f"{'':<18}{'stored':>9}{'limit':>9}{'measured':>10}{'at least':>10}{'change':>9}"


def row(name: str, stored: Stored, ratios: Sequence[float]) -> str:
    median = statistics.median(ratios)
    columns = f"{stored.ratio:>9.2f}{stored.limit:>9.2f}{median:>10.2f}{at_least(ratios):>10.2f}"
    return f"{name:<18}{columns}{median / stored.ratio - 1:>+9.1%}  {_word(stored, ratios)}"


def _word(stored: Stored, ratios: Sequence[float]) -> str:
    if at_least(ratios) > stored.limit:
        return "WORSE"
    is_better = statistics.median(ratios) < stored.ratio / (1 + stored.margin)
    return "better: store it" if is_better else "ok"
