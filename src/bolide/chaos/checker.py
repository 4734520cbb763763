"""Compares a history with what was promised; plain functions of values.

Always wrong: an acknowledged message that was never delivered, unless the mode allows it; a
delivered message that nobody sent, or whose transaction was rolled back; an order that is broken; a
message with a dedup key that is stored twice; a timer that came early. Duplicates are counted:
delivery is at least once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bolide.chaos.history import Delivered, History, Kind, Outcome, Sent

OUTAGE = 1.0
"""Seconds without an acknowledgement from which on a gap counts as time without service."""
_EARLY_TOLERANCE = 0.005
_EXAMPLES = 10


@dataclass(slots=True)
class KindResult:
    """Numbers of one kind of workload."""

    kind: Kind
    sent: int = 0
    acknowledged: int = 0
    weak: int = 0
    unknown: int = 0
    rolled_back: int = 0
    delivered: int = 0
    """Messages that were delivered at least once."""
    lost: list[str] = field(default_factory=list)
    """Acknowledged and never delivered."""
    phantom: list[str] = field(default_factory=list)
    """Delivered and never sent, or rolled back."""
    reordered: list[str] = field(default_factory=list)
    stored_twice: list[str] = field(default_factory=list)
    """With a dedup key, in two places: a violation. Others are counted as `copies`."""
    early: list[str] = field(default_factory=list)
    copies: int = 0
    """Messages that are stored in two places or more, by retries of the sender."""
    redelivered: int = 0
    """Further deliveries of the same place."""
    longest_gap: float = 0.0
    total_gaps: float = 0.0
    """Seconds in gaps of more than OUTAGE."""


@dataclass(slots=True)
class Verdict:
    """What the history shows."""

    kinds: dict[Kind, KindResult]
    is_loss_allowed: bool
    not_back: list[str] = field(default_factory=list)
    """Rounds after which service did not come back in time."""

    @property
    def lost(self) -> int:
        return sum(len(each.lost) for each in self.kinds.values())

    @property
    def violations(self) -> list[str]:
        """One line for each kind of broken promise."""
        found = []
        for result in self.kinds.values():
            broken = {
                "acknowledged and lost": [] if self.is_loss_allowed else result.lost,
                "delivered and never sent": result.phantom,
                "out of order": result.reordered,
                "stored twice in spite of a dedup key": result.stored_twice,
                "delivered early": result.early,
            }
            for text, examples in broken.items():
                if examples:
                    shown = ", ".join(examples[:_EXAMPLES])
                    found.append(f"{result.kind}: {len(examples)} {text}: {shown}")
        return found + [f"service was not back: {each}" for each in self.not_back]

    @property
    def is_good(self) -> bool:
        return not self.violations


def check(history: History, *, is_loss_allowed: bool = False, clock_shift: float = 0.0) -> Verdict:
    """Judge a history.

    Args:
        is_loss_allowed: whether the mode promises less than "acknowledged is kept".
        clock_shift: by how many seconds a broker's clock was wrong at most; timers follow it.
    """
    by_kind: dict[Kind, list[Sent]] = defaultdict(list)
    for sent in history.sent:
        by_kind[sent.kind].append(sent)
    arrived: dict[Kind, list[Delivered]] = defaultdict(list)
    for delivered in history.delivered:
        arrived[delivered.kind].append(delivered)
    kinds = {
        kind: _check_kind(kind, by_kind[kind], arrived[kind], clock_shift)
        for kind in Kind
        if by_kind[kind] or arrived[kind]
    }
    not_back = [
        f"round {fault.round}, {fault.nemesis} of {', '.join(fault.targets)}"
        for fault in history.faults
        if fault.back_after is None
    ]
    return Verdict(kinds, is_loss_allowed, not_back)


def _check_kind(
    kind: Kind, sent: Sequence[Sent], delivered: Sequence[Delivered], clock_shift: float
) -> KindResult:
    result = KindResult(kind)
    outcomes = Counter(each.outcome for each in sent)
    result.sent = len(sent)
    result.acknowledged = outcomes[Outcome.ACKNOWLEDGED]
    result.weak = outcomes[Outcome.WEAK]
    result.unknown = outcomes[Outcome.UNKNOWN]
    result.rolled_back = outcomes[Outcome.ROLLED_BACK]
    seen = {each.id for each in delivered}
    result.delivered = len(seen)
    result.lost = [each.id for each in sent if _is_promised(each) and each.id not in seen]
    result.phantom = phantoms(sent, delivered)
    if kind is Kind.ORDERED:
        result.reordered = reordered_by_queue(delivered) + reordered_by_key(sent, delivered)
    _count_duplicates(result, delivered)
    if kind is Kind.TIMER:
        result.early = early(sent, delivered, clock_shift)
    result.longest_gap, result.total_gaps = gaps(sent)
    return result


def _is_promised(sent: Sent) -> bool:
    return sent.outcome is Outcome.ACKNOWLEDGED


def phantoms(sent: Iterable[Sent], delivered: Iterable[Delivered]) -> list[str]:
    """Ids, or places of foreign bodies, that were delivered without a right to be."""
    rightful = {each.id for each in sent if each.outcome is not Outcome.ROLLED_BACK}
    return sorted(
        {each.id or f"{each.queue}@{each.offset}" for each in delivered if each.id not in rightful}
    )


def reordered_by_queue(delivered: Iterable[Delivered]) -> list[str]:
    """First deliveries of an ordered consumer that come after a later message of their queue.

    Deliveries that repeat an earlier one are allowed to go back: a crashed member's successor
    begins at the last committed offset.
    """
    furthest: dict[str, int] = {}
    seen: set[str] = set()
    broken = []
    for each in delivered:
        if each.id in seen:
            continue
        seen.add(each.id)
        if each.offset < furthest.get(each.queue, -1):
            broken.append(each.id)
        furthest[each.queue] = max(each.offset, furthest.get(each.queue, -1))
    return broken


def reordered_by_key(sent: Iterable[Sent], delivered: Iterable[Delivered]) -> list[str]:
    """Acknowledged messages of a key and queue that overtook an earlier one of theirs.

    Only pairs in which the second send began after the first was acknowledged count. A send that
    timed out may arrive at any time.
    """
    first: dict[str, float] = {}
    place: dict[str, str] = {}
    for each in delivered:
        first.setdefault(each.id, each.at)
        place.setdefault(each.id, each.queue)
    last: dict[tuple[str, str], Sent] = {}
    broken = []
    for item in sorted(sent, key=lambda each: each.began):
        if item.outcome is not Outcome.ACKNOWLEDGED or item.id not in first:
            continue
        before = last.get((item.key, place[item.id]))
        if before and before.ended <= item.began and first[before.id] > first[item.id]:
            broken.append(item.id)
        last[item.key, place[item.id]] = item
    return broken


def early(
    sent: Iterable[Sent], delivered: Iterable[Delivered], clock_shift: float = 0.0
) -> list[str]:
    """Timers that were delivered before their time had passed since the send began."""
    due = {each.id: each.began + each.delay for each in sent}
    tolerance = _EARLY_TOLERANCE + abs(clock_shift)
    return sorted({each.id for each in delivered if each.at < due.get(each.id, 0.0) - tolerance})


def gaps(sent: Iterable[Sent]) -> tuple[float, float]:
    """The longest time between two acknowledgements, and the time in all gaps over OUTAGE."""
    times = sorted(each.ended for each in sent if each.outcome is Outcome.ACKNOWLEDGED)
    found = [later - sooner for sooner, later in pairwise(times)]
    return max(found, default=0.0), sum(gap for gap in found if gap > OUTAGE)


def _count_duplicates(result: KindResult, delivered: Iterable[Delivered]) -> None:
    places: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    for each in delivered:
        if each.times == 0:  # a retry has a place of its own, in the retry topic
            places[each.id][each.queue, each.offset] += 1
        else:
            result.redelivered += 1
    copied = [each for each, found in places.items() if len(found) > 1]
    result.redelivered += sum(sum(found.values()) - len(found) for found in places.values())
    if result.kind is Kind.DEDUP:
        result.stored_twice = sorted(copied)
    else:
        result.copies = len(copied)
