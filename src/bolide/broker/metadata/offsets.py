"""How far the groups have consumed (`ConsumerOffsetManager`)."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from bolide.broker.background import on_saving_thread
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.refusals import ServerError
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table

log = logging.getLogger(__name__)

Offsets = dict[str, dict[int, int]]
"""By "topic@group" and queue id."""

_SEPARATOR = "@"
_WARN_AGAIN = 60.0
_MOST_WARNED = 10_000


class OffsetTable:
    """Committed offsets by group, topic and queue, out of a table that is loaded; belongs to one
    event loop, except for saving and the two `find`, which any thread may call.

    A reset by the broker is pending until a pull takes it: meanwhile it is what `find` tells, and
    what consumers commit is of the time before and does not count.
    """

    def __init__(self, table: Table[ConsumerOffsets], now: Callable[[], float] = time.time) -> None:
        self._table = table
        self._now = now
        self._offsets: Offsets = table.value.offset_table
        self._resets: Offsets = {}
        self._pulled: Offsets = {}
        self._has_moved = False
        self._warned: dict[tuple[str, int], float] = {}
        self._saving = threading.Lock()  # one file, one writer
        self.on_reset: Callable[[str, Iterable[int]], None] = lambda topic, queue_ids: None
        """Called with the queues of a topic that a group is sent to other offsets of."""
        self.on_placed: Callable[[str, str, Mapping[int, int]], None] = lambda *_: None
        """Called with a group, a topic and where the group is sent, before `on_reset`."""
        self.on_removed: Callable[[str, str], None] = lambda *_: None
        """Called with a topic or a group whose offsets are removed; the other one is empty."""

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        key = f"{topic}@{group}"
        if self._resets and (pending := self._resets.get(key, {}).get(queue_id)) is not None:
            return pending
        queues = self._offsets.get(key)
        return queues.get(queue_id) if queues is not None else None

    def of(self, group: str, topic: str) -> dict[int, int]:
        """The offsets of a group in a topic by queue."""
        return dict(self._offsets.get(f"{topic}@{group}", ()))

    def topics_of(self, group: str) -> set[str]:
        """The topics that a group has offsets in."""
        return {topic for topic, owner in map(_split, self._offsets) if owner == group}

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets in a topic."""
        return {group for name, group in map(_split, self._offsets) if name == topic}

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, peer: str = "") -> bool:
        """Take an offset, a smaller one too; False while a reset is pending."""
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        before = queues.get(queue_id, -1)
        if before == offset:
            return True
        queues[queue_id] = offset
        self._moved()
        if offset < before:
            self._warn(key, queue_id, before, offset, peer)
        return True

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Send a group to other offsets of a topic; its next pulls are told."""
        if offsets:
            key = f"{topic}@{group}"
            self._resets.setdefault(key, {}).update(offsets)
            self._offsets.setdefault(key, {}).update(offsets)
            self._moved()
        self.on_placed(group, topic, offsets)
        self.on_reset(topic, offsets)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of a queue is pending."""
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending reset of a queue, which ends with this.

        An offset to commit that rides on the same pull is of the time before.
        """
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        queues = self._resets.get(key, {})
        offset = queues.pop(queue_id, None)
        if not queues:
            self._resets.pop(key, None)
        return offset

    def clone(self, source: str, target: str, topic: str) -> None:
        """Put a group where another one is in a topic."""
        if offsets := self.of(source, topic):
            self._offsets[f"{topic}@{target}"] = offsets
            self._moved()

    def remove_group(self, group: str) -> None:
        self._remove(lambda _, owner: owner == group)
        self.on_removed("", group)

    def remove_topic(self, topic: str) -> None:
        self._remove(lambda name, _: name == topic)
        self.on_removed(topic, "")

    # ---- how far groups have pulled, which is not saved

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note where the next pull of a group will begin."""
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def find_pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a group's next pull will begin, or else what it has committed."""
        offset = self._pulled.get(f"{topic}@{group}", {}).get(queue_id)
        return self.find(group, topic, queue_id) if offset is None else offset

    # ---- saving

    @property
    def data_version(self) -> DataVersion:
        """It moves with the first question or save after a change, not with each commit."""
        if self._has_moved:
            self._has_moved = False
            value = self._table.value
            value.data_version = value.data_version.bumped(int(self._now() * 1000))
        return self._table.value.data_version

    @property
    def table(self) -> ConsumerOffsets:
        """All offsets as peers get them; not to be changed."""
        _ = self.data_version
        return self._table.value

    def save_due(self, now: float) -> bool:
        """Save if it is time; says whether it did. Blocks; raises OSError."""
        with self._saving:
            _ = self.data_version
            return self._table.save_due(now)

    def save(self) -> bool:
        """Save at once if anything changed. Blocks; raises OSError."""
        with self._saving:
            _ = self.data_version
            return self._table.save()

    async def save_now(self) -> None:
        """Save at once, on a thread.

        Raises:
            ServerError: that is not possible now; the keeper tries again.
        """
        try:
            await uninterrupted(on_saving_thread(self.save))
        except OSError as exc:
            raise ServerError(
                f"in force, but {self._table.path} cannot be written: {exc}; it is tried again"
            ) from exc

    # ---- inside

    def _moved(self) -> None:
        self._has_moved = True
        self._table.changed()

    def _remove(self, is_wanted: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._resets, self._pulled):
            for key in [key for key in table if is_wanted(*_split(key))]:
                del table[key]
        self._moved()

    def _warn(self, key: str, queue_id: int, before: int, offset: int, peer: str) -> None:
        now = self._now()
        if now - self._warned.get((key, queue_id), -_WARN_AGAIN) < _WARN_AGAIN:
            return
        if len(self._warned) >= _MOST_WARNED:
            self._warned.clear()
        self._warned[key, queue_id] = now
        log.warning(
            "%s set the offset of %s in queue %s back from %s to %s",
            peer or "somebody", key, queue_id, before, offset,
        )  # fmt: skip


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group
