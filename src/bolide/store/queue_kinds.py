"""Which topics of a replica have batch queues, and what is done when that was not known in time.

The kind of a topic's queues is one of its settings, `queue.type`. A replica copies the settings a
moment after the records, so records are dispatched to queues of the wrong kind if their topic is
new, or was deleted and created again with another kind. These rules give every record its unit:

- An inner batch in a topic without batch queues gets no unit at first; where such records lie is
  remembered.
- When the master's table says another kind, the queues of the topic are removed and its records
  are added again from the log, from the first one on that the table before did not cover.
- Before a checkpoint, and before the replica becomes a master, an inner batch is proof enough: a
  master takes none in a topic without batch queues. The next table may say otherwise.

Records are added again in steps that hold the store's lock. Meanwhile the dispatch of new records
leaves these topics out: the steps get there, too. No checkpoint is written before they are done.
"""

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from bolide.kernel import Check, Stop, scan
from bolide.protocol.record import Record, read_record
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.queue_dispatch import QueueDispatch
from bolide.store.queue_table import QueueTable
from bolide.store.torn_tail import find_records

_STRIDE = 1024 * 1024


class QueueKinds:
    """Positions are physical offsets. `adopt`, `doubtful` and `settle` take the store's lock; the
    caller of each other method holds it.

    Args:
        end: returns the end of the records that were dispatched.
        aside: returns a new path for the files of queues that are removed.
        add_units: called with the number of queue offsets that were added.
        recount: called when queues were removed.
    """

    def __init__(  # noqa: PLR0913  parts of one store
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        *,
        lock: AbstractContextManager[bool],
        delays: tuple[int, ...],
        end: Callable[[], int],
        aside: Callable[[], Path],
        add_units: Callable[[int], None],
        recount: Callable[[], None],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._lock = lock
        self._delays = delays
        self._end = end
        self._aside = aside
        self._add_units = add_units
        self._recount = recount
        self._dispatch = QueueDispatch(
            commit_log, queues, gaps_allowed=True, on_skipped=self.note_skipped
        )
        self._skipped: dict[bytes, tuple[int, int]] = {}
        """The first and the last inner batch without a unit, by topic."""
        self._passed_over: dict[bytes, tuple[int, int]] = {}
        """As `_skipped`, by recovery, in topics that the table on the disk knows."""
        self._places: dict[bytes, int] = {}
        """How far the records of topics were added again."""
        self._unconfirmed: dict[bytes, int] = {}
        """Topics about which no table has said anything yet, with the position that one has to
        cover."""
        self._covered = self._told = 0
        """The settings of all topics with records below it are known; `_told` is ahead of
        `_covered` while they are taken over."""
        self._removed: list[Path] = []
        """Directories to delete."""

    @property
    def left_out(self) -> Collection[bytes]:
        """The topics whose records are being added again, as a view."""
        return self._places.keys()

    @property
    def is_settled(self) -> bool:
        """Whether every record that was dispatched has its unit."""
        return not self._skipped and not self._places

    def note_skipped(self, topic: bytes, physical_offset: int) -> None:
        """An inner batch got no unit, as its topic has no batch queues."""
        if physical_offset >= self._told:  # else it is of a deleted topic
            first, last = self._skipped.get(topic, (physical_offset, physical_offset))
            self._skipped[topic] = min(first, physical_offset), max(last, physical_offset)

    def recovered(self, known: Callable[[bytes], bool | None]) -> None:
        """Note what a recovery found of topics that the table on the disk does not know.

        In a topic that it knows, inner batches are most likely left of a deleted topic.

        Args:
            known: what the table says, as in `adopt`.
        """
        for topic in [topic for topic in self._skipped if known(topic) is not None]:
            self._passed_over[topic] = self._skipped.pop(topic)
        doubtful = [topic for topic in self._queues.batch_topics if not known(topic)]
        self._unconfirmed = dict.fromkeys(doubtful, 0)

    # ---- what the master's table says

    def doubtful(self, position: int) -> set[bytes]:
        """The topics to look up in a table that covers the records below a position."""
        with self._lock:
            found = {topic for topic, last in self._unconfirmed.items() if last <= position}
            return found | {topic for topic, (_, last) in self._skipped.items() if last < position}

    def adopt(self, kinds: Mapping[bytes, bool | None], position: int) -> bool:
        """Take over what the table of the master says; `settle` has to follow. Blocks.

        Args:
            kinds: whether topics have batch queues, or None if they do not exist: of those that
                have changed since the last table, and of those in doubt.
            position: the table covers the records below it; a record begins there.

        Returns:
            Whether queues have to be settled.

        Raises:
            OSError: queues cannot be removed; the call has to be repeated.
        """
        for topic, is_batched in kinds.items():
            if is_batched is None or self._is_news(topic, is_batched=is_batched):
                with self._lock:  # for one at a time: there may be many
                    self.learn(topic, is_batched, position)
        with self._lock:
            self._cover(position)
            return bool(self._removed or self._places)

    def _is_news(self, topic: bytes, *, is_batched: bool) -> bool:
        """Whether `learn` has anything to do. The caller need not hold the lock."""
        return (
            is_batched is not (topic in self._queues.batch_topics)
            or topic in self._unconfirmed
            or topic in self._skipped
        )

    def learn(self, topic: bytes, is_batched: bool | None, position: int) -> None:
        """Take over what the table says of one topic, as `adopt`."""
        self._told = position
        if is_batched is None:
            self._rebuild(topic, is_batched=False, since=position)
            if topic in self._places:  # a new topic, or the last messages of the deleted one
                self._unconfirmed[topic] = self._end()
        elif is_batched is not (topic in self._queues.batch_topics):
            if is_batched or self._unconfirmed.get(topic, 0) <= position:
                self._rebuild(topic, is_batched=is_batched, since=self._covered)
        elif self._unconfirmed.get(topic, position + 1) <= position:
            del self._unconfirmed[topic]

    def _cover(self, position: int) -> None:
        """The settings of all topics with records below a position are known now."""
        self._covered = self._told = position
        for skipped in (self._skipped, self._passed_over):
            for topic in [topic for topic, (_, last) in skipped.items() if last < position]:
                del skipped[topic]

    def apply_proofs(self) -> None:
        """Give batch queues to the topics that have inner batches, without the master's table.

        Raises:
            OSError: queues cannot be removed; the call has to be repeated.
        """
        for topic in list(self._skipped):
            self._rebuild(topic, is_batched=True, since=self._covered)
            self._unconfirmed[topic] = self._end()

    def _rebuild(self, topic: bytes, *, is_batched: bool, since: int) -> None:
        """Remove the queues of a topic; its records from a position on are to be added again."""
        begin = self._first_record(topic, since)
        if begin is not None:
            # First: if the queues cannot be removed, the records are added again nevertheless.
            self._places[topic] = begin
        else:
            self._places.pop(topic, None)
        aside = self._aside()
        if self._queues.detach_topic(topic, aside):
            self._removed.append(aside)
            self._recount()
        if is_batched:
            self._queues.batch_topics.add(topic)
        self._skipped.pop(topic, None)
        self._unconfirmed.pop(topic, None)

    def _first_record(self, topic: bytes, since: int) -> int | None:
        """A position before the first record of a topic at or behind a position, if it has any."""
        found = [self._places[topic]] if topic in self._places else []
        places = (each.get(topic) for each in (self._skipped, self._passed_over))
        found += [place[0] for place in places if place is not None and place[1] >= since]
        for queue in self._queues.of(topic):
            if not queue.max_offset:
                continue
            first, last = queue.unit(queue.min_offset), queue.unit(queue.max_offset - 1)
            if first is not None and last is not None and last.physical_offset >= since:
                found.append(first.physical_offset)
        if not found:
            return None
        return min(max(min(found), since, self._log.min_offset), self._end())

    # ---- adding again

    def settle(self) -> None:
        """Give every record that was dispatched its unit. Blocks.

        Raises:
            OSError: queues cannot be removed; the call has to be repeated.
        """
        with self._lock:
            self.apply_proofs()
        is_left = True
        while is_left:
            with self._lock:
                is_left = self.step()
                removed, self._removed = self._removed, []
            for path in removed:
                shutil.rmtree(path, ignore_errors=True)

    def step(self) -> bool:
        """Add the units of some of the log again; returns whether anything is left to do."""
        if not self._places:
            return False
        end, position = self._end(), min(self._places.values())
        topics = {topic for topic, place in self._places.items() if place == position}
        stop = min([place for place in self._places.values() if place > position], default=end)
        reached = self._add_some(position, min(stop, end), topics) if position < end else end
        for topic in topics:
            self._places[topic] = reached
            if reached >= end:
                del self._places[topic]
        return bool(self._places)

    def _add_some(self, position: int, stop: int, topics: Collection[bytes]) -> int:
        """Add the units of topics from a position on; returns how far it came."""
        file = self._log.find_file(position)
        with suppress(ValueError):  # retention closes the file
            if file is not None:
                with file.in_use():
                    return self._add_in(file, position, min(stop, file.end), topics)
        return min([each.start for each in self._log.files if each.start > position], default=stop)

    def _add_in(self, file: LogFile, position: int, stop: int, topics: Collection[bytes]) -> int:
        def read(physical_offset: int) -> Record:
            record = read_record(file.view, physical_offset - file.start)
            assert isinstance(record, Record)  # the scan has just found it sound
            return record

        found = scan(
            file.view,
            position - file.start,
            min(position + _STRIDE, stop) - file.start,
            file.start,
            check=Check.NONE,
            delays=self._delays,
            keys=False,
        )
        if found.count:
            self._add_units(self._dispatch.add_again(found, file.start, topics, read))
        reached = file.start + found.end
        if found.stop is Stop.END or reached >= stop:
            return reached
        if found.stop is Stop.BLANK:
            return file.end
        sound = next(find_records(file, found.end), None)  # recovery has passed over damage here
        return min(file.start + sound[0], stop) if sound else stop

    # ---- what happens to the log

    def cut(self, position: int) -> None:
        """The log and its queues were cut."""
        self._places = {topic: min(place, position) for topic, place in self._places.items()}
        for skipped in (self._skipped, self._passed_over):
            for topic, (first, last) in list(skipped.items()):
                skipped[topic] = first, min(last, position)
                if first >= position:
                    del skipped[topic]
        self._unconfirmed = {
            topic: min(last, position) for topic, last in self._unconfirmed.items()
        }
        self._covered, self._told = min(self._covered, position), min(self._told, position)

    def restart(self) -> None:
        """The log and its queues begin anew."""
        self.cut(0)
        self._places.clear()
