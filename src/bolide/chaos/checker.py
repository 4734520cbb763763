"""Compares a history with what was promised; plain functions of values.

Always wrong: an acknowledged message that was never delivered, or is not in its queue at the end
where the acknowledgement said, unless the mode allows it; a delivered message that nobody sent, or
whose transaction was rolled back; an order that is broken; a message with a dedup key that is
stored twice; a timer that came early or much too late. Duplicates are counted: delivery is at least
once. But a consumer goes back only to its last commit, so a message that is delivered again long
after that is a fault, too.
"""

import math
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
_LATE_AFTER = 60.0
"""Seconds of service that a timer may be late. Consumers may wait for an answer that does not come
for half a minute, and then for their queues."""
_BACK_BY = 30.0
"""Seconds of consumption by which a consumer may go back. It commits every second; a broker writes
commits down every 5 s, and a slave copies them about as often; during a fault of some seconds both
may stand still."""
_RETRIED_WITHIN = 120.0
"""Seconds of service within which a popped message may come again. A lease is 10 s; a broker may
notice late that it has ended."""
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
    kept_phantom: list[str] = field(default_factory=list)
    """The same of what was not delivered, but is in a queue in the end."""
    reordered: list[str] = field(default_factory=list)
    stored_twice: list[str] = field(default_factory=list)
    """With a dedup key, in two places: a violation. Others are counted as `copies`."""
    early: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Timers that came much later than time without service explains."""
    replayed: list[str] = field(default_factory=list)
    """Delivered again, long after the consumer had committed what came later."""
    copies: int = 0
    """Further places of messages: sent again, or delivered again by a timer."""
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
                "in a queue and never sent": result.kept_phantom,
                "out of order": result.reordered,
                "stored twice in spite of a dedup key": result.stored_twice,
                "delivered early": result.early,
                "delivered late": result.late,
                "delivered again long after": result.replayed,
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
        if by_kind[kind] or arrived[kind] or kept[kind]
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
    result.kept_phantom = sorted(set(phantoms(sent, kept or ())) - set(result.phantom))
    if kind is Kind.ORDERED:
        result.reordered = reordered_by_queue(delivered) + reordered_by_key(sent, delivered)
    _count_duplicates(result, delivered, kept or ())
    if kind is Kind.TIMER:
        result.early = early(sent, delivered, shifts(faults))
        result.late = late(sent, delivered, faults)
    result.replayed = replayed(delivered) + repeated(delivered, faults)
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


def phantoms(sent: Iterable[Sent], found: Iterable[Delivered | Kept]) -> list[str]:
    """Ids, or places of foreign bodies, that were delivered or kept without a right to be."""
    rightful = {each.id for each in sent if each.outcome is not Outcome.ROLLED_BACK}
    return sorted(
        {each.id or f"{each.queue}@{each.offset}" for each in found if each.id not in rightful}
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


def late(
    sent: Iterable[Sent], delivered: Iterable[Delivered], faults: Sequence[Fault]
) -> list[str]:
    """Acknowledged timers whose first delivery came late, without the time that faults explain.

    One that a broker stored while its clock was wrong may be late by as much as that.
    """
    first: dict[str, float] = {}
    for each in delivered:
        first.setdefault(each.id, each.at)
    shifted = shifts(faults)
    found = []
    for timer in sent:
        if timer.outcome is not Outcome.ACKNOWLEDGED or timer.id not in first:
            continue
        due, at = timer.ended + timer.delay, first[timer.id]
        excuse = _LATE_AFTER + _excused(timer.began, at, shifted)
        if at - due > excuse and served(due, at, faults) > excuse:
            found.append(timer.id)
    return found


def replayed(delivered: Iterable[Delivered]) -> list[str]:
    """Messages that came from their place again after the consumer had long gone past them.

    Time counts only as far as the queue went on: a queue that stands still, for want of a lock or a
    master, commits nothing either.
    """
    first: dict[tuple[str, int, str], float] = {}
    last_new: dict[str, float] = {}
    found = set()
    for each in delivered:
        if each.times or each.kind is Kind.POP:
            continue
        place = each.queue, each.offset, each.id
        if place not in first:
            first[place] = last_new[each.queue] = each.at
        elif last_new[each.queue] - first[place] > _BACK_BY:
            found.add(each.id)
    return sorted(found)


def repeated(delivered: Iterable[Delivered], faults: Sequence[Fault]) -> list[str]:
    """Messages with a lease or a retry of their own that came again too long after."""
    last: dict[str, float] = {}
    shifted = shifts(faults)
    found = set()
    for each in delivered:
        if (each.times or each.kind is Kind.POP) and each.id in last:
            before = last[each.id]
            excuse = _RETRIED_WITHIN + _excused(before, each.at, shifted)
            if each.at - before > excuse and served(before, each.at, faults) > excuse:
                found.add(each.id)
        last[each.id] = each.at
    return sorted(found)


def served(begin: float, end: float, faults: Iterable[Fault]) -> float:
    """Seconds between two times in which no fault was on, nor service on its way back."""
    total, at = 0.0, begin
    for each in sorted(faults, key=lambda fault: fault.began):
        back = math.inf if each.back_after is None else each.ended + each.back_after
        total += max(min(each.began, end) - at, 0.0)
        at = max(at, min(back, end))
    return total + max(end - at, 0.0)


def _excused(begin: float, end: float, shifted: Iterable[tuple[float, float]]) -> float:
    """Seconds by which a wrong clock may have delayed something between two times."""
    return CLOCK_SHIFT if any(since < end and begin < until for since, until in shifted) else 0.0


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
    if result.kind is Kind.DEDUP:
        result.stored_twice = sorted(each for each, found in stored.items() if len(found) > 1)
    else:
        result.copies = sum(len(found) - 1 for found in stored.values())
