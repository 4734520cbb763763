"""Walks over the records of a log file, for tools that do not open the store.

A walk reads the file; it maps, locks and changes nothing. Damage does not end a walk: it continues
at the next sound record. A part of the file that the disk cannot read counts as damage too; with a
mapping it would kill the process.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bolide.kernel import Check, Scan, Stop, scan
from bolide.protocol.record import RECORD_HEAD, Record, is_record_magic, read_record
from bolide.protocol.record_errors import BadChecksum, BadRecord
from bolide.protocol.record_seal import SEAL_SIZE, check_seal
from bolide.store.descriptors import read_at
from bolide.store.disk import data_ranges

MIN_RECORD_SIZE = 91

_STRIDE = 16 * 1024 * 1024
_PAGE = 4096
_START = struct.Struct(">II")
_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_AT = 4
_SEAL = b"__CRC32#\x01"


class SoundRecords(NamedTuple):
    """A run of contiguous sound records, with their queue units and index keys."""

    base: int
    """Physical offset of the buffer's first byte."""
    buffer: bytearray
    first: int
    """Start of the first record in the buffer; the run ends at `scan.end`."""
    scan: Scan

    @property
    def end(self) -> int:
        return self.base + self.scan.end

    def record_at(self, physical_offset: int) -> Record | str:
        """Return the record at a physical offset inside the run, or why there is none."""
        try:
            record = read_record(self.buffer, physical_offset - self.base)
        except BadRecord as exc:
            return exc.reason
        if isinstance(record, Record) and record.physical_offset == physical_offset:
            return record
        return "no record begins there"

    def records(self) -> Iterator[Record]:
        at = self.first
        while at < self.scan.end:
            record = read_record(self.buffer, at)
            assert isinstance(record, Record)
            yield record
            at += record.size


class Damage(NamedTuple):
    """A range of physical offsets without a sound record."""

    path: Path
    at: int
    end: int
    reason: str
    followed: bool
    """Whether sound records follow in the same file."""


class LogEnd(NamedTuple):
    """The end of the records; `closed` if a blank record ends the file."""

    at: int
    closed: bool


class LogWalk:
    def __init__(
        self,
        path: Path,
        size: int,
        *,
        check: Check = Check.BODY,
        delays: tuple[int, ...] = (),
        keys: bool = False,
        start: int | None = None,
    ) -> None:
        """`size` is the nominal length of the file; `start` defaults to the file's name."""
        self.path = path
        self.start = int(path.name) if start is None else start
        self._size = size
        self._length = 0
        self._check = check
        self._delays = delays
        self._keys = keys
        self._descriptor = -1
        self._unreadable: list[tuple[int, str]] = []

    def run(self, begin: int | None = None) -> Iterator[SoundRecords | Damage | LogEnd]:
        """Walk from a physical offset on, a record boundary; the last item is a `LogEnd`.

        Raises:
            OSError: the file cannot be opened.
        """
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._length = os.fstat(self._descriptor).st_size
            yield from self._run(max((begin or 0) - self.start, 0))
        finally:
            os.close(self._descriptor)

    def _run(self, at: int) -> Iterator[SoundRecords | Damage | LogEnd]:
        while at < self._length:
            buffer = self._read(at, _STRIDE)
            result = self._scan(buffer, at)
            cut = self._is_cut(buffer, result, at)
            if cut and not result.count:  # a record longer than a stride
                (size,) = struct.unpack_from(">I", buffer)
                buffer = self._read(at, size)
                result = self._scan(buffer, at)
            if result.count:
                yield from self._sound(at, buffer, result)
                at += result.end
            if result.stop is Stop.END or (cut and result.count):
                continue
            if self._is_end(result.stop, at):
                closed = result.stop is Stop.BLANK
                yield LogEnd(self.start + (self._size if closed else at), closed)
                return
            found = self._next_record(at + 1)
            yield self._damage(at, found, result)
            if found is None:
                yield LogEnd(self.start + at, closed=False)
                return
            at = found
        yield LogEnd(self.start + at, closed=False)

    # ---- one step

    def _scan(self, buffer: bytearray, at: int, first: int = 0, end: int | None = None) -> Scan:
        return scan(
            buffer,
            first,
            len(buffer) if end is None else end,
            self.start + at,
            check=self._check,
            delays=self._delays,
            keys=self._keys,
        )

    def _is_cut(self, buffer: bytearray, result: Scan, at: int) -> bool:
        """Whether the last record is only incomplete in the buffer and continues in the file."""
        if result.stop is not Stop.DAMAGED or at + len(buffer) >= self._length:
            return False
        if len(buffer) - result.end < _START.size:
            return True
        size, magic = _START.unpack_from(buffer, result.end)
        return (
            is_record_magic(magic)
            and result.end + size > len(buffer)
            and at + result.end + size <= self._length
        )

    def _sound(self, at: int, buffer: bytearray, result: Scan) -> Iterator[SoundRecords | Damage]:
        """Split a scanned run at records whose CRC property is wrong."""
        base, first = self.start + at, 0
        if self._check is Check.BODY and buffer.find(_SEAL, 0, result.end) >= 0:
            for place, size, reason in _broken_seals(buffer, result.end):
                if first < place:
                    yield SoundRecords(base, buffer, first, self._scan(buffer, at, first, place))
                yield Damage(self.path, base + place, base + place + size, reason, followed=True)
                first = place + size
        if first == 0:
            yield SoundRecords(base, buffer, 0, result)
        elif first < result.end:
            yield SoundRecords(base, buffer, first, self._scan(buffer, at, first, result.end))

    def _is_end(self, stop: Stop, at: int) -> bool:
        if stop is Stop.BLANK:
            size, _ = _START.unpack(self._read(at, _START.size))
            return bool(size == self._size - at)
        return stop is Stop.EMPTY and self._first_data(at) is None

    def _damage(self, at: int, found: int | None, result: Scan) -> Damage:
        end = self._length if found is None else found
        reasons = [text for place, text in self._unreadable if at < place + _PAGE and place < end]
        return Damage(
            self.path,
            self.start + at,
            self.start + end,
            reasons[0] if reasons else self._reason(at, result),
            found is not None,
        )

    def _reason(self, at: int, result: Scan) -> str:
        if result.stop is Stop.EMPTY:
            return "zeros where a record should begin"
        if result.stop is Stop.BLANK:
            size, _ = _START.unpack(self._read(at, _START.size))
            return f"a blank record of {size} bytes, but {self._size - at} are left in the file"
        return result.reason

    # ---- searching ahead

    def _first_data(self, at: int) -> int | None:
        """Return the position of the first nonzero byte at or behind a position."""
        for first, last in data_ranges(self._descriptor, at, self._length):
            for place in range(first, last, _STRIDE):
                buffer = self._read(place, min(_STRIDE, last - place))
                if buffer != bytes(len(buffer)):
                    return place + len(buffer) - len(buffer.lstrip(b"\0"))
        return None

    def _next_record(self, at: int) -> int | None:
        """Return where the next sound record begins, if there is one."""
        for first, last in data_ranges(self._descriptor, at, self._length):
            place = max(at, first - _START.size)
            while place < last:
                buffer = self._read(place, _STRIDE)
                for candidate in _candidates(buffer):
                    if self._is_record(place + candidate):
                        return place + candidate
                place += max(len(buffer) - _START.size + 1, 1)
        return None

    def _is_record(self, at: int) -> bool:
        head = self._read(at, RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            return False
        size, _, physical_offset = RECORD_HEAD.unpack(head)
        if physical_offset != self.start + at or at + size > self._length:
            return False
        buffer = self._read(at, size)
        return self._scan(buffer, at).count == 1

    # ---- reading

    def _read(self, at: int, size: int) -> bytearray:
        """Read bytes of the file, with zeros where the disk fails."""
        size = min(size, self._length - at)
        try:
            return read_at(self._descriptor, size, at)
        except OSError:
            return self._read_pages(at, size)

    def _read_pages(self, at: int, size: int) -> bytearray:
        found = bytearray()
        while len(found) < size:
            place = at + len(found)
            want = min(_PAGE - place % _PAGE, size - len(found))
            try:
                data = read_at(self._descriptor, want, place)
            except OSError as exc:
                self._unreadable.append((place, f"cannot be read: {exc.strerror}"))
                data = bytearray(want)
            if not data:
                break
            found += data
        return found


def is_unused(path: Path) -> bool:
    """Whether a file is all zeros, as one that was allocated ahead of its use."""
    with path.open("rb") as file:
        if file.read(_PAGE).strip(b"\0"):
            return False
    return next(LogWalk(path, path.stat().st_size).run(), None) == LogEnd(int(path.name), False)


def read_one(path: Path, physical_offset: int, check: Check = Check.BODY) -> Record | str:
    """Return the record at a physical offset of a log file, or why there is no sound one."""
    at = physical_offset - int(path.name)
    try:
        with path.open("rb") as file:
            file.seek(at)
            head = file.read(RECORD_HEAD.size)
            if len(head) < RECORD_HEAD.size:
                return "the file ends before it"
            size, magic, place = RECORD_HEAD.unpack(head)
            if not is_record_magic(magic) or place != physical_offset:
                return "no record begins there"
            left = os.fstat(file.fileno()).st_size - at
            buffer = head + file.read(min(size, left) - len(head)) if size > len(head) else head
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"
    result = scan(buffer, 0, len(buffer), physical_offset, check=check, keys=False)
    if not result.count:
        return result.reason
    record = read_record(buffer)
    assert isinstance(record, Record)
    return record


def _candidates(buffer: bytearray) -> Iterator[int]:
    """Yield where records may begin: the size field before each magic number."""
    places = [buffer.find(magic, _MAGIC_AT) for magic in _MAGICS]
    while any(place >= 0 for place in places):
        nearest = min(place for place in places if place >= 0)
        yield nearest - _MAGIC_AT
        which = places.index(nearest)
        places[which] = buffer.find(_MAGICS[which], nearest + 1)


def _broken_seals(buffer: bytearray, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield the records up to `end` whose CRC property is wrong: position, size, reason."""
    at = 0
    while at < end:
        (size,) = struct.unpack_from(">I", buffer, at)
        if buffer.startswith(_SEAL, at + size - SEAL_SIZE):
            try:
                check_seal(buffer, at)
            except BadChecksum as exc:
                yield at, size, exc.reason
        at += size
