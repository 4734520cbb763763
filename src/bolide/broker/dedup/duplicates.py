"""Keyed messages are taken once: a repeat is answered with the place of the first."""

import time
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from bolide.broker.dedup.window import Window, find_key
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.delay import NotYet
from bolide.broker.produce.intake import Intake
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.contract import Store


class Places(NamedTuple):
    """Where messages are, in their order: the new ones, and the first sends of the others."""

    appended: list[Appended]
    fresh: list[Appended]


class Duplicates:
    """Stands between the sends of topics that have windows and the store; of one event loop."""

    def __init__(
        self,
        windows: DedupWindows,
        *,
        store: Store,
        intake: Intake,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.windows = windows
        self._store = store
        self._intake = intake
        self._now = now

    def append(self, topic: str, queue_id: int, drafts: Sequence[RecordDraft]) -> Places:
        """Append the messages that are new, all of them or none, and keep their keys.

        The windows of the topic must be ready. Raises as `Intake.append_batch`.
        """
        window = self.windows.require(topic, queue_id)
        before, end = len(window), self._store.max_offset(topic, queue_id)
        oldest = window.span.oldest(self._now(), end)
        window.slide(oldest, 2 * len(drafts))
        keys = [find_key(draft.properties) for draft in drafts]
        known = {key: place for key in keys if key and (place := window.find(key, oldest))}
        new = _first_seen(known, keys)
        fresh = self._append_new([drafts[at] for at in new])
        for at, place in zip(new, fresh, strict=True):
            if (key := keys[at]) is not None:
                known[key] = place
                _keep(window, key, place, end if _is_elsewhere(drafts[at], topic) else None)
        self.windows.grew(len(window) - before)
        unkeyed = iter([place for at, place in zip(new, fresh, strict=True) if keys[at] is None])
        return Places([next(unkeyed) if key is None else known[key] for key in keys], fresh)

    def is_delivered(self, draft: RecordDraft, physical_offset: int) -> bool:
        """Whether the delayed message that waits at a position went to its queue already: a broker
        that is killed has forgotten some of its last deliveries.

        Raises:
            NotYet: that is being read.
        """
        topic = str(draft.topic, "utf-8", "replace")
        key = find_key(draft.properties) if self.windows.covers(topic) else None
        if key is None:
            return False
        if self.windows.is_reading(topic):
            raise NotYet
        window = self.windows.require(topic, draft.queue_id)
        if window.delivered.get(key) != draft.born_timestamp:
            return False  # another one had the key before
        place = window.find(key, 0)
        return place is not None and place.physical_offset > physical_offset

    def _append_new(self, drafts: list[RecordDraft]) -> list[Appended]:
        if len(drafts) == 1:
            return [self._intake.append(drafts[0])]
        return self._intake.append_batch(drafts) if drafts else []


def _first_seen(known: Container[bytes], keys: Sequence[bytes | None]) -> list[int]:
    """Which of several have no key, or one that neither is known nor stands before them."""
    new: list[int] = []
    seen: set[bytes] = set()
    for at, key in enumerate(keys):
        if key is None or not (key in known or key in seen):
            new.append(at)
        if key is not None:
            seen.add(key)
    return new


def _is_elsewhere(draft: RecordDraft, topic: str) -> bool:
    """Whether it goes to a delay queue first."""
    return draft.topic != topic.encode()


def _keep(window: Window, key: bytes, place: Appended, position: int | None) -> None:
    """`position` is that in its own queue, of a message that went to another one."""
    offset = place.queue_offset if position is None else position
    window.add(key, place, window.span.mark(place.store_timestamp, offset))
