"""Plain pulls, straight from the bytes received: what the broker's fast path reads and writes.

The pulls of a consumer are the same text each time but for three numbers: the request's own, the
offset it asks for and the one it commits. So the rest serves as a key to what was found out about
the first of them. Everything unusual takes the ordinary way, which must answer a plain pull the
same, byte for byte. `_pulls` has the compiled twin.
"""

import re
import struct
from collections.abc import Callable, Collection

from bolide.kernel.sieves import Sieve
from bolide.protocol.record import RECORD_HEAD, is_record_magic, store_time
from bolide.version import ROCKETMQ_VERSION

MAX_PULL_HEADER = 2048
"""Bytes of the longest header that is looked at: keys are kept."""

_PREFIX = struct.Struct(">II")
_UNIT = struct.Struct(">qiq")
_MIN_RECORD = 91  # of an empty body, topic and properties
_MAX_STRETCH = 1024 * 1024
_MAX_FRAME_SIZE = 16 * 1024 * 1024

_QUEUE_OFFSET, _COMMIT_OFFSET, _OPAQUE = b'"queueOffset":"', b'"commitOffset":"', b'"opaque":'
_NUMBERS = (
    re.compile(_QUEUE_OFFSET + rb'(0|[1-9][0-9]{0,17})"'),
    re.compile(_COMMIT_OFFSET + rb'(0|-?[1-9][0-9]{0,17})"'),
    re.compile(_OPAQUE + rb"(0|-?[1-9][0-9]{0,9})[,}]"),
)

_FOUND, _NO_MATCH = (0, "FOUND"), (20, "NO_MATCHED_MESSAGE")


PlainPull = tuple[int, bytes, int, int, int]
"""A pull as it lies in a buffer: where the next frame begins, its header without the three numbers
as its key, the offset that it asks for, the one that it commits, and the request's number."""

Answer = tuple[bytes, int, int, int, int, int]
"""The response to a pull, the offset to go on at, and what it delivers: how many records, their
bytes, how many bytes of the log there are from the last on, and when that was stored in ms."""

Status = tuple[int, str]
"""A response code and the remark that goes with it."""


def read_plain_pull(data: bytes, position: int) -> PlainPull | None:
    """What may be a pull and lies whole at `position`, or None if something else does.

    That the numbers are what they look like must be found out once for a key, see `refill`.
    """
    if len(data) - position < _PREFIX.size:
        return None
    length, header_size = _PREFIX.unpack_from(data, position)
    start, end = position + _PREFIX.size, position + 4 + length
    if end > len(data) or header_size > MAX_PULL_HEADER or header_size + 4 != length:
        return None
    found = [pattern.search(data, start, end) for pattern in _NUMBERS]
    offset, commit, opaque = found
    if offset is None or commit is None or opaque is None:
        return None
    if not _is_int(int(opaque[1])):
        return None
    parts, at = [], start
    for begin, behind in sorted(each.span(1) for each in found if each):
        parts.append(data[at:begin])
        at = behind
    parts.append(data[at:end])
    return end, b"".join(parts), int(offset[1]), int(commit[1]), int(opaque[1])


def refill(key: bytes, queue_offset: int, commit_offset: int, opaque: int) -> bytes:
    """The header of a key with these numbers. If it decodes to them, so do all of that key."""
    key = key.replace(_QUEUE_OFFSET, _QUEUE_OFFSET + b"%d" % queue_offset, 1)
    key = key.replace(_COMMIT_OFFSET, _COMMIT_OFFSET + b"%d" % commit_offset, 1)
    return key.replace(_OPAQUE, _OPAQUE + b"%d" % opaque, 1)


class PullAnswers:
    """Writes the answers to the pulls of one key.

    Args:
        max_count: how many records one takes at most.
        max_size: how many bytes of records; the first is taken however large.
        codes: the tags codes that are wanted, None for all.
        brokers: the ids of those to pull from next, usually and if the consumer is far behind.
        far: bytes of the log that are far.
        sys_flags: of the topic and of the group.
        sieve: what those with a wanted code must pass too, None for all.
    """

    def __init__(  # noqa: PLR0913  made once for many pulls
        self,
        *,
        max_count: int,
        max_size: int,
        codes: Collection[int] | None,
        brokers: tuple[int, int],
        far: int,
        sys_flags: tuple[int, int],
        sieve: Sieve | None = None,
    ) -> None:
        self._max_count = max_count
        self._max_size = max_size
        self._codes = None if codes is None else frozenset(filter(_is_int, codes))
        self._sieve = sieve
        self._brokers = brokers
        self._far = far
        self._template = (
            '{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d",'
            f'"minOffset":"%d","maxOffset":"%d","topicSysFlag":"{sys_flags[0]}",'
            f'"groupSysFlag":"{sys_flags[1]}"}},"flag":1,"language":"PYTHON","opaque":%d,'
            f'"remark":"%s","serializeTypeCurrentRPC":"JSON","version":{ROCKETMQ_VERSION}}}'
        )

    def found(  # noqa: PLR0913, PLR0917  called once a pull, where names cost
        self,
        opaque: int,
        queue_offset: int,
        min_offset: int,
        max_offset: int,
        log_end: int,
        units: bytes | bytearray | memoryview,
        read: Callable[[int, int, int], memoryview | None],
    ) -> Answer | None:
        """The answer with the records of these units, the first of which is at `queue_offset`.

        None if one of them is not plain: it has no record, not the one that it says, a code that
        is no hash, or properties of which the sieve is not sure. What `read` raises is raised.

        Args:
            read: bytes of the log from a place on; at least so many, and mostly so many are used.
        """
        records: list[memoryview] = []
        taken, passed, window = 0, 0, _Window(read)
        for at in range(0, len(units) - _UNIT.size + 1, _UNIT.size):
            place, size, code = _UNIT.unpack_from(units, at)
            if not _MIN_RECORD <= size < _MAX_FRAME_SIZE or place < 0:
                return None
            if records and (len(records) >= self._max_count or taken + size > self._max_size):
                break
            passed += 1
            if self._codes is not None and code not in self._codes:
                if not _is_int(code):
                    return None
                continue
            wished = _stretch(units, at, self._max_count - len(records))
            record = window.record(place, size, wished)
            if record is None:
                return None
            if self._sieve is not None and not self._sieve(record):
                continue
            records.append(record)
            taken += size
        if not passed:
            return None
        ends = min_offset, max_offset
        return self._answer(opaque, queue_offset + passed, ends, log_end, records)

    def tell(self, status: Status, opaque: int, next_offset: int, low: int, high: int) -> bytes:
        """An answer without messages, with a response code and the status that is its remark."""
        return self._frame(status, self._brokers[0], next_offset, (low, high), opaque, [])

    def _answer(
        self,
        opaque: int,
        next_offset: int,
        ends: tuple[int, int],
        log_end: int,
        records: list[memoryview],
    ) -> Answer | None:
        if not records:
            return self.tell(_NO_MATCH, opaque, next_offset, *ends), next_offset, 0, 0, 0, 0
        last = records[-1]
        behind = max(log_end - RECORD_HEAD.unpack_from(last)[2], 0)
        broker = self._brokers[behind > self._far]
        frame = self._frame(_FOUND, broker, next_offset, ends, opaque, records)
        if len(frame) > _MAX_FRAME_SIZE:
            return None
        size = sum(map(len, records))
        return frame, next_offset, len(records), size, behind, store_time(last)

    def _frame(
        self,
        status: Status,
        broker: int,
        next_offset: int,
        ends: tuple[int, int],
        opaque: int,
        records: list[memoryview],
    ) -> bytes:
        code, remark = status
        header = (self._template % (code, broker, next_offset, *ends, opaque, remark)).encode()
        body = b"".join(records)
        prefix = _PREFIX.pack(4 + len(header) + len(body), len(header))
        return b"".join((prefix, header, body))


class _Window:
    """The block of the log that was read last."""

    def __init__(self, read: Callable[[int, int, int], memoryview | None]) -> None:
        self._read = read
        self._block = memoryview(b"")
        self._start = 0

    def record(self, place: int, size: int, wished: int) -> memoryview | None:
        at = place - self._start
        if not 0 <= at <= len(self._block) - size:
            block = self._read(place, size, wished)
            if block is None or len(block) < size:
                return None
            self._start, self._block, at = place, block, 0
        record = self._block[at : at + size]
        told, magic, own_place = RECORD_HEAD.unpack_from(record)
        is_sound = told == size and own_place == place and is_record_magic(magic)
        return record if is_sound else None


def _stretch(units: bytes | bytearray | memoryview, at: int, count: int) -> int:
    """Bytes of the log from a unit's record to the end of the last that may be asked for."""
    place, size, _ = _UNIT.unpack_from(units, at)
    last = min(at + (count - 1) * _UNIT.size, len(units) - _UNIT.size)
    last -= (last - at) % _UNIT.size
    last_place, last_size, _ = _UNIT.unpack_from(units, last) if last > at else (place, size, 0)
    return int(max(size, min(last_place + last_size - place, _MAX_STRETCH)))


def is_resident(view: memoryview, at: int, size: int) -> bool:
    """Whether bytes of a mapping are in memory, so that reading them does not wait for the disk.

    Without a compiler nobody can tell.
    """
    return False


def _is_int(number: int) -> bool:
    """Whether it is one of Java's, as hashes are."""
    return -(2**31) <= number < 2**31
