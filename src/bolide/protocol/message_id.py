"""The two ids of a message, both upper-case hex: 32 characters, or 56 with an IPv6 address.

Unique id, assigned by the sending client (`MessageClientIDSetter`):

| Bytes   | Content                                                                |
| ------- | ---------------------------------------------------------------------- |
| 4 or 16 | IP of the client                                                       |
| 2       | process id, low bits                                                   |
| 4       | salt: a number that distinguishes processes (Java: a class loader)     |
| 4       | milliseconds since the start of the month, in the client's time zone   |
| 2       | counter, low bits                                                      |

Offset id, assigned by the broker (`MessageDecoder.createMessageId`):

| Bytes   | Content                   |
| ------- | ------------------------- |
| 4 or 16 | IP of the storing broker  |
| 4       | its port                  |
| 8       | physical offset           |
"""

import struct
from datetime import datetime, timedelta, tzinfo
from itertools import count, islice
from typing import NamedTuple

from bolide.model.message import Host, offset_message_id
from bolide.protocol.errors import ProtocolError
from bolide.protocol.hosts import V4_SIZE, V6_SIZE, unpack_host

_OFFSET = struct.Struct(">q")
_UNIQUE_TAIL = struct.Struct(">HIIH")
_CLOCK_STEP = 1_000_000  # a clock set back by less than this many milliseconds counts as 0


class BadMessageId(ProtocolError):
    def __init__(self, text: str, kind: str) -> None:
        super().__init__(f"{text!r} is no {kind} id: 32 or 56 hex digits are wanted")
        self.text = text


class OffsetId(NamedTuple):
    """Which broker stored a message, and where in its log."""

    host: Host
    physical_offset: int

    @classmethod
    def decode(cls, text: str) -> "OffsetId":
        """Raises BadMessageId."""
        data = _from_hex(text, "offset")
        host = data[: -_OFFSET.size]
        return cls(unpack_host(host), _OFFSET.unpack_from(data, len(host))[0])

    def encode(self) -> str:
        return offset_message_id(self.host, self.physical_offset)


class UniqueId(NamedTuple):
    """The parts of a unique id."""

    ip: bytes
    pid: int
    salt: int
    month_ms: int
    counter: int

    @classmethod
    def decode(cls, text: str) -> "UniqueId":
        """Raises BadMessageId."""
        data = _from_hex(text, "unique")
        ip = data[: -_UNIQUE_TAIL.size]
        return cls(ip, *_UNIQUE_TAIL.unpack_from(data, len(ip)))

    def encode(self) -> str:
        tail = _UNIQUE_TAIL.pack(
            self.pid & 0xFFFF,
            self.salt & 0xFFFF_FFFF,
            self.month_ms & 0xFFFF_FFFF,
            self.counter & 0xFFFF,
        )
        return (self.ip + tail).hex().upper()

    def created(self, now_ms: int, zone: tzinfo | None = None) -> int:
        """Estimate when the id was made: this month, or the last one if that is in the future."""
        month = _month_start(now_ms, zone)
        if month + self.month_ms >= now_ms:
            month = _month_start(month - 1, zone)
        return month + self.month_ms


class UniqueIdMaker:
    """Makes the unique ids of one process. The time zone None is the machine's own."""

    def __init__(self, ip: bytes, pid: int, salt: int, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._prefix = UniqueId(ip, pid, salt, 0, 0).encode()[: -2 * 6]
        self._counter = count()
        self._month_start = self._month_end = 0
        self._stem_ms, self._stem = -1, ""

    def make(self, now_ms: int) -> str:
        if now_ms != self._stem_ms:
            self._begin(now_ms)
        return f"{self._stem}{next(self._counter) & 0xFFFF:04X}"

    def make_many(self, now_ms: int, count: int) -> list[str]:
        """Return ids of one millisecond; they repeat after 65,536."""
        self._begin(now_ms)
        stem = self._stem
        return [f"{stem}{number & 0xFFFF:04X}" for number in islice(self._counter, count)]

    def _begin(self, now_ms: int) -> None:
        """Compute the common stem of the ids of this millisecond."""
        if now_ms >= self._month_end:
            self._month_start = _month_start(now_ms, self._zone)
            self._month_end = _next_month_start(self._month_start, self._zone)
        since = now_ms - self._month_start
        if -_CLOCK_STEP < since < 0:
            since = 0
        self._stem = f"{self._prefix}{since & 0xFFFF_FFFF:08X}"
        self._stem_ms = now_ms  # last: another thread may read it in between


def _from_hex(text: str, kind: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError as exc:
        raise BadMessageId(text, kind) from exc
    # The length of the text is checked too: fromhex skips blanks.
    if len(data) * 2 != len(text) or len(data) not in {V4_SIZE + 8, V6_SIZE + 8}:
        raise BadMessageId(text, kind)
    return data


def _month_start(now_ms: int, zone: tzinfo | None) -> int:
    now = datetime.fromtimestamp(now_ms // 1000, tz=zone)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp()) * 1000


def _next_month_start(month_start: int, zone: tzinfo | None) -> int:
    some_day = datetime.fromtimestamp(month_start // 1000, tz=zone) + timedelta(days=32)
    return _month_start(int(some_day.timestamp()) * 1000, zone)
