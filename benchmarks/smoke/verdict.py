"""The stored ratios, and whether measured ones are worse beyond noise.

Noise has two sources. Rounds of one run differ, so the verdict uses a lower confidence bound of the
median instead of the median. Runs differ too, more so on a busy machine, so the limit leaves a
margin as wide as the spread of the stored runs.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("ratios.json")

MIN_MARGIN, MAX_MARGIN = 0.15, 0.20
"""A smaller margin fails on a busy machine, a larger one misses a slow-down by a third."""
DOUBT = 0.025


@dataclass(frozen=True)
class Stored:
    """A ratio: the median of several runs, and their relative spread."""

    ratio: float
    spread: float

    @property
    def margin(self) -> float:
        return min(max(self.spread, MIN_MARGIN), MAX_MARGIN)

    @property
    def limit(self) -> float:
        return self.ratio * (1 + self.margin)


@dataclass(frozen=True)
class Record:
    """The stored ratios, and the machine and kernel that they were measured on."""

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
    """Lower confidence bound of the median, from order statistics (sign test)."""
    count, rank, chance = len(ratios), 0, 0.0
    while (chance := chance + math.comb(count, rank) / 2**count) <= DOUBT:
        rank += 1
    return sorted(ratios)[max(rank - 1, 0)]


def worse(stored: Mapping[str, Stored], measured: Mapping[str, Sequence[float]]) -> list[str]:
    """Names of the cells that are past their limit."""
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
