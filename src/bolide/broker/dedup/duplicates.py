"""Idempotent append of keyed messages: a duplicate is answered with the position of the first."""

import time
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from bolide.broker.dedup.window import Window, find_key
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.delay import NotYet
from bolide.broker.produce.intake import Intake
from bolide.model.properties import PropertyName
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import MessageIllegal
from bolide.store.appending import Appended
from bolide.store.contract import Store

_DEDUP_KEY = PropertyName.DEDUP_KEY.encode()


class DedupResult(NamedTuple):
    """Positions of messages in request order; duplicates have that of the first send."""

    appended: list[Appended]
    fresh: list[Appended]


class Duplicates:
    """Appends messages to topics with de-duplication windows; belongs to one event loop."""

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

    def concerns(self, topic: str, drafts: Sequence[RecordDraft]) -> bool:
        """Whether the topic has windows and one of the messages may have a key."""
        return self.windows.covers(topic) and any(
            _DEDUP_KEY in bytes(draft.properties) for draft in drafts
        )

    def check_batch(self, header: SendHeader, drafts: Sequence[RecordDraft]) -> None:
        """Raises MessageIllegal for a batch that cannot be deduplicated."""
        if not self.windows.covers(header.topic):
            return
        name = PropertyName.DEDUP_KEY
        if name in decode_properties(header.properties):
            raise MessageIllegal(f"a batch has no {name} of its own: give one to each message")
        if header.queue_id < 0 and self.concerns(header.topic, drafts):
            raise MessageIllegal(f"messages with {name} have their queues: a batch must name one")

    def append(self, topic: str, queue_id: int, drafts: Sequence[RecordDraft]) -> DedupResult:
        """Append the new messages, all or none, and record their keys.

        The windows of the topic must be ready. Raises as `Intake.append_batch`.
        """
        window = self.windows.require(topic, queue_id)
        before, end = len(window), self._store.max_offset(topic, queue_id)
        oldest = window.length.oldest(self._now(), end)
        window.evict_expired(oldest, 2 * len(drafts))
        keys = [find_key(draft.properties) for draft in drafts]
        known = {key: appended for key in keys if key and (appended := window.find(key, oldest))}
        new = _first_seen(known, keys)
        fresh = self._append_new([drafts[at] for at in new])
        for at, appended in zip(new, fresh, strict=True):
            if (key := keys[at]) is not None:
                known[key] = appended
                _record(window, key, appended, end if _is_delayed(drafts[at], topic) else None)
        self.windows.record_growth(len(window) - before)
        unkeyed = iter(
            [appended for at, appended in zip(new, fresh, strict=True) if keys[at] is None]
        )
        return DedupResult([next(unkeyed) if key is None else known[key] for key in keys], fresh)

    def is_delivered(self, draft: RecordDraft, physical_offset: int) -> bool:
        """Whether a delayed message was delivered to its queue before a crash.

        Args:
            physical_offset: position of the message in the delay queue.

        Raises:
            NotYet: the window is still being recovered.
        """
        topic = str(draft.topic, "utf-8", "replace")
        key = find_key(draft.properties) if self.windows.covers(topic) else None
        if key is None:
            return False
        if self.windows.is_reading(topic):
            raise NotYet
        window = self.windows.require(topic, draft.queue_id)
        if window.delivered.get(key) != draft.born_timestamp:
            return False  # an earlier message had the key
        appended = window.find(key, 0)
        return appended is not None and appended.physical_offset > physical_offset

    def _append_new(self, drafts: list[RecordDraft]) -> list[Appended]:
        if len(drafts) == 1:
            return [self._intake.append(drafts[0])]
        return self._intake.append_batch(drafts) if drafts else []


def _first_seen(known: Container[bytes], keys: Sequence[bytes | None]) -> list[int]:
    """Return the indexes of messages without a key, or whose key occurs for the first time."""
    new: list[int] = []
    seen: set[bytes] = set()
    for at, key in enumerate(keys):
        if key is None or not (key in known or key in seen):
            new.append(at)
        if key is not None:
            seen.add(key)
    return new


def _is_delayed(draft: RecordDraft, topic: str) -> bool:
    """Whether the message is addressed to a delay queue first."""
    return draft.topic != topic.encode()


def _record(window: Window, key: bytes, appended: Appended, queue_end: int | None) -> None:
    """Record a key.

    Args:
        queue_end: end of the own queue of a message that was appended to a delay queue, else None.
    """
    queue_offset = appended.queue_offset if queue_end is None else queue_end
    window.add(key, appended, window.length.stamp(appended.store_timestamp, queue_offset))
