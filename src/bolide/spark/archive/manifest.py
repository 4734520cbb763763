"""The manifest of an archive, as plain values: commits, and the state they add up to.

    TABLE/topic=orders/hour=2026-07-01-05/000000000042-RUN-0003.parquet   rows
    TABLE/_bolide/table.json                   settings of the table
    TABLE/_bolide/commits/000000000042.json    one change each: files added and removed
    TABLE/_bolide/states/000000000040.json     sum of all commits up to that number
    TABLE/_bolide/pending/000000000043.json    change in progress, completed after a crash
    TABLE/_bolide/staging/                     files of changes in progress
    TABLE/_bolide/writer.json                  lease of the current writer
    TABLE/_bolide/checkpoint/                  Spark's checkpoint

Commit numbers have no gap. A commit is written once all its files are in place, so a reader of the
manifest sees all of a change or none of it.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from bolide.arrow.offsets import Offsets, Plain, from_plain, to_plain
from bolide.model.message_queue import MessageQueue

Kind = Literal["begin", "append", "compact", "drop"]


class QueueSpan(msgspec.Struct, frozen=True):
    """The rows of one queue in one file, from the first offset to the last."""

    broker: str
    queue_id: int
    first: int
    last: int
    rows: int

    @property
    def is_dense(self) -> bool:
        return self.rows == self.last - self.first + 1


class DataFile(msgspec.Struct, frozen=True):
    path: str
    topic: str
    hour: str
    size: int
    spans: tuple[QueueSpan, ...]

    @property
    def rows(self) -> int:
        return sum(span.rows for span in self.spans)

    def queue_of(self, span: QueueSpan) -> MessageQueue:
        return MessageQueue(self.topic, span.broker, span.queue_id)


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of the table."""

    number: int
    kind: Kind
    run: str
    at: str
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    begin: Plain = {}
    """Start offsets of queues that are new to the archive."""


class PendingCommit(msgspec.Struct, frozen=True):
    """A change in progress: the staged path and the final path of each file."""

    commit: Commit
    moves: tuple[tuple[str, str], ...] = ()


class StoredState(msgspec.Struct, frozen=True):
    """The file format of `State`."""

    number: int
    files: tuple[DataFile, ...]
    begin: Plain
    covered: Plain
    dropped: Plain


class State(msgspec.Struct, frozen=True):
    """The contents of the table after some commit.

    Offsets are per queue: the archive has all offsets from `begin` up to but excluding `covered`,
    except those before `dropped`, which retention deleted.
    """

    number: int = 0
    files: Mapping[str, DataFile] = {}
    begin: Offsets = {}
    covered: Offsets = {}
    dropped: Offsets = {}

    def after(self, commit: Commit) -> "State":
        gone = [self.files[path] for path in commit.removed if path in self.files]
        files = {path: each for path, each in self.files.items() if path not in commit.removed}
        files |= {each.path: each for each in commit.added}
        dropped = _advanced(self.dropped, gone) if commit.kind == "drop" else self.dropped
        begin = {**self.begin, **from_plain(commit.begin)}
        return State(commit.number, files, begin, _advanced(self.covered, commit.added), dropped)

    def start_of(self, queue: MessageQueue) -> int:
        """The first offset that the archive of a queue must have."""
        return max(self.begin.get(queue, 0), self.dropped.get(queue, 0))

    def next_of(self, queue: MessageQueue) -> int:
        """The offset that the archive of a queue needs next."""
        return max(self.covered.get(queue, 0), self.begin.get(queue, 0))

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files.values())

    @property
    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in (*self.begin, *self.covered)})

    def files_of(self, topics: Iterable[str] | None = None) -> list[DataFile]:
        """All files, or those of some topics, sorted by path."""
        wanted = None if topics is None else set(topics)
        return [
            each for _, each in sorted(self.files.items()) if wanted is None or each.topic in wanted
        ]

    def encode(self) -> bytes:
        plain = (to_plain(self.begin), to_plain(self.covered), to_plain(self.dropped))
        return msgspec.json.encode(StoredState(self.number, tuple(self.files_of()), *plain))

    @classmethod
    def decode(cls, data: bytes) -> "State":
        read = msgspec.json.decode(data, type=StoredState)
        offsets = (from_plain(each) for each in (read.begin, read.covered, read.dropped))
        return cls(read.number, {each.path: each for each in read.files}, *offsets)


def _advanced(ends: Offsets, files: Iterable[DataFile]) -> dict[MessageQueue, int]:
    found = dict(ends)
    for file in files:
        for span in file.spans:
            queue = file.queue_of(span)
            found[queue] = max(found.get(queue, 0), span.last + 1)
    return found
