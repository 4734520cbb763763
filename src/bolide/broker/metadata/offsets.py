"""Committed consumer offsets by group, topic and queue (`ConsumerOffsetManager`)."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping

from bolide.broker.background import ADMIN, changed_keys, on_saving_thread, on_thread, slices
from bolide.events import Listeners
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.refusals import ServerError
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table

log = logging.getLogger(__name__)

Offsets = dict[str, dict[int, int]]
"""By "topic@group" and queue id."""

_SEPARATOR = "@"
_WARN_INTERVAL = 60.0
_MAX_WARNED = 10_000


class OffsetTable:
    """Committed offsets by group, topic and queue, backed by a loaded table.

    Belongs to one event loop, except for the save methods and the two `find` methods, which any
    thread may call. A reset stays pending until a pull takes it. Meanwhile `find` returns the reset
    offset, and commits are rejected because consumers have not seen the reset yet.
    """

    def __init__(
        self,
        table: Table[ConsumerOffsets],
        now: Callable[[], float] = time.time,
        *,
        is_copy: bool = False,
    ) -> None:
        """Args:
        is_copy: whether the table is that of a slave, which adopts the offsets of its master.
        """
        self._table = table
        self._own: Offsets | None = {} if is_copy else None
        """Of a slave: what was committed here, until the master has reached it."""
        self._now = now
        self._offsets: Offsets = table.value.offset_table
        self._groups: dict[str, set[str]] = {}
        """Groups by topic, of all offsets; `_topics` has the topics by group."""
        self._topics: dict[str, set[str]] = {}
        for key in self._offsets:
            self._index(key)
        self._resets: Offsets = {}
        self._pulled: Offsets = {}
        self._is_modified = False
        self.is_frozen = False
        """Whether clients may not commit: another master may have been elected."""
        self._warned: dict[tuple[str, int], float] = {}
        self._saving = threading.Lock()  # one file, one writer
        self.on_reset: Listeners[str, str, Mapping[int, int]] = Listeners()
        """A group was moved in a topic, to these offsets by queue id."""
        self.on_removed: Listeners[str, str] = Listeners()
        """The offsets of a topic or of a group were removed; the other one of the two is empty."""

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        key = f"{topic}@{group}"
        if self._resets and (pending := self._resets.get(key, {}).get(queue_id)) is not None:
            return pending
        queues = self._offsets.get(key)
        return queues.get(queue_id) if queues is not None else None

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Offsets of a group in a topic, by queue id."""
        return dict(self._offsets.get(f"{topic}@{group}", ()))

    def pairs(self) -> list[str]:
        """All pairs with offsets, as topic@group. Any thread may call it."""
        return list(self._offsets)

    def topics_of(self, group: str) -> set[str]:
        """Topics in which a group has offsets."""
        return set(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """Groups that have offsets in a topic."""
        return set(self._groups.get(topic, ()))

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, peer: str = "") -> bool:
        """Set an offset, also backwards; returns False, without effect, during a reset."""
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
            self._index(key)
        before = queues.get(queue_id, -1)
        if before == offset:
            return True
        if self._own is not None:
            self._keep(key, queue_id, offset, is_ahead=offset > before)
        queues[queue_id] = offset
        self._record_change()
        if offset < before:
            self._warn(key, queue_id, before, offset, peer)
        return True

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Move a group to other offsets of a topic; its next pulls receive the new offsets."""
        if offsets:
            key = f"{topic}@{group}"
            self._resets.setdefault(key, {}).update(offsets)
            self._offsets.setdefault(key, {}).update(offsets)
            self._index(key)
            self._record_change()
        self.on_reset(group, topic, offsets)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of a queue is pending."""
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", ())

    def claim_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the pending reset of a queue and clear it.

        A commit offset that comes with the same pull predates the reset and must be ignored.
        """
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        queues = self._resets.get(key, {})
        offset = queues.pop(queue_id, None)
        if not queues:
            self._resets.pop(key, None)
        return offset

    async def adopt(self, table: ConsumerOffsets) -> None:
        """Take over the offsets of the master that differ, a slice at a time.

        What was committed here is kept as long as the master has not reached it: it may have come
        back without asking for it. The caller gives the table away.
        """
        found = table.offset_table
        committed = set(self._own or ())
        keys = await on_thread(ADMIN, _keys_to_adopt, self._offsets, found, committed)
        self._is_modified = False  # the master's version is kept
        self._table.value.data_version = table.data_version
        self._table.changed()
        for some in slices(keys):
            for key in some:
                self._adopt_one(key, found.get(key, {}))
            self._table.changed()
            await asyncio.sleep(0)

    def _adopt_one(self, key: str, queues: dict[int, int]) -> None:
        own = self._own.get(key, {}) if self._own else {}
        for queue_id, offset in list(own.items()):
            if queues.get(queue_id, -1) < offset:
                queues[queue_id] = offset
            else:
                del own[queue_id]
        if queues:
            if key not in self._offsets:
                self._index(key)
            self._offsets[key] = queues
        elif self._offsets.pop(key, None) is not None:
            topic, group = _split(key)
            _discard(self._groups, topic, group)
            _discard(self._topics, group, topic)

    def own(self) -> list[tuple[str, str, int, int]]:
        """What was committed at this slave and not reached by its master: group, topic, queue id
        and offset."""
        return [
            (group, topic, queue_id, offset)
            for key, queues in (self._own or {}).items()
            for topic, group in (_split(key),)
            for queue_id, offset in queues.items()
        ]

    def _keep(self, key: str, queue_id: int, offset: int, *, is_ahead: bool) -> None:
        assert self._own is not None
        if is_ahead:
            self._own.setdefault(key, {})[queue_id] = offset
        else:
            self._own.get(key, {}).pop(queue_id, None)

    def forget_own(self, group: str, topic: str, queue_id: int) -> None:
        """The master has what was committed here."""
        if self._own is not None:
            self._own.get(f"{topic}@{group}", {}).pop(queue_id, None)

    def take_ahead(self, table: ConsumerOffsets, end: Callable[[str, int], int]) -> int:
        """Adopt the offsets of a slave that are ahead of these; returns how many.

        A slave with an older table has none: what is ahead in it was reset here since.

        Args:
            end: returns where a queue ends; a log that lost its tail has less than the slave saw.
        """
        if table.data_version.timestamp < self.data_version.timestamp:
            return 0
        taken = 0
        for key, queues in table.offset_table.items():
            topic, group = _split(key)
            for queue_id, offset in queues.items():
                ahead = min(offset, end(topic, queue_id))
                if ahead > self._offsets.get(key, {}).get(queue_id, 0):
                    self.commit(group, topic, queue_id, ahead)
                    taken += 1
        return taken

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of one group in a topic to another group."""
        if offsets := self.of(source, topic):
            key = f"{topic}@{target}"
            self._offsets[key] = offsets
            self._index(key)
            self._record_change()

    def remove_group(self, group: str) -> None:
        self._remove(lambda _, owner: owner == group)
        for topic in self._topics.pop(group, ()):
            _discard(self._groups, topic, group)
        self.on_removed("", group)

    def remove_topic(self, topic: str) -> None:
        self._remove(lambda name, _: name == topic)
        for group in self._groups.pop(topic, ()):
            _discard(self._topics, group, topic)
        self.on_removed(topic, "")

    # ---- pull offsets, in memory only

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record the queue offset at which the next pull of a group begins."""
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def find_pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """The queue offset of a group's next pull; the committed offset if it has not pulled."""
        offset = self._pulled.get(f"{topic}@{group}", {}).get(queue_id)
        return self.find(group, topic, queue_id) if offset is None else offset

    # ---- saving

    @property
    def data_version(self) -> DataVersion:
        """Version of the table; computed on demand, since a bump per commit would cost too much."""
        if self._is_modified:
            self._is_modified = False
            value = self._table.value
            value.data_version = value.data_version.bumped(int(self._now() * 1000))
            self._table.changed()
        return self._table.value.data_version

    @property
    def table(self) -> ConsumerOffsets:
        """All offsets in their wire form; callers must not modify it."""
        _ = self.data_version
        return self._table.value

    def save_due(self, now: float) -> bool:
        """Save if due; returns whether it did. Blocks; raises OSError."""
        with self._saving:
            _ = self.data_version
            return self._table.save_due(now)

    def save(self) -> bool:
        """Save now if anything changed. Blocks; raises OSError."""
        with self._saving:
            _ = self.data_version
            return self._table.save()

    async def save_now(self) -> None:
        """Save now, on a thread.

        Raises:
            ServerError: the file cannot be written; periodic maintenance tries again.
        """
        try:
            await uninterrupted(on_saving_thread(self.save))
        except OSError as exc:
            raise ServerError(
                f"in force, but {self._table.path} cannot be written: {exc}; the broker tries again"
            ) from exc

    # ---- inside

    def _index(self, key: str) -> None:
        topic, group = _split(key)
        self._groups.setdefault(topic, set()).add(group)
        self._topics.setdefault(group, set()).add(topic)

    def _record_change(self) -> None:
        self._is_modified = True
        self._table.changed()

    def _remove(self, is_wanted: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._resets, self._pulled):
            for key in [key for key in table if is_wanted(*_split(key))]:
                del table[key]
        self._record_change()

    def _warn(self, key: str, queue_id: int, before: int, offset: int, peer: str) -> None:
        now = self._now()
        if now - self._warned.get((key, queue_id), -_WARN_INTERVAL) < _WARN_INTERVAL:
            return
        if len(self._warned) >= _MAX_WARNED:
            self._warned.clear()
        self._warned[key, queue_id] = now
        log.warning(
            "%s moved the offset of %s in queue %s back from %s to %s",
            peer or "the broker", key, queue_id, before, offset,
        )  # fmt: skip


def _keys_to_adopt(known: Offsets, found: Offsets, committed: set[str]) -> list[str]:
    """Keys whose offsets differ or were committed here, each once. For threads."""
    changed = changed_keys(known, found)
    return [*committed, *(key for key in changed if key not in committed)]


def _discard(index: dict[str, set[str]], name: str, value: str) -> None:
    """Remove a value of a name, and the name with its last value."""
    index[name].discard(value)
    if not index[name]:
        del index[name]


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group
