"""Compares a history with what was promised; plain functions of values.

Always wrong: an acknowledged message that was never delivered, or is not in its queue at the end
where the acknowledgement said, unless the mode allows it; a delivered message that nobody sent, or
whose transaction was rolled back; an order that is broken; a message with a dedup key that is
stored twice; a timer that came early. Duplicates are counted: delivery is at least once.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bolide.chaos.faults import CLOCK_SHIFT
from bolide.chaos.history import Delivered, Fault, History, Kept, Kind, Outcome, Sent

OUTAGE = 1.0
"""Seconds without an acknowledgement from which on a gap counts as time without service."""
_EARLY_TOLERANCE = 0.005
_EXAMPLES = 10
_SHIFT_MARGIN = 2.0
"""Seconds around a shift of a clock in which a broker may go by either time."""
_PLACED = {Kind.PLAIN, Kind.ORDERED, Kind.DEDUP, Kind.POP}
"""Kinds whose acknowledgement says where the message is in its queue."""


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
    """Acknowledged, and never delivered or not kept where the acknowledgement said."""
    phantom: list[str] = field(default_factory=list)
    """Delivered and never sent, or rolled back."""
    reordered: list[str] = field(default_factory=list)
    stored_twice: list[str] = field(default_factory=list)
    """With a dedup key, in two places: a violation. Others are counted as `copies`."""
    early: list[str] = field(default_factory=list)
    copies: int = 0
    """Messages that are in two places or more: sent again, or delivered again by a timer."""
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
    broken_off: list[str] = field(default_factory=list)
    """Rounds whose fault could not be begun or ended, with the reason."""
    unread: list[str] = field(default_factory=list)
    """Queues that could not be read in the end, with the reason."""

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
        found += [f"service was not back: {each}" for each in self.not_back]
        found += [f"ended by an error: {each}" for each in self.broken_off]
        return found + [f"not to be read in the end: {each}" for each in self.unread]

    @property
    def is_good(self) -> bool:
        return not self.violations


def check(
    history: History, *, is_loss_allowed: bool = False, is_read_back: bool = False
) -> Verdict:
    """Judge a history.

    Args:
        is_loss_allowed: whether the mode promises less than "acknowledged is kept".
        is_read_back: whether all queues were read in the end.
    """
    by_kind: dict[Kind, list[Sent]] = defaultdict(list)
    for sent in history.sent:
        by_kind[sent.kind].append(sent)
    arrived: dict[Kind, list[Delivered]] = defaultdict(list)
    for delivered in history.delivered:
        arrived[delivered.kind].append(delivered)
    kept: dict[Kind, list[Kept]] = defaultdict(list)
    for each in history.kept:
        kept[each.kind].append(each)
    unread: dict[Kind, set[str]] = defaultdict(set)
    for one in history.unread:
        unread[one.kind].add(one.queue)
    kinds = {
        kind: _check_kind(
            kind, by_kind[kind], arrived[kind], kept[kind] if is_read_back else None, unread[kind],
            history.faults,
        )
        for kind in Kind
        if by_kind[kind] or arrived[kind]
    }  # fmt: skip
    return Verdict(
        kinds,
        is_loss_allowed,
        [_round(each) for each in history.faults if each.back_after is None and not each.error],
        [f"{_round(each)}: {each.error}" for each in history.faults if each.error],
        [f"{each.kind} {each.queue or 'all queues'}: {each.error}" for each in history.unread],
    )


def _round(fault: Fault) -> str:
    return f"round {fault.round}, {fault.nemesis} of {', '.join(fault.targets)}"


def _check_kind(
    kind: Kind,
    sent: Sequence[Sent],
    delivered: Sequence[Delivered],
    kept: Sequence[Kept] | None,
    unread: Collection[str],
    faults: Sequence[Fault],
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
    promised = [each for each in sent if each.outcome is Outcome.ACKNOWLEDGED]
    gone = set() if kept is None else not_kept(promised, kept, unread)
    result.lost = [each.id for each in promised if each.id not in seen or each.id in gone]
    result.phantom = phantoms(sent, delivered)
    if kind is Kind.ORDERED:
        result.reordered = reordered_by_queue(delivered) + reordered_by_key(sent, delivered)
    _count_duplicates(result, delivered, kept or ())
    if kind is Kind.TIMER:
        result.early = early(sent, delivered, shifts(faults))
    result.longest_gap, result.total_gaps = gaps(sent)
    return result


def not_kept(
    promised: Iterable[Sent], kept: Iterable[Kept], unread: Collection[str] = ()
) -> set[str]:
    """Ids of acknowledged messages that are not where the acknowledgement said.

    Timers and transactions are acknowledged before they are in their queue: they are anywhere.

    Args:
        unread: queues of which nothing can be said; an empty name is all of them.
    """
    if "" in unread:
        return set()
    at = {(each.queue, each.offset): each.id for each in kept}
    anywhere = set(at.values())
    return {
        each.id
        for each in promised
        if (
            at.get((each.queue, each.offset)) != each.id and each.queue not in unread
            if each.offset >= 0 and each.kind in _PLACED
            else each.id not in anywhere and not unread
        )
    }  # fmt: skip


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


def shifts(faults: Iterable[Fault]) -> list[tuple[float, float]]:
    """The times in which a clock was wrong."""
    return [
        (each.began - _SHIFT_MARGIN, each.ended + _SHIFT_MARGIN)
        for each in faults
        if "clock-shift" in each.nemesis
    ]


def early(
    sent: Iterable[Sent],
    delivered: Iterable[Delivered],
    shifted: Sequence[tuple[float, float]] = (),
) -> list[str]:
    """Timers that were delivered before their time had passed since the send began.

    A timer follows the clock of its broker: one that waited while a clock was wrong may be early by
    as much as that.
    """
    by_id = {each.id: each for each in sent}
    found = set()
    for each in delivered:
        timer = by_id.get(each.id)
        if timer is None:
            continue
        is_shifted = any(begin < each.at and timer.began < end for begin, end in shifted)
        tolerance = CLOCK_SHIFT if is_shifted else _EARLY_TOLERANCE
        if each.at < timer.began + timer.delay - tolerance:
            found.add(each.id)
    return sorted(found)


def gaps(sent: Iterable[Sent]) -> tuple[float, float]:
    """The longest time between two acknowledgements, and the time in all gaps over OUTAGE."""
    times = sorted(each.ended for each in sent if each.outcome is Outcome.ACKNOWLEDGED)
    found = [later - sooner for sooner, later in pairwise(times)]
    return max(found, default=0.0), sum(gap for gap in found if gap > OUTAGE)


def _count_duplicates(
    result: KindResult, delivered: Iterable[Delivered], kept: Iterable[Kept]
) -> None:
    places: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    for each in delivered:
        if each.times == 0:  # a retry has a place of its own, in the retry topic
            places[each.id][each.queue, each.offset] += 1
        else:
            result.redelivered += 1
    result.redelivered += sum(sum(found.values()) - len(found) for found in places.values())
    stored = {each: set(found) for each, found in places.items()}
    for one in kept:
        stored.setdefault(one.id, set()).add((one.queue, one.offset))
    copied = [each for each, found in stored.items() if len(found) > 1]
    if result.kind is Kind.DEDUP:
        result.stored_twice = sorted(copied)
    else:
        result.copies = len(copied)
