"""The halves of one transaction: the first, the copies that took its place, and those set aside.

They are found by the key index, as all of them have the unique id of the message. Without an index
only the half at hand is known; then brokers ask once more than they would have to.
"""

from bolide.broker.transactions.half import Half
from bolide.broker.transactions.open_halves import OpenHalves
from bolide.model.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.store.contract import Store

_MOST_COPIES = 64


class Lineage:
    """Looks into the store; everything blocks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find_newest(self, half: Half, opened: OpenHalves) -> Half | None:
        """The half of the same transaction that is open, or that was set aside and not taken up
        again; None if there is none."""
        halves = self._copies(half) + ([] if half.is_aside else [half])
        newest = max(halves, key=_place, default=None)
        if newest is not None and opened.is_open(newest.queue_offset):
            return newest
        aside = self._copies(half, TRANS_CHECK_MAX_TIME_TOPIC) + ([half] if half.is_aside else [])
        last = max(aside, key=_place, default=None)
        if last is None or (newest is not None and _place(newest) > _place(last)):
            return None
        return last

    def find_before(self, half: Half) -> Half | None:
        """The half that this one is a copy of."""
        if half.origin == half.queue_offset:
            return None
        older = [each for each in self._copies(half) if _place(each) < _place(half)]
        return max(older, key=_place, default=None)

    def _copies(self, half: Half, topic: str = HALF_TOPIC) -> list[Half]:
        if not half.unique_id:
            return []
        records = self._store.find(topic, half.unique_id, limit=_MOST_COPIES)
        found = [each for data in records if (each := Half.find(data))]
        return [each for each in found if _is_same(each, half)]


def _place(half: Half) -> int:
    return half.record.physical_offset


def _is_same(half: Half, other: Half) -> bool:
    """Whether two halves are of one transaction; one that RocketMQ set aside names no first one."""
    if (half.unique_id, half.topic) != (other.unique_id, other.topic):
        return False
    return half.origin is None or other.origin is None or half.origin == other.origin
