"""Makes a timer wheel fit its log again after a crash."""

from collections.abc import Callable
from typing import NamedTuple

from bolide.store.timers.timer_log import DELETE, NOWHERE, TimerEntry, TimerLog, TimerLogReader
from bolide.store.timers.wheel import Slot, TimerWheel

Numbered = Callable[[int], int]
"""The number of the slot of a time."""


class Revised(NamedTuple):
    end: int
    """Where the log ends."""
    last: TimerEntry | None
    """Its last unit."""


def revise(log: TimerLog, wheel: TimerWheel, flushed: int, number: Numbered, first: int) -> Revised:
    """Have a wheel that RocketMQ left lead to all units: it is written later than they are.

    Slots before number `first` are of no interest any more.
    """
    revised = Revised(log.file_start_before(flushed), None)
    changed: dict[int, Slot] = {}
    for position, end, unit in log.walk(revised.end):
        revised = Revised(end, unit)
        of = number(unit.due)
        if of < first:
            continue
        slot = changed.get(of) or wheel.read(of)
        if position > slot.last:
            changed[of] = slot._replace(
                first=position if slot.first == NOWHERE else slot.first,
                last=position,
                waiting=slot.waiting + (-1 if unit.magic & DELETE else 1),
            )
    for slot in changed.values():
        wheel.write(slot)
    return revised


def mend(log: TimerLog, wheel: TimerWheel, end: int, number: Numbered, first: int) -> list[int]:
    """Have slots forget the units behind an end; returns the numbers of those in use."""
    in_use, beyond = [], []
    for slot in wheel.everything():
        if slot.number >= first:
            in_use.append(slot.number)
            if slot.last >= end:
                beyond.append(slot)
    broken = []
    for slot in beyond:
        shortened = _shortened(slot, log, end, number)
        if shortened is None:
            broken.append(slot)
        else:
            wheel.write(shortened)
    for slot in _searched(broken, log, end, number):
        wheel.write(slot)
    return in_use


def _shortened(slot: Slot, log: TimerLog, end: int, number: Numbered) -> Slot | None:
    """The slot without what is behind the end, None if that cannot be told by its units."""
    reader, position, dropped = TimerLogReader(log), slot.last, 0
    while position >= end:
        found = reader.read(position)
        # A unit half of which a power cut took away has another time, or no size.
        if found is None or number(found[1].due) != slot.number or found[0] >= position:
            return None
        position, dropped = found[0], dropped + 1
    if position == NOWHERE:
        return Slot(slot.number)
    return slot._replace(last=position, waiting=max(slot.waiting - dropped, 1))


def _searched(broken: list[Slot], log: TimerLog, end: int, number: Numbered) -> list[Slot]:
    """The same by all units of the log from the first of them on."""
    found = {slot.number: Slot(slot.number) for slot in broken}
    firsts = [max(slot.first, log.start) for slot in broken if 0 <= slot.first < end]
    for position, unit in log.units(min(firsts), end) if firsts else ():
        slot = found.get(number(unit.due))
        if slot is not None:
            first = position if slot.first == NOWHERE else slot.first
            found[slot.number] = slot._replace(first=first, last=position, waiting=slot.waiting + 1)
    return list(found.values())
