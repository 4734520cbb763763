"""`HistoryStore`: samples in an SQLite file of bounded size. It blocks: call it on a thread.

A family of series is sampled together, and one row of the table `samples` has the values of all of
its series in one step of time: an array of 32-bit floats, compressed, NaN where there is no value.
The table `slots` tells which place of the array belongs to which series. So a step costs one row
however many series there are, and a cluster of idle topics costs next to nothing.

A family has tiers, from fine steps that are kept for a short time to coarse ones that are kept for
a week. The rows of a coarser tier are means of finer rows, made when their time is over; a read
adds the finer rows that no coarse row covers yet. After a crash the file lacks at most the steps
since the last write.
"""

import math
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bolide.private_files import ensure_secret_file, make_directory

VERSION = 1
"""Of the tables; a file with another one is begun anew."""
MAX_SIZE = 256 * 2**20
"""Bytes of the file after which the oldest samples of each tier go before their time."""
MAX_SLOTS = 20_000
"""Series per family."""
NAN = math.nan


class Key(NamedTuple):
    """A series: what it measures, and of which object."""

    measure: str
    name: str


@dataclass(frozen=True, slots=True)
class Tier:
    """Steps of this many seconds, kept for `keep` seconds."""

    step: int
    keep: int


@dataclass(frozen=True, slots=True)
class Family:
    """Series that are sampled together, and their tiers from fine to coarse."""

    name: str
    tiers: tuple[Tier, ...]

    @property
    def finest(self) -> Tier:
        return self.tiers[0]

    def tier_for(self, seconds: float) -> Tier:
        """The finest tier that goes back so far."""
        return next((tier for tier in self.tiers if tier.keep >= seconds), self.tiers[-1])


class HistoryStore:
    """The file, open until `close`."""

    def __init__(self, path: Path, families: Sequence[Family], *, max_size: int = MAX_SIZE) -> None:
        """Open the file or begin one; a damaged one is put aside as `*.damaged`.

        Raises:
            OSError: the directory cannot be used.
            sqlite3.Error: the file cannot be used.
        """
        self._families = {family.name: family for family in families}
        self._max_size = max_size
        make_directory(path.parent)
        self._path = path
        try:
            self._open()
        except sqlite3.DatabaseError as exc:
            if isinstance(exc, sqlite3.OperationalError):  # locked, no space, not readable
                raise
            self._put_aside()
            self._open()
        self._slots = self._read_slots()
        self._seen: dict[str, set[Key]] = {name: set() for name in self._families}

    def close(self) -> None:
        self._db.close()

    # ---- writing

    def write(self, family: Family, time: int, values: Mapping[Key, float]) -> None:
        """Keep the values of the step that begins at `time`, and what follows from it."""
        with self._transaction():
            slots = self._slots_of(family, values, time)
            self._insert(family, family.finest.step, time, _packed(slots, values))
            for fine, coarse in zip(family.tiers, family.tiers[1:], strict=False):
                self._roll_up(family, fine, coarse, time)
        self._seen[family.name].update(values)

    def keep_document(self, name: str, document: bytes, time: int) -> None:
        """Keep one document of that name, in place of the one before."""
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)",
                (name, time, zlib.compress(document, 1)),
            )

    def find_document(self, name: str) -> tuple[int, bytes] | None:
        """When it was kept, and the document."""
        row = self._db.execute(
            "SELECT time, data FROM documents WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else (row[0], zlib.decompress(row[1]))

    def prune(self, now: float) -> None:
        """Delete what is past its time, and more if the file is too large."""
        with self._transaction():
            for family in self._families.values():
                self._touch(family, int(now))
                for tier in family.tiers:
                    self._db.execute(
                        "DELETE FROM samples WHERE family = ? AND step = ? AND time < ?",
                        (family.name, tier.step, int(now) - tier.keep - tier.step),
                    )
                longest = max(tier.keep for tier in family.tiers)
                self._forget_before(family, int(now) - 2 * longest)
        while self._size() > self._max_size and self._delete_oldest_tenth():
            pass
        self._db.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page

    # ---- reading

    def read(
        self,
        family: Family,
        keys: Sequence[Key],
        *,
        begin: int,
        end: int,
        step: int,
        tier: Tier,
    ) -> list[list[float | None]]:
        """The means of each series over each step from `begin` on, None where nothing was kept."""
        steps = max(-(-(end - begin) // step), 0)
        places = [self._slots[family.name].get(key) for key in keys]
        sums = [[0.0] * steps for _ in keys]
        weights = [[0.0] * steps for _ in keys]
        for time, weight, row in self._rows(family, tier, begin, end):
            at = (time - begin) // step
            for index, place in enumerate(places):
                if place is None or place >= len(row):
                    continue
                value = row[place]
                if not math.isnan(value):
                    sums[index][at] += value * weight
                    weights[index][at] += weight
        return [
            [total / weight if weight else None for total, weight in zip(*pair, strict=True)]
            for pair in zip(sums, weights, strict=True)
        ]

    def _rows(
        self, family: Family, tier: Tier, begin: int, end: int
    ) -> Iterator[tuple[int, int, Sequence[float]]]:
        """Rows of the tier, then of the finer ones what it does not cover yet."""
        covered = begin
        for each in reversed(family.tiers[: family.tiers.index(tier) + 1]):
            found = self._db.execute(
                "SELECT time, data FROM samples"
                " WHERE family = ? AND step = ? AND time >= ? AND time < ? ORDER BY time",
                (family.name, each.step, covered, end),
            )
            for time, data in found:
                yield time, each.step, _unpacked(data)
                covered = time + each.step

    # ---- inside

    def _open(self) -> None:
        ensure_secret_file(self._path)
        db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=5.0)
        try:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            _check_version(db)
            db.executescript(
                f"""
                CREATE TABLE IF NOT EXISTS slots (
                    family TEXT, slot INTEGER, measure TEXT, name TEXT, seen INTEGER,
                    PRIMARY KEY (family, slot), UNIQUE (family, measure, name)
                );
                CREATE TABLE IF NOT EXISTS samples (
                    family TEXT, step INTEGER, time INTEGER, data BLOB,
                    PRIMARY KEY (family, step, time)
                );
                CREATE TABLE IF NOT EXISTS documents (
                    name TEXT PRIMARY KEY, time INTEGER, data BLOB
                );
                PRAGMA user_version = {VERSION};
                """
            )
        except BaseException:
            db.close()
            raise
        self._db = db

    def _put_aside(self) -> None:
        self._path.replace(self._path.with_name(self._path.name + ".damaged"))
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).unlink()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            self._slots = self._read_slots()
            raise
        self._db.execute("COMMIT")

    def _read_slots(self) -> dict[str, dict[Key, int]]:
        slots: dict[str, dict[Key, int]] = {name: {} for name in self._families}
        for family, slot, measure, name in self._db.execute(
            "SELECT family, slot, measure, name FROM slots"
        ):
            if family in slots:
                slots[family][Key(measure, name)] = slot
        return slots

    def _slots_of(self, family: Family, keys: Iterable[Key], now: int) -> Mapping[Key, int]:
        slots = self._slots[family.name]
        if added := [key for key in keys if key not in slots]:
            used = set(slots.values())
            free = (slot for slot in range(MAX_SLOTS) if slot not in used)
            for key, slot in zip(added, free, strict=False):  # the rest is not kept
                slots[key] = slot
                self._db.execute(
                    "INSERT INTO slots VALUES (?, ?, ?, ?, ?)",
                    (family.name, slot, key.measure, key.name, now),
                )
        return slots

    def _insert(self, family: Family, step: int, time: int, data: bytes) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)", (family.name, step, time, data)
        )

    def _roll_up(self, family: Family, fine: Tier, coarse: Tier, now: int) -> None:
        """Make the rows of the coarser tier whose time is over."""
        (last,) = self._db.execute(
            "SELECT max(time) FROM samples WHERE family = ? AND step = ?",
            (family.name, coarse.step),
        ).fetchone()
        begin = now - fine.keep if last is None else last + coarse.step
        end = now - now % coarse.step
        if begin >= end:
            return
        groups: dict[int, list[array[float]]] = {}
        for time, data in self._db.execute(
            "SELECT time, data FROM samples WHERE family = ? AND step = ? AND time >= ?"
            " AND time < ?",
            (family.name, fine.step, begin - begin % coarse.step, end),
        ):
            groups.setdefault(time - time % coarse.step, []).append(_unpacked(data))
        for time, rows in groups.items():
            self._insert(family, coarse.step, time, _compressed(_means(rows)))

    def _touch(self, family: Family, now: int) -> None:
        seen = self._seen[family.name]
        self._db.executemany(
            "UPDATE slots SET seen = ? WHERE family = ? AND measure = ? AND name = ?",
            [(now, family.name, key.measure, key.name) for key in seen],
        )
        seen.clear()

    def _forget_before(self, family: Family, time: int) -> None:
        """Free the slots of series of which no sample is left."""
        self._db.execute("DELETE FROM slots WHERE family = ? AND seen < ?", (family.name, time))
        self._slots = self._read_slots()

    def _size(self) -> int:
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (size,) = self._db.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * size)

    def _delete_oldest_tenth(self) -> bool:
        deleted = 0
        with self._transaction():
            for family in self._families.values():
                for tier in family.tiers:
                    deleted += self._db.execute(
                        "DELETE FROM samples WHERE rowid IN (SELECT rowid FROM samples"
                        " WHERE family = :family AND step = :step ORDER BY time LIMIT"
                        " (SELECT count(*) / 10 + 1 FROM samples"
                        "  WHERE family = :family AND step = :step))",
                        {"family": family.name, "step": tier.step},
                    ).rowcount
        return deleted > 0


def _check_version(db: sqlite3.Connection) -> None:
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found not in {0, VERSION}:
        raise sqlite3.DatabaseError(f"version {found}")


def _packed(slots: Mapping[Key, int], values: Mapping[Key, float]) -> bytes:
    placed = [(slots[key], value) for key, value in values.items() if key in slots]
    row = array("f", [NAN]) * (max((slot for slot, _ in placed), default=-1) + 1)
    for slot, value in placed:
        row[slot] = value
    return _compressed(row)


def _compressed(row: "array[float]") -> bytes:
    return zlib.compress(row.tobytes(), 1)


def _unpacked(data: bytes) -> "array[float]":
    row = array("f")
    row.frombytes(zlib.decompress(data))
    return row


def _means(rows: "Sequence[array[float]]") -> "array[float]":
    """The mean of each place over the rows that have a value there."""
    means = array("f", [NAN]) * max(map(len, rows))
    for place in range(len(means)):
        found = [row[place] for row in rows if place < len(row) and not math.isnan(row[place])]
        if found:
            means[place] = sum(found) / len(found)
    return means
