"""What happened: every send with its result, every delivery, every fault, and what was kept.

Times are seconds since the start of the run, of one monotonic clock.
"""

import time
import zlib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec


class Kind(StrEnum):
    """The kinds of workload."""

    PLAIN = "plain"
    ORDERED = "ordered"
    TRANSACTION = "transaction"
    TIMER = "timer"
    DEDUP = "dedup"
    POP = "pop"


class Outcome(StrEnum):
    """How a send ended, for its sender."""

    ACKNOWLEDGED = "acknowledged"
    WEAK = "weak"
    """Stored, with a status that promises less: FLUSH_DISK_TIMEOUT and the like."""
    UNKNOWN = "unknown"
    """It failed or timed out, and may be stored nevertheless."""
    ROLLED_BACK = "rolled-back"
    """Its transaction was rolled back: it must not be delivered."""


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag="sent", omit_defaults=True):
    """One message and the result of sending it."""

    id: str
    kind: Kind
    key: str
    number: int
    """Counts the messages of a key."""
    began: float
    ended: float
    outcome: Outcome
    queue: str = ""
    """Broker name and queue id, if it was acknowledged."""
    offset: int = -1
    error: str = ""
    tries: int = 1
    delay: float = 0.0
    """Seconds after which it is to be delivered."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True, tag="delivered", omit_defaults=True):
    """One call of a handler, or one received message."""

    id: str
    """Empty if the body is not one of ours."""
    kind: Kind
    at: float
    queue: str
    offset: int
    times: int = 0
    """How often it had been delivered before, according to the broker."""


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag="kept", omit_defaults=True):
    """A message that is in its queue at the end of the run."""

    id: str
    """Empty if the body is not one of ours."""
    kind: Kind
    queue: str
    offset: int


class Unread(msgspec.Struct, frozen=True, kw_only=True, tag="unread", omit_defaults=True):
    """A queue that could not be read to its end when all queues were read."""

    kind: Kind
    queue: str
    """Empty if the queues of the topic could not be found out."""
    error: str


class Fault(msgspec.Struct, frozen=True, kw_only=True, tag="fault", omit_defaults=True):
    """A fault of a round, from its injection to its end."""

    nemesis: str
    targets: tuple[str, ...]
    round: int
    began: float
    ended: float
    back_after: float | None = None
    """Seconds from its end until every kind was acknowledged again; None: not in time."""
    error: str = ""
    """Why it did not begin or end as planned: a member did not start, for instance."""


class Mastership(msgspec.Struct, frozen=True, kw_only=True, tag="master", omit_defaults=True):
    """Who is the master of a broker group from a time on."""

    group: str
    at: float
    member: str | None


Event = Sent | Delivered | Kept | Unread | Fault | Mastership


class History:
    """Events in memory, and in a JSONL file if there is one.

    Args:
        clock: a monotonic clock.
    """

    def __init__(
        self, file: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.sent: list[Sent] = []
        self.delivered: list[Delivered] = []
        self.kept: list[Kept] = []
        self.unread: list[Unread] = []
        self.faults: list[Fault] = []
        self.masters: list[Mastership] = []
        self._clock = clock
        self._start = clock()
        self._output: IO[bytes] | None = file.open("wb") if file else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._output:
            self._output.close()

    def now(self) -> float:
        return self._clock() - self._start

    def record(self, event: Event) -> None:
        lists: dict[type, list[Any]] = {
            Sent: self.sent, Delivered: self.delivered, Kept: self.kept, Unread: self.unread,
            Fault: self.faults, Mastership: self.masters,
        }  # fmt: skip
        lists[type(event)].append(event)
        if self._output:
            self._output.write(msgspec.json.encode(event) + b"\n")

    @classmethod
    def read(cls, file: Path) -> "History":
        """A history that was written to a file."""
        found = cls()
        with file.open("rb") as lines:
            for line in lines:
                found.record(msgspec.json.decode(line, type=Event))
        return found


def body_of(message_id: str, padding: int = 64) -> bytes:
    """A body that proves that it is the one that was sent."""
    text = message_id.encode().ljust(padding, b".")
    return b"%08x|%s" % (zlib.crc32(text), text)


def id_of(body: bytes) -> str:
    """The id of a body that `body_of` made; empty for any other."""
    checksum, _, text = body.partition(b"|")
    if checksum != b"%08x" % zlib.crc32(text):
        return ""
    return text.rstrip(b".").decode(errors="replace")
