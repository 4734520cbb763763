"""Ranges of queue offsets, and where the records in them begin and end in the log."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """Queue offsets from `first` up to `end`; the physical offsets of its first and last record."""

    first: int
    end: int
    low: int = 0
    high: int = 0


class Spans:
    """Spans in the order they came; one that goes on where the last ended is joined with it."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def add(self, span: Span) -> None:
        last = self._spans[-1] if self._spans else None
        if last and last.end == span.first and last.high < span.low:
            self._spans[-1] = Span(last.first, span.end, last.low, span.high)
        else:
            self._spans.append(span)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in as few ranges as there can be, in order."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif first < end:
            found.append((first, end))
    return found


def without(first: int, end: int, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of a range that are not in `ranges`, which are merged."""
    at = max(bisect_right(ranges, (first, first)) - 1, 0)
    for low, high in ranges[at:]:
        if low >= end:
            break
        if first < low:
            yield first, low
        first = max(first, high)
    if first < end:
        yield first, end
