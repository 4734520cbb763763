"""Markdown tables that compare servers, and the pages that reports are written into."""

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

NO_VALUE = "–"  # noqa: RUF001


def head(names: Sequence[str]) -> list[str]:
    return [
        "| | " + " | ".join(names) + " | ratio of medians |",
        "| --- |" + " --- |" * (len(names) + 1),
    ]


def row(
    title: str, values: Mapping[str, Sequence[float]], digits: int = 0, *, compare: bool = True
) -> str:
    """Medians with minimum and maximum, and the ratio of the first median to the second."""
    cells = [cell(found, digits) for found in values.values()]
    cells.append(_ratio(list(values.values())) if compare else "")
    return f"| {title} | " + " | ".join(cells) + " |"


def cell(values: Sequence[float], digits: int = 0) -> str:
    if not values:
        return NO_VALUE
    spread = f"{min(values):,.{digits}f}–{max(values):,.{digits}f}"  # noqa: RUF001  a range
    return f"{statistics.median(values):,.{digits}f} [{spread}]"


def _ratio(columns: Sequence[Sequence[float]]) -> str:
    if not all(columns) or not statistics.median(columns[1]):
        return NO_VALUE
    return f"{statistics.median(columns[0]) / statistics.median(columns[1]):.2f}"


def publish(report: str, command: str, page: Path | None) -> None:
    """Print the report, and write it into the command's part of a page, if given."""
    print(report)
    if page is not None:
        write(report, command, page)


def has_written_part(page: Path) -> bool:
    """Whether the file is a page with parts that benchmarks write."""
    return page.exists() and "<!-- written by " in page.read_text(encoding="utf-8")


def write(report: str, command: str, page: Path) -> None:
    """Replace the part of the page between the command's markers; exit if it has none."""
    opening, closing = f"<!-- written by {command} -->", f"<!-- end of {command} -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(opening)
    _, end, after = rest.partition(closing)
    if not (begin and end):
        sys.exit(f"{page} has no lines {opening!r} and {closing!r}: nothing was written")
    page.write_text(f"{before}{opening}\n{report}\n{closing}{after}", encoding="utf-8")
