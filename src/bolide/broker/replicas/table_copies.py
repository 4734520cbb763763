"""The tables of a master as its slaves copy them: in lines, and in parts of limited size.

A copy is text. Its first line is a `ReplicaState`, which names the tables that have changed with
the number of their lines; the lines of the tables follow. The first line of a table has its version
and its other single values, each further line some of its entries, in the JSON of the table's type.
So no step of encoding or decoding holds the interpreter for long, and all run on threads.

An answer carries one part of a copy, some whole lines. The master keeps a copy of several parts
until its slave has fetched the last one: tables that are being changed all the time would never be
whole if each part were read anew.
"""

import asyncio
import base64
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import count
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import msgspec

from bolide.broker.background import ADMIN, breathe, on_thread
from bolide.broker.delay import DelayScheduler
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.tables import Tables
from bolide.protocol import fastjson
from bolide.protocol.bodies.replication import CopiedTable, ReplicaState
from bolide.protocol.errors import ProtocolError
from bolide.protocol.headers.replication import ReplicaStateReply
from bolide.protocol.refusals import ServerError, SystemBusy
from bolide.store.message_store import MessageStore
from bolide.store.tables import Table
from bolide.store.timers import TimerCheckpoint

LOCAL_TABLES = ("consumer_filters", "timer_metrics")
"""Fields of `Tables` that each broker derives itself, from heartbeats and timers."""

MAX_PARTS = 512
"""Parts of a copy that a slave takes: half a gigabyte, some million topics or offsets of groups."""

_PART = 1024 * 1024
"""Bytes after which a part ends with the line; the event loop copies them in a moment."""
_LINE = 64 * 1024
"""Bytes that a line should not exceed, unless a single entry does."""
_MAX_ENTRIES = 64
_SHORT_LINE = 2048
_MAX_KEPT = 4
"""Copies that a master keeps at a time, one for a slave."""
_KEPT_TIME = 30.0
"""Seconds after which a copy is dropped whose slave fetches no further part."""


def copied_tables(tables: Tables) -> dict[str, Table[Any]]:
    """The tables that slaves copy, by the name of their field."""
    return {
        each.name: getattr(tables, each.name)
        for each in fields(tables)
        if each.name not in LOCAL_TABLES
    }


class Slave(Protocol):
    """The connection of a slave."""

    @property
    def is_closed(self) -> bool: ...


class CopyPart(NamedTuple):
    """One answer to a slave."""

    header: ReplicaStateReply
    body: bytes


class _Encoded(NamedTuple):
    """The CRC that a table had after so many changes."""

    value: object
    changes: int
    crc: int


@dataclass(frozen=True, slots=True)
class _KeptCopy:
    parts: list[bytes]
    slave: Slave
    expiry: asyncio.TimerHandle


class StateSource:
    """The tables of a master, for BOLIDE_GET_REPLICA_STATE; belongs to one event loop."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        topics: TopicTable,
        delay: DelayScheduler,
        timer_checkpoint: Callable[[], TimerCheckpoint | None],
    ) -> None:
        self._store = store
        self._tables = copied_tables(tables)
        self._topics = topics
        self._delay = delay
        self._timer_checkpoint = timer_checkpoint
        self._encoded: dict[str, _Encoded] = {}
        self._copy_ids = count(time.time_ns())  # not those of the broker's last run
        self._kept: dict[int, _KeptCopy] = {}

    async def changes(self, known: str, slave: Slave) -> CopyPart:
        """The first part of a copy of the tables whose CRC the slave does not have.

        Raises:
            SystemBusy: the copy has several parts, and too many slaves are fetching such copies.
        """
        state = ReplicaState()
        if checkpoint := self._timer_checkpoint():
            state.timer_checkpoint = base64.b64encode(checkpoint.encode()).decode()
        parts = await on_thread(ADMIN, self._encode, known, state)
        if len(parts) == 1:
            return CopyPart(ReplicaStateReply(), parts[0])
        return self._keep(parts, slave)

    def part(self, copy_id: int, number: int) -> CopyPart:
        """A further part of a copy.

        Raises:
            ServerError: the master does not have the copy any more.
        """
        copy = self._drop(copy_id)
        if copy is None or not 0 < number < len(copy.parts):
            raise ServerError(
                f"copy {copy_id} has no part {number}, or was dropped {_KEPT_TIME:g} s after the"
                " last request for one: ask for the tables again"
            )
        if number + 1 < len(copy.parts):
            self._put(copy_id, copy.parts, copy.slave)
        return CopyPart(ReplicaStateReply(copy_id, len(copy.parts)), copy.parts[number])

    # ---- copies of several parts

    def _keep(self, parts: list[bytes], slave: Slave) -> CopyPart:
        for copy_id, copy in list(self._kept.items()):
            if copy.slave is slave or copy.slave.is_closed:  # it begins anew, or never comes back
                self._drop(copy_id)
        if len(self._kept) >= _MAX_KEPT:
            raise SystemBusy(f"{_MAX_KEPT} other slaves are copying large tables: ask again later")
        copy_id = next(self._copy_ids)
        self._put(copy_id, parts, slave)
        return CopyPart(ReplicaStateReply(copy_id, len(parts)), parts[0])

    def _put(self, copy_id: int, parts: list[bytes], slave: Slave) -> None:
        expiry = asyncio.get_running_loop().call_later(_KEPT_TIME, self._kept.pop, copy_id, None)
        self._kept[copy_id] = _KeptCopy(parts, slave, expiry)

    def _drop(self, copy_id: int) -> _KeptCopy | None:
        copy = self._kept.pop(copy_id, None)
        if copy is not None:
            copy.expiry.cancel()
        return copy

    # ---- encoding, on a thread

    def _encode(self, known: str, state: ReplicaState) -> list[bytes]:
        """Return the parts of a copy, and complete its `ReplicaState`."""
        crcs = dict(each.split("=", 1) for each in known.split(";") if "=" in each)
        # Only what is written: slaves would remove the queues of a topic whose deletion fails.
        current = {"topics": self._topics.written, "delay_offsets": self._delay.table()}
        copied: list[bytes] = []
        for name, table in self._tables.items():
            file = table.path.name
            lines, crc = self._lines_of(table, current.get(name, table.value), crcs.get(file))
            if lines:
                state.tables.append(CopiedTable(name=file, lines=len(lines), crc=crc))
                copied += lines
        state.log_end = self._store.log.end  # last: the tables speak of nothing behind it
        return list(_cut([fastjson.encode(state), *copied]))

    def _lines_of(
        self, table: Table[Any], value: msgspec.Struct, known: str | None
    ) -> tuple[list[bytes], int]:
        """The lines of a table and their CRC; none if the slave knows the table by its CRC."""
        name, changes = table.path.name, table.changes  # first: it may change meanwhile
        last = self._encoded.get(name)
        is_current = last is not None and last.value is value and last.changes == changes
        if last is not None and is_current and known == str(last.crc):
            return [], last.crc
        lines, crc = [], 0
        for line in encode_table(value):
            lines.append(line)
            crc = crc32(line, crc)
            if len(line) > _SHORT_LINE:
                breathe()
        self._encoded[name] = _Encoded(value, changes, crc)
        return ([] if known == str(crc) else lines), crc


class CopyReader:
    """Reads a copy part by part, on one thread at a time.

    Args:
        tables: the tables by their files; others are skipped.
    """

    def __init__(self, tables: Mapping[str, Table[Any]]) -> None:
        self._tables = tables
        self._state: ReplicaState | None = None
        self._expected: deque[CopiedTable] = deque()
        self._lines, self._crc = 0, 0
        self.values: dict[str, Any] = {}
        """The tables that have been read, by their files; to be used after `finish`."""

    def add(self, part: bytes) -> None:
        """Read the next part.

        Raises:
            ProtocolError: a table is damaged, or the part has more than was announced.
            BadJson: a line cannot be read.
        """
        for line in part.split(b"\n"):
            if self._state is None:
                self._state = fastjson.decode(line, ReplicaState)
                self._expected.extend(self._state.tables)
            else:
                self._add_line(line)
                if len(line) > _SHORT_LINE:
                    breathe()

    def finish(self) -> ReplicaState:
        """Return what the copy says of its tables, which are whole.

        Raises:
            ProtocolError: parts are missing.
        """
        if self._state is None or self._expected:
            raise ProtocolError("the master's copy of its tables ends before its last line")
        return self._state

    def _add_line(self, line: bytes) -> None:
        if not self._expected:
            raise ProtocolError("the master's copy of its tables has more lines than it says")
        told = self._expected[0]
        self._lines += 1
        self._crc = crc32(line, self._crc)
        if (table := self._tables.get(told.name)) is not None:
            self._merge(told.name, table.decode(line))
        if self._lines == told.lines:
            if self._crc != told.crc:
                raise ProtocolError(f"the master's copy of {told.name} is damaged")
            self._expected.popleft()
            self._lines, self._crc = 0, 0

    def _merge(self, name: str, value: msgspec.Struct) -> None:
        """Add the entries of a line; the first line is the table without entries."""
        if self._lines == 1:
            self.values[name] = value
            return
        known = self.values[name]
        for field, entries in _collections(value):
            if isinstance(entries, dict):
                getattr(known, field).update(entries)
            else:
                getattr(known, field).extend(entries)


def encode_table(value: msgspec.Struct) -> Iterator[bytes]:
    """Encode a table in lines, while others may change it."""
    empty = {field: type(entries)() for field, entries in _collections(value)}
    yield msgspec.json.encode(msgspec.structs.replace(value, **empty))
    wire_names = dict(zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True))
    for field, entries in _collections(value):
        yield from _encode_entries(wire_names[field], entries)


def _encode_entries(name: str, entries: dict[Any, Any] | list[Any]) -> Iterator[bytes]:
    """Encode the entries that a map or list has now; those removed meanwhile may be missing."""
    left, start, size = list(entries), 0, _MAX_ENTRIES
    while some := left[start : start + size]:
        start += len(some)
        found = (
            {key: value for key in some if (value := entries.get(key)) is not None}
            if isinstance(entries, dict)
            else some
        )
        line = msgspec.json.encode({name: found})
        yield line
        size = max(1, min(_MAX_ENTRIES, len(some) * _LINE // len(line)))


def _collections(value: msgspec.Struct) -> Iterator[tuple[str, dict[Any, Any] | list[Any]]]:
    """The maps and lists of a table, by their fields."""
    for field in value.__struct_fields__:
        if isinstance(found := getattr(value, field), dict | list):
            yield field, found


def _cut(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to parts."""
    part, size = [], 0
    for line in lines:
        part.append(line)
        size += len(line) + 1
        if size >= _PART:
            yield b"\n".join(part)
            part, size = [], 0
    if part:
        yield b"\n".join(part)
