"""The console's own audit: what its users did, in a file of SQLite.

`AuditStore.write` is what the door writes to; `page` is what the operation `audit.list_changes`
reads. One thread owns the connection, so that no commit blocks the event loop; several processes
may have the file open. The oldest entries are dropped as soon as there are too many of them, by
number or by bytes.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry, Caller, plain
from bolide.operations.errors import OperationError
from bolide.operations.views import reason_of
from bolide.private_files import ensure_secret_file, make_directory

T = TypeVar("T")

MAX_ENTRIES = 100_000
MAX_BYTES = 256 * 1024 * 1024
MAX_VALUE_BYTES = 64 * 1024
"""Longer arguments and states are cut: a topic's settings are a few hundred bytes."""

_BUSY_TIMEOUT = 5.0
_SCHEMA = """
create table if not exists entries (
    id integer primary key autoincrement,
    time_ms integer not null,
    user text not null,
    role integer not null,
    source text not null,
    operation text not null,
    target text not null,
    arguments text not null,
    before text not null,
    after text not null,
    error text not null,
    bytes integer not null
);
create index if not exists entries_by_time on entries (time_ms, id);
create table if not exists totals (entries integer not null, bytes integer not null);
insert into totals select 0, 0 where not exists (select 1 from totals);
create trigger if not exists entry_added after insert on entries begin
    update totals set entries = entries + 1, bytes = bytes + new.bytes;
end;
create trigger if not exists entry_dropped after delete on entries begin
    update totals set entries = entries - 1, bytes = bytes - old.bytes;
end;
"""
_INSERT = """
insert into entries
    (time_ms, user, role, source, operation, target, arguments, before, after, error, bytes)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COLUMNS = "id, time_ms, user, role, source, operation, target, arguments, before, after, error"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which entries; empty texts and None match all."""

    since_ms: int | None = None
    until_ms: int | None = None
    """Exclusive."""
    user: str = ""
    operation: str = ""
    """A part of the operation's name, in any case."""
    target: str = ""
    """A part of the target, in any case."""
    search: str = ""
    """A part of any text of the entry, in any case."""
    failed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """An entry as it was written; arguments and states as plain JSON values."""

    id: int
    time_ms: int
    entry: AuditEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """Newest entries first."""

    entries: list[StoredEntry] = field(default_factory=list)
    total: int = 0
    """Number of all entries that match."""


class AuditSource(Protocol):
    """Reads an audit log. Raises AuditUnavailable."""

    async def page(self, query: AuditQuery, *, skip: int, limit: int) -> StoredPage: ...


class AuditUnavailable(OperationError):
    """The file of the audit log cannot be written or read; the text names it."""


class AuditStore:
    """An audit log in a file; `open` it and `close` it."""

    def __init__(
        self,
        path: Path,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._now = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-store")
        self._connection: sqlite3.Connection | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Create the file, for its owner only, unless it exists.

        Raises:
            AuditUnavailable: it cannot be created, or is no such file.
        """
        await self._in_thread(self._open, "opened")

    async def close(self) -> None:
        if self._connection is not None:
            await self._in_thread(self._connection.close, "closed")
            self._connection = None
        self._thread.shutdown(wait=False)

    async def write(self, entry: AuditEntry) -> None:
        """Return when the entry is on the disk.

        Raises:
            AuditUnavailable: it is not, because the disk is full for example. The change that it
                tells of may have been made.
        """
        done = f"written ({entry.operation}, {entry.target}: look whether it was done)"
        await self._in_thread(lambda: self._write(entry), done)

    async def page(self, query: AuditQuery, *, skip: int, limit: int) -> StoredPage:
        return await self._in_thread(lambda: self._page(query, skip, limit), "read")

    async def _in_thread(self, work: Callable[[], T], done: str) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError) as error:
            raise AuditUnavailable(
                f"the audit log {self._path} cannot be {done}: {reason_of(error)}"
            ) from error

    # In the thread

    def _open(self) -> None:
        make_directory(self._path.parent)
        ensure_secret_file(self._path)
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
            connection.executescript(f"begin immediate; {_SCHEMA} commit;")
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _require(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("the audit store is not open")
        return self._connection

    def _write(self, entry: AuditEntry) -> None:
        connection = self._require()
        connection.execute("begin immediate")
        try:
            connection.execute(_INSERT, _row(entry, int(self._now() * 1000)))
            self._drop_oldest(connection)
        except BaseException:
            connection.execute("rollback")
            raise
        connection.execute("commit")

    def _drop_oldest(self, connection: sqlite3.Connection) -> None:
        while True:
            entries, size = connection.execute("select entries, bytes from totals").fetchone()
            if entries <= 1 or (entries <= self._max_entries and size <= self._max_bytes):
                return
            oldest = "delete from entries where id = (select min(id) from entries)"
            connection.execute(oldest)

    def _page(self, query: AuditQuery, skip: int, limit: int) -> StoredPage:
        connection = self._require()
        where, values = _condition(query)
        (total,) = connection.execute(f"select count(*) from entries {where}", values).fetchone()  # noqa: S608  own texts; values are bound
        rows = connection.execute(
            f"select {_COLUMNS} from entries {where}"  # noqa: S608  own texts; values are bound
            " order by time_ms desc, id desc limit ? offset ?",
            [*values, limit, skip],
        )
        return StoredPage(entries=[_stored(row) for row in rows], total=total)


def _row(entry: AuditEntry, time_ms: int) -> tuple[object, ...]:
    caller = entry.caller
    texts = (
        _storable(entry.operation),
        _storable(entry.target),
        _json(dict(entry.arguments)),
        _json(entry.before),
        _json(entry.after),
        _storable(entry.error),
    )
    size = sum(len(text.encode()) for text in texts)
    who = (_storable(caller.name), int(caller.role), _storable(caller.source))
    return (time_ms, *who, *texts, size)


def _json(value: object) -> str:
    text = _storable(json.dumps(value, default=plain, ensure_ascii=False))
    size = len(text.encode())
    return text if size <= MAX_VALUE_BYTES else json.dumps({"left out": f"{size} bytes"})


def _storable(text: str) -> str:
    """A lone surrogate, which JSON may bring, has no UTF-8."""
    return text.encode(errors="replace").decode()


def _stored(row: tuple[Any, ...]) -> StoredEntry:
    number, time_ms, user, role, source, operation, target, arguments, before, after, error = row
    return StoredEntry(
        id=number,
        time_ms=time_ms,
        entry=AuditEntry(
            caller=Caller(name=user, role=Role(role), source=source),
            operation=operation,
            target=target,
            arguments=json.loads(arguments),
            before=json.loads(before),
            after=json.loads(after),
            error=error,
        ),
    )


def _condition(query: AuditQuery) -> tuple[str, list[object]]:
    """The WHERE clause of a query, and the values of its parameters."""
    found: list[tuple[str, list[object]]] = []
    if query.since_ms is not None:
        found.append(("time_ms >= ?", [query.since_ms]))
    if query.until_ms is not None:
        found.append(("time_ms < ?", [query.until_ms]))
    if query.user:
        found.append(("user = ?", [query.user]))
    if query.failed is not None:
        found.append(("(error != '') = ?", [query.failed]))
    for column, part in (("operation", query.operation), ("target", query.target)):
        if part:
            found.append((f"instr(lower({column}), lower(?))", [part]))
    if query.search:
        columns = ("user", "operation", "target", "arguments", "before", "after", "error")
        anywhere = " or ".join(f"instr(lower({column}), lower(?))" for column in columns)
        found.append((f"({anywhere})", [query.search] * len(columns)))
    if not found:
        return "", []
    return "where " + " and ".join(text for text, _ in found), [
        value for _, values in found for value in values
    ]
