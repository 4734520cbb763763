"""An archive table: reads, writes and repairs its manifest.

A change takes these steps; a crash may happen after any of them:

1. Spark writes the new files below `staging`, which readers ignore.
2. The change is written to `pending`: from now on it will be completed.
3. The files are moved to their final paths.
4. The commit is written: readers of the manifest see the change.
5. Files that the change replaces are deleted, then `staging` and `pending`.

The next writer completes pending changes from step 3 on, and deletes files that are only staged.
Every step is idempotent.
"""

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from bolide.arrow.offsets import Offsets, to_plain
from bolide.arrow.schema import parse_ddl, to_ddl
from bolide.spark.archive.errors import LeaseLost, NoArchive, OtherSettings
from bolide.spark.archive.files import Files, files_at
from bolide.spark.archive.lease import Lease
from bolide.spark.archive.manifest import Commit, DataFile, Kind, PendingCommit, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_EVERY = 50
"""Commits between two states; bounds the number of commits that a reader reads."""
KEPT_COMMITS = 2 * STATE_EVERY
"""Commits kept although a later state includes them: readers may still be reading them."""

_COMMITS = "_bolide/commits"
_STATES = "_bolide/states"
_PENDING = "_bolide/pending"
_STAGING = "_bolide/staging"
_TABLE = "_bolide/table.json"
CHECKPOINT = "_bolide/checkpoint"


class Settings(msgspec.Struct, frozen=True):
    """The columns of a table; fixed when it is created."""

    include_properties: bool = True
    value_schema: str | None = None
    format: int = 1

    @property
    def canonical(self) -> "Settings":
        """The same columns with a normalised schema text."""
        if self.value_schema is None:
            return self
        schema = to_ddl(parse_ddl(self.value_schema))
        return msgspec.structs.replace(self, value_schema=schema)


class ArchiveTable:
    """Reads the manifest; safe at any time, in any process."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @classmethod
    def at(cls, spark: "SparkSession", path: str) -> "ArchiveTable":
        return cls(files_at(spark, path))

    @property
    def url(self) -> str:
        return self.files.url

    def url_of(self, path: str) -> str:
        return f"{self.files.url}/{path}"

    @property
    def exists(self) -> bool:
        return self.files.exists(_TABLE)

    def settings(self) -> Settings:
        """Raises NoArchive."""
        try:
            return msgspec.json.decode(self.files.read(_TABLE), type=Settings)
        except FileNotFoundError:
            raise NoArchive(self.url) from None

    def state(self) -> State:
        """The current contents of the table. Raises NoArchive."""
        while True:
            # A commit deleted meanwhile is included in a newer state: retry.
            with suppress(FileNotFoundError):
                return self._state()

    def _state(self) -> State:
        if not self.exists:
            raise NoArchive(self.url)
        commits, states = _numbers(self.files, _COMMITS), _numbers(self.files, _STATES)
        state = State()
        if states:
            state = State.decode(self.files.read(_path(_STATES, states[-1])))
        for number in commits:
            if number > state.number:
                state = state.after(self._commit(number))
        return state

    def _commit(self, number: int) -> Commit:
        return msgspec.json.decode(self.files.read(_path(_COMMITS, number)), type=Commit)

    @contextmanager
    def writing(self, settings: Settings | None = None) -> Iterator["TableWriter"]:
        """Open the table for writing and repair it; create it if there is none.

        Args:
            settings: columns of the table; None to keep those of the existing table.

        Raises:
            TableBusy: another run writes the table.
            NoArchive: there is no table, and no settings to create one.
            OtherSettings: the table has other columns.
        """
        run = uuid.uuid4().hex[:12]
        if settings is None:
            settings = self.settings()
        with Lease(self.files, run) as lease:
            self._create_or_check(settings)
            writer = TableWriter(self.files, lease, run)
            writer.repair()
            try:
                yield writer
            finally:
                writer.close()

    def _create_or_check(self, settings: Settings) -> None:
        if not self.exists:
            self.files.write_new(_TABLE, msgspec.json.encode(settings))
            return
        existing = self.settings()
        for name in ("include_properties", "value_schema"):
            if getattr(existing.canonical, name) != getattr(settings.canonical, name):
                raise OtherSettings(
                    self.url, name, getattr(existing, name), getattr(settings, name)
                )


class TableWriter(ArchiveTable):
    """Changes the table. Caches the state, as the lease excludes other writers."""

    def __init__(self, files: Files, lease: Lease, run: str) -> None:
        super().__init__(files)
        self._lease = lease
        self._run = run
        self._current = State()
        self._staged = 0
        self._changing = threading.Lock()  # guards a change against the end of the lease
        self._closed = False

    def state(self) -> State:
        return self._current

    def close(self) -> None:
        """Wait for a change in another thread; later changes are refused."""
        with self._changing:
            self._closed = True

    def repair(self) -> None:
        """Complete pending changes, delete files that are only staged, and read the state."""
        for number in _numbers(self.files, _PENDING):
            data = self.files.read(_path(_PENDING, number))
            self._complete(msgspec.json.decode(data, type=PendingCommit))
        self.files.delete(_STAGING)
        self._current = super().state()

    def begin(self, offsets: Offsets) -> None:
        """Record the start offsets of queues that are new to the archive."""
        new = {
            queue: offset for queue, offset in offsets.items() if queue not in self._current.begin
        }
        if new:
            self._apply(PendingCommit(self._next("begin", begin=new)))

    def new_staging(self) -> str:
        """A new directory for the files of one change."""
        self._staged += 1
        return f"{_STAGING}/{self._run}-{self._staged}"

    def commit(self, kind: Kind, staged: Sequence[DataFile], removed: Iterable[str] = ()) -> None:
        """Add staged files and remove others atomically.

        Raises:
            LeaseLost: another run has taken the table over; nothing was changed.
        """
        name = f"{self._current.number + 1:012d}-{self._run}"
        added = [
            msgspec.structs.replace(each, path=_final_path(each, f"{name}-{index:04d}"))
            for index, each in enumerate(staged)
        ]
        moves = [(old.path, new.path) for old, new in zip(staged, added, strict=True)]
        self._apply(PendingCommit(self._next(kind, added, removed), tuple(moves)))

    def _next(
        self,
        kind: Kind,
        added: Iterable[DataFile] = (),
        removed: Iterable[str] = (),
        begin: Offsets | None = None,
    ) -> Commit:
        return Commit(
            number=self._current.number + 1,
            kind=kind,
            run=self._run,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            added=tuple(added),
            removed=tuple(removed),
            begin=to_plain(begin or {}),
        )

    def _apply(self, pending: PendingCommit) -> None:
        with self._changing:
            self._apply_locked(pending)

    def _apply_locked(self, pending: PendingCommit) -> None:
        if self._closed:
            raise LeaseLost(self.url)
        self._lease.confirm()
        number = pending.commit.number
        self.files.write_new(_path(_PENDING, number), msgspec.json.encode(pending))
        if not self._complete(pending):
            raise LeaseLost(self.url)
        self._current = self._current.after(pending.commit)
        if number % STATE_EVERY == 0:
            self._write_state()

    def _complete(self, pending: PendingCommit) -> bool:
        """Run steps 3 to 5, skipping those already done; False if another run was first."""
        commit = pending.commit
        if self._find_run(commit.number) != commit.run:  # else its files may be replaced
            if not self._can_complete(pending):
                return self._undo(pending)
            for source, target in pending.moves:
                if not self.files.exists(target):
                    self.files.move(source, target)
            if not self._write_commit(commit):
                return self._undo(pending)
        for path in commit.removed:
            self.files.delete(path)
        self._clean_up(pending)
        return True

    def _can_complete(self, pending: PendingCommit) -> bool:
        """False after a takeover: the staged files are gone, or the commit number is taken."""
        for source, target in pending.moves:
            if not self.files.exists(target) and not self.files.exists(source):
                return False
        return self._find_run(pending.commit.number) in (None, pending.commit.run)

    def _write_commit(self, commit: Commit) -> bool:
        try:
            self.files.write_new(_path(_COMMITS, commit.number), msgspec.json.encode(commit))
        except FileExistsError:
            return self._find_run(commit.number) == commit.run
        return True

    def _find_run(self, number: int) -> str | None:
        try:
            return self._commit(number).run
        except FileNotFoundError:
            return None

    def _undo(self, pending: PendingCommit) -> bool:
        for _, target in pending.moves:  # the run id is part of the name, so these files are ours
            self.files.delete(target)
        self._clean_up(pending)
        return False

    def _clean_up(self, pending: PendingCommit) -> None:
        for directory in {source.split("/topic=")[0] for source, _ in pending.moves}:
            self.files.delete(directory)
        self.files.delete(_path(_PENDING, pending.commit.number))

    def _write_state(self) -> None:
        with suppress(FileExistsError):
            self.files.write_new(_path(_STATES, self._current.number), self._current.encode())
        for directory in (_COMMITS, _STATES):
            for number in _numbers(self.files, directory):
                if number <= self._current.number - KEPT_COMMITS:
                    self.files.delete(_path(directory, number))


def _final_path(file: DataFile, name: str) -> str:
    """The final path of a staged file: the same directories, below the table."""
    return "/".join([*file.path.split("/")[-3:-1], f"{name}.parquet"])


def _path(directory: str, number: int) -> str:
    return f"{directory}/{number:012d}.json"


def _numbers(files: Files, directory: str) -> list[int]:
    names = (name.removesuffix(".json") for name in files.names(directory))
    return sorted(int(name) for name in names if name.isdecimal())
