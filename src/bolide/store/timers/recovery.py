"""Makes timer wheel and timer log consistent after a crash."""

from collections.abc import Callable
from typing import NamedTuple

from bolide.store.timers.timer_log import DELETE, NOWHERE, TimerEntry, TimerLog, TimerLogReader
from bolide.store.timers.wheel import Slot, TimerWheel

SlotNumber = Callable[[int], int]
"""Returns the slot number of a time."""


class Revised(NamedTuple):
    end: int
    """End of the log."""
    last: TimerEntry | None
    """The last entry of the log."""


def revise(
    log: TimerLog, wheel: TimerWheel, flushed: int, number: SlotNumber, first: int
) -> Revised:
    """Add units missing from a wheel that RocketMQ left: it writes the wheel after the units.

    Slots before number `first` are already delivered and skipped.
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


def mend(log: TimerLog, wheel: TimerWheel, end: int, number: SlotNumber, first: int) -> list[int]:
    """Remove units behind `end` from the slots; returns the numbers of the slots in use."""
    in_use, beyond = [], []
    for slot in wheel.all_slots():
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
    for slot in _rebuilt(broken, log, end, number):
        wheel.write(slot)
    return in_use


def _shortened(slot: Slot, log: TimerLog, end: int, number: SlotNumber) -> Slot | None:
    """Return the slot without units behind the end, or None if its chain is broken."""
    reader, position, dropped = TimerLogReader(log), slot.last, 0
    while position >= end:
        found = reader.read(position)
        # A unit torn by a power cut has another time, or no size.
        if found is None or number(found[1].due) != slot.number or found[0] >= position:
            return None
        position, dropped = found[0], dropped + 1
    if position == NOWHERE:
        return Slot(slot.number)
    return slot._replace(last=position, waiting=max(slot.waiting - dropped, 1))


def _rebuilt(broken: list[Slot], log: TimerLog, end: int, number: SlotNumber) -> list[Slot]:
    """Rebuild broken slots by scanning the log from their first unit on."""
    found = {slot.number: Slot(slot.number) for slot in broken}
    firsts = [max(slot.first, log.start) for slot in broken if 0 <= slot.first < end]
    for position, unit in log.units(min(firsts), end) if firsts else ():
        slot = found.get(number(unit.due))
        if slot is not None:
            first = position if slot.first == NOWHERE else slot.first
            found[slot.number] = slot._replace(first=first, last=position, waiting=slot.waiting + 1)
    return list(found.values())
