"""Rows of Markdown tables that compare servers."""

import statistics
from collections.abc import Mapping, Sequence

NO_VALUE = "–"  # noqa: RUF001


def head(names: Sequence[str]) -> list[str]:
    return [
        "| | " + " | ".join(names) + " | ratio of medians |",
        "| --- |" + " --- |" * (len(names) + 1),
    ]


def row(
    title: str, values: Mapping[str, Sequence[float]], digits: int = 0, *, compare: bool = True
) -> str:
    """Medians of the servers, least and most in brackets, and the first median by the second."""
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
