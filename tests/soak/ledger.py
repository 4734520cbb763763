"""Whether a group got what was sent: nothing lost, nothing twice without a reason, all in order.

A reason is a change of members. Members note which queues they have and when; while a queue has
no holder or two, and shortly before and after, its messages may come again: what the last holder
consumed but had not committed, and what two consume at once.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

LATE = 2.0
"""Seconds that a member may note a change later than it happened."""

REACH = 10.0
"""Seconds before a change whose messages may come again, and after it in which they do: a commit
is at most 5 seconds old, and a new holder begins with what is not committed."""

_SHOWN = 5


class Window(NamedTuple):
    """While a queue had no holder or more than one."""

    began: float
    ended: float

    def explains(self, first: float, again: float) -> bool:
        """Whether a message may have come at both times because of it."""
        overlaps = self.began - LATE <= again and first <= self.ended + LATE
        return overlaps and self.began - first <= REACH and again - self.ended <= REACH

    def separates(self, before: float, after: float) -> bool:
        return self.began - LATE <= after and before <= self.ended + LATE


class Again(NamedTuple):
    """A message that came once more."""

    queue: int
    offset: int
    first: float
    again: float


@dataclass(slots=True)
class Run:
    """Deliveries to one member, each of the offset after the one before."""

    owner: str
    first: int
    last: int
    began: float
    ended: float


@dataclass(slots=True)
class _Tenure:
    began: float
    ended: float = math.inf


@dataclass(slots=True)
class Sent:
    """The messages that a broker acknowledged, by queue and offset."""

    numbers: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    count: int = 0
    twice: int = 0

    def acknowledged(self, queue: int, offset: int, number: int) -> None:
        self.twice += offset in self.numbers[queue]
        self.numbers[queue][offset] = number
        self.count += 1


class GroupLedger:
    """What one group got, and who of it had which queue."""

    def __init__(self, *, ordered: bool = False) -> None:
        self.count = 0
        """Messages that came, each counted once."""
        self.again: list[Again] = []
        self._ordered = ordered
        self._numbers: dict[int, array[int]] = defaultdict(lambda: array("q"))
        self._first: dict[int, array[float]] = defaultdict(lambda: array("d"))
        self._mixed: list[str] = []
        self._runs: dict[int, list[Run]] = defaultdict(list)
        self._last_run: dict[tuple[str, int], Run] = {}
        self._tenures: dict[int, dict[str, list[_Tenure]]] = defaultdict(dict)

    # What happened

    def delivered(self, owner: str, queue: int, offset: int, number: int, at: float) -> None:
        numbers, first = self._numbers[queue], self._first[queue]
        missing = offset + 1 - len(numbers)
        if missing > 0:
            numbers.extend([-1] * missing)
            first.extend([0.0] * missing)
        if numbers[offset] < 0:
            numbers[offset] = number
            first[offset] = at
            self.count += 1
        else:
            self.again.append(Again(queue, offset, *sorted((first[offset], at))))
            if numbers[offset] != number:
                self._mixed.append(f"{_place(queue, offset)} is {numbers[offset]} and {number}")
        if self._ordered:
            self._note_run(owner, queue, offset, at)

    def gained(self, owner: str, queue: int, at: float) -> None:
        self._tenures[queue].setdefault(owner, []).append(_Tenure(at))

    def lost(self, owner: str, queue: int, at: float) -> None:
        self._tenures[queue][owner][-1].ended = at

    def ended(self, owner: str, at: float) -> None:
        """The member is gone, and has no queue any more."""
        for by_owner in self._tenures.values():
            for tenure in by_owner.get(owner, []):
                tenure.ended = min(tenure.ended, at)

    def _note_run(self, owner: str, queue: int, offset: int, at: float) -> None:
        run = self._last_run.get((owner, queue))
        if run is not None and offset == run.last + 1:
            run.last, run.ended = offset, at
        else:
            self._last_run[owner, queue] = run = Run(owner, offset, offset, at, at)
            self._runs[queue].append(run)

    # Whether it was right

    def windows(self, queue: int) -> list[Window]:
        """When the queue had no holder or more than one."""
        changes = [(-math.inf, 0)]
        for tenures in self._tenures[queue].values():
            for tenure in tenures:
                changes += [(tenure.began, 1), (tenure.ended, -1)]
        changes.sort()
        found, holders = [], 0
        for (at, change), (until, _) in zip(changes, [*changes[1:], (math.inf, 0)], strict=True):
            holders += change
            if holders != 1:
                found.append(Window(at, until))
        return found

    def longest_handover(self) -> float:
        """For how long a queue had no holder, or more than one, at most."""
        windows = [window for queue in self._tenures for window in self.windows(queue)]
        lengths = [window.ended - window.began for window in windows]
        return max(filter(math.isfinite, lengths), default=0.0)

    def complaints(self, sent: Sent) -> list[str]:
        """Everything that a group must not do; empty if it did well. Long lists are cut."""
        kinds: Mapping[str, Iterator[str]] = {
            "lost": self._lost(sent),
            "damaged": iter(self._mixed),
            "never sent": self._strangers(sent),
            "twice without a reason": self._unexplained(),
            "out of order": self._disorder(),
        }
        return [f"{kind}: {what}" for kind, found in kinds.items() for what in _cut(found)]

    def _lost(self, sent: Sent) -> Iterator[str]:
        for queue, numbers in sent.numbers.items():
            came = self._numbers[queue]
            for offset, number in numbers.items():
                if offset >= len(came) or came[offset] != number:
                    yield f"message {number} at {_place(queue, offset)}"

    def _strangers(self, sent: Sent) -> Iterator[str]:
        for queue, came in self._numbers.items():
            known = sent.numbers.get(queue, {})
            for offset, number in enumerate(came):
                if number >= 0 and offset not in known:
                    yield f"message {number} at {_place(queue, offset)}"

    def _unexplained(self) -> Iterator[str]:
        windows = {again.queue: self.windows(again.queue) for again in self.again}
        for queue, offset, first, again in self.again:
            if not any(window.explains(first, again) for window in windows[queue]):
                yield f"{_place(queue, offset)} at {first:.3f} and {again:.3f}"

    def _disorder(self) -> Iterator[str]:
        for queue, runs in self._runs.items():
            yield from _run_faults(queue, runs, self.windows(queue))


def _run_faults(queue: int, runs: Iterable[Run], windows: list[Window]) -> Iterator[str]:
    """A run begins where the one before ended or earlier, after it, and by a change of holder."""
    next_offset, ended = 0, -math.inf
    for run in sorted(runs, key=lambda each: each.began):
        where = f"{_place(queue, run.first)} to {run.owner} at {run.began:.3f}"
        if run.first > next_offset:
            yield f"{where}, but offset {next_offset} is next"
        if run.began < ended:
            yield f"{where}, while another had the queue until {ended:.3f}"
        elif next_offset and not any(w.separates(ended, run.began) for w in windows):
            yield f"{where}, after {next_offset - 1} without a change of holder"
        next_offset, ended = max(next_offset, run.last + 1), max(ended, run.ended)


def _place(queue: int, offset: int) -> str:
    return f"offset {offset} of queue {queue}"


def _cut(found: Iterator[str]) -> Iterator[str]:
    yield from islice(found, _SHOWN)
    if more := sum(1 for _ in found):
        yield f"… and {more} more"
