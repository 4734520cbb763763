"""Compare the broker of this checkout with that of another one, the baseline.

Both brokers run at the same time and the rounds of a cell alternate between them, so that a change
of the machine's speed affects both. The metric is messages per server-CPU-second. Brokers of the
two checkouts are measured under the names `BOLIDE` (new) and `BASELINE` (old).
"""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import markdown
from benchmarks.brokers import BASELINE, BOLIDE
from benchmarks.compare import figures
from benchmarks.compare.cells import CELLS, Cell
from benchmarks.compare.footprint import IdleConnections
from benchmarks.compare.loads import HalfLoad
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Round

DEFAULT_CELLS = ("send-64", "pipelined", "batch-16", "tail-4", "catch-up")
DEFAULT_LIMIT = 5.0
"""Percent by which a cell may be worse."""
_MAX_FAILED_SHARE = 0.001

COMPARABLE = tuple(
    cell.name
    for cell in CELLS
    if BOLIDE in cell.contenders
    and cell.load is not None
    and not isinstance(cell.load, HalfLoad | IdleConnections)
)
"""Cells with a cost per message that need no other broker."""


@dataclass(frozen=True)
class Comparison:
    """The rounds of one cell, and whether the new broker is worse than the limit allows."""

    cell: str
    rounds: Sequence[Round]
    limit: float
    """Percent."""
    failure: str = ""
    """Why there are no rounds."""

    def values(self, server: str) -> list[float]:
        """Messages per server-CPU-second, round by round."""
        return figures.values(self.rounds, server, _per_cpu_second)

    @property
    def ratio(self) -> float | None:
        """New by old: the median of `round_ratios`; None if there are none.

        The speed of a shared machine changes by more than the limit in a minute, so that only
        rounds next to each other can be compared. Medians of all rounds of each broker cannot.
        """
        ratios = self.round_ratios
        return statistics.median(ratios) if ratios else None

    @property
    def round_ratios(self) -> list[float]:
        """New by old, of the two rounds that were measured next to each other."""
        pairs = zip(self.values(BOLIDE), self.values(BASELINE), strict=False)
        return [new / old for new, old in pairs if old]

    @property
    def failed_share(self) -> float:
        """Of the new broker's requests, in the median round."""
        return figures.median(self.rounds, BOLIDE, lambda each: each.failed_part) or 0.0

    @property
    def problem(self) -> str:
        """Why the comparison fails, or an empty string."""
        if self.ratio is None:
            return f"not measured: {self.failure}" if self.failure else "not measured"
        if self.failed_share > _MAX_FAILED_SHARE:
            return f"{self.failed_share:.2%} of the requests failed"
        if self.ratio < 1 - self.limit / 100:
            return f"worse by {100 * (1 - self.ratio):.1f} %, the limit is {self.limit:g} %"
        return ""


def select(names: Sequence[str]) -> list[Cell]:
    """The named cells, or the default ones, for brokers of the two checkouts.

    Raises:
        ValueError: a cell has no cost per message or needs another broker.
    """
    if unfit := [name for name in names if name not in COMPARABLE]:
        raise ValueError(
            f"{', '.join(unfit)} cannot be compared with a baseline;"
            f" choose from {', '.join(COMPARABLE)}"
        )
    wanted = names or DEFAULT_CELLS
    return [replace(cell, contenders=(BOLIDE, BASELINE)) for cell in CELLS if cell.name in wanted]


def compare(results: Results, cells: Sequence[Cell], limit: float) -> list[Comparison]:
    return [
        Comparison(cell.name, results.rounds(cell.name), limit, _last_line(results, cell.name))
        for cell in cells
    ]


def _last_line(results: Results, cell: str) -> str:
    """Of the reason why a cell failed: a traceback ends with its error."""
    lines = results.missing.get(cell, "").splitlines()
    return lines[-1] if lines else ""


def report(results: Results, old_code: str, comparisons: Sequence[Comparison]) -> str:
    """A Markdown table of all cells, with both commits, the machine and the date."""
    return "\n".join((*_head(results, old_code), "", *_table(comparisons), *_problems(comparisons)))


def _head(results: Results, old_code: str) -> Iterator[str]:
    settings = results.settings
    yield f"- Old: {old_code}"
    yield f"- New: {results.code}"
    yield f"- Machine and date: {results.machine}"
    yield (
        f"- Medians of {settings['rounds']} rounds of {settings['seconds']:g} s for each broker,"
        " alternating between the two; minimum and maximum in brackets; new ÷ old is the median of"
        " the ratios of rounds next to each other"
    )


def _table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    titles = (
        "cell", "messages per server-CPU-second, old", "new", "new ÷ old", "in single rounds",
        "messages/s, old", "new", "cores used by others", "failed, old", "failed, new", "verdict",
    )  # fmt: skip
    yield "| " + " | ".join(titles) + " |"
    yield "|" + " --- |" * len(titles)
    for each in comparisons:
        yield "| " + " | ".join(_row(each)) + " |"


def _row(found: Comparison) -> Iterator[str]:
    yield f"`{found.cell}`"
    yield from (markdown.cell(found.values(server)) for server in (BASELINE, BOLIDE))
    yield markdown.NO_VALUE if found.ratio is None else f"{found.ratio:.3f}"
    ratios = found.round_ratios
    yield f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else markdown.NO_VALUE
    for server in (BASELINE, BOLIDE):
        yield markdown.cell(figures.values(found.rounds, server, lambda each: each.per_second))
    yield markdown.cell([each.used.other_cores for each in found.rounds], 2)
    for server in (BASELINE, BOLIDE):
        failures = figures.values(found.rounds, server, lambda each: each.loaded.failures)
        yield f"{sum(failures):,.0f}"
    yield f"**{found.problem}**" if found.problem else "ok"


def _problems(comparisons: Sequence[Comparison]) -> Iterator[str]:
    failed = [each for each in comparisons if each.problem]
    yield ""
    if not failed:
        limit = f"{comparisons[0].limit:g} %" if comparisons else "the limit"
        yield f"No cell is worse by more than {limit}."
    for each in failed:
        yield f"- `{each.cell}`: {each.problem}"


def write(into: Path, text: str, document: Mapping[str, Any]) -> None:
    """Write the document if the file's name ends in `.json`, else the text."""
    if into.suffix == ".json":
        text = json.dumps(document, indent=1)
    into.write_text(f"{text}\n", encoding="utf-8")


def document(
    results: Results, old_code: str, comparisons: Sequence[Comparison]
) -> dict[str, object]:
    """The report as values for JSON."""
    return {
        "old": old_code,
        "new": results.code,
        "machine": results.machine,
        "settings": results.settings,
        "cells": {
            each.cell: {
                "old": each.values(BASELINE),
                "new": each.values(BOLIDE),
                "ratio": each.ratio,
                "limit_percent": each.limit,
                "problem": each.problem,
            }
            for each in comparisons
        },
    }


def _per_cpu_second(found: Round) -> float:
    """Of the whole round, sends included, where a load reports the cost of reads alone.

    That cost is a difference: a broker whose sends get cheaper when nobody reads would seem to read
    at a higher cost.
    """
    whole = found.loaded.extra.get("whole_cpu_us")
    return 1e6 / whole if whole else found.per_cpu_second
