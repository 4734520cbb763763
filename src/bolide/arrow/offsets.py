"""Queue offsets and positions: values, ranges, and their text forms in options and checkpoints.

Ranges and positions are plain values that can be sent to worker processes.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from bolide.arrow.errors import BadPosition
from bolide.model.message_queue import MessageQueue

Offsets = Mapping[MessageQueue, int]
"""The offset of the next message to read, by queue."""
EARLIEST = -2
"""In an option, stands for the offset of the oldest message."""
LATEST = -1
"""In an option, stands for the end of the queue."""
Plain = dict[str, dict[str, dict[str, int]]]
"""Offsets as in JSON: `{"topic": {"broker": {"0": 23}}}`."""


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGO = re.compile(r"-\s*(\d+)\s*(ms|s|m|h|d)")
_GROUP = "group:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


# Ranges of offsets


class Bounds(NamedTuple):
    """The offset of the oldest message of a queue, and the offset after the newest."""

    oldest: int
    end: int


class QueueRange(NamedTuple):
    """Messages of one queue from `start` to `end`, exclusive."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def between(start: Offsets, end: Offsets) -> list[QueueRange]:
    """The non-empty ranges between two positions, sorted by queue; both must have every queue."""
    ranges = (QueueRange(queue, start[queue], end[queue]) for queue in sorted(end))
    return [each for each in ranges if each.size]


def split(
    ranges: Iterable[QueueRange], min_partitions: int = 1, max_rows: int | None = None
) -> list[QueueRange]:
    """Cut ranges into at least `min_partitions` pieces of at most `max_rows` messages.

    The number of pieces of a range is proportional to its size, and its pieces have equal sizes.
    The result has fewer pieces than `min_partitions` if there are fewer messages.
    """
    whole = [each for each in ranges if each.size]
    total = sum(each.size for each in whole)
    found: list[QueueRange] = []
    for each in whole:
        pieces = -(-each.size * min_partitions // total) if len(whole) < min_partitions else 1
        if max_rows is not None:
            pieces = max(pieces, -(-each.size // max_rows))
        found += _cut(each, min(pieces, each.size))
    return found


def _cut(whole: QueueRange, pieces: int) -> list[QueueRange]:
    edges = [whole.start + whole.size * n // pieces for n in range(pieces + 1)]
    return [QueueRange(whole.queue, start, end) for start, end in pairwise(edges)]


def limit_ends(start: Offsets, end: Offsets, max_rows: int) -> dict[MessageQueue, int]:
    """Lower the end offsets so that about `max_rows` messages remain.

    Queues share the limit in proportion to their backlog, with at least one message each. Queues
    whose end is at or before their start keep that end.
    """
    backlog = {queue: end[queue] - start[queue] for queue in end}
    total = sum(size for size in backlog.values() if size > 0)
    if total <= max_rows:
        return dict(end)
    ends = {}
    for queue, size in backlog.items():
        part = max(1, size * max_rows // total)
        ends[queue] = start[queue] + part if size > 0 else end[queue]
    return ends


def refuse_past_end(
    offsets: Offsets, bounds: Mapping[MessageQueue, Bounds], *, option: str
) -> None:
    """Raise BadPosition if an offset is past the end of its queue."""
    for queue, (_, end) in bounds.items():
        if offsets[queue] > end:
            raise BadPosition(f"{option}: queue {queue} ends at {end}, {offsets[queue]} was given")


# Positions


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest message of each queue."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of each queue, after its newest message."""


@dataclass(frozen=True, slots=True)
class At:
    """The first message stored at a time (ms since 1970) or later."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Group:
    """The committed offsets of a consumer group; for queues without one, the oldest message."""

    name: str


@dataclass(frozen=True, slots=True)
class Exact:
    """Explicit offsets; `EARLIEST` and `LATEST` are allowed as values."""

    offsets: Offsets


Position = Earliest | Latest | At | Group | Exact


# Offsets as JSON


def to_plain(offsets: Offsets) -> Plain:
    """Offsets as in JSON, sorted by topic, broker and queue id: Spark compares the texts."""
    plain: Plain = {}
    for queue in sorted(offsets):
        brokers = plain.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return plain


def to_json(offsets: Offsets) -> str:
    return json.dumps(to_plain(offsets), separators=(",", ":"))


def from_plain(plain: object, *, option: str = "offsets") -> dict[MessageQueue, int]:
    """Raises BadPosition; the text names the option, the topic, the broker and the queue."""
    return {
        MessageQueue(topic, broker, _queue_id(number, f"{option}: {topic}: {broker}")): _offset(
            offset, f"{option}: {topic}: {broker}: {number}"
        )
        for topic, brokers in _table(plain, option)
        for broker, queues in _table(brokers, f"{option}: {topic}")
        for number, offset in _table(queues, f"{option}: {topic}: {broker}")
    }


def from_json(text: str, *, option: str = "offsets") -> dict[MessageQueue, int]:
    """Raises BadPosition."""
    try:
        plain = json.loads(text)
    except ValueError as exc:
        raise BadPosition(f"{option}={text!r}: is not JSON: {exc}") from None
    return from_plain(plain, option=option)


def _table(plain: object, path: str) -> list[tuple[str, Any]]:
    if not isinstance(plain, Mapping):
        raise BadPosition(
            f"{path}: must be an object of topics, of their brokers, of their queues, such as"
            f' {{"orders": {{"broker-a": {{"0": 23}}}}}}; got {plain!r}'
        )
    return list(plain.items())


def _queue_id(text: str, path: str) -> int:
    if not text.isdecimal():
        raise BadPosition(f"{path}: {text!r} must be a queue id")
    return int(text)


def _offset(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise BadPosition(
            f"{path}: {value!r} must be an offset, {EARLIEST} for the oldest message or"
            f" {LATEST} for the end"
        )
    return value


# Positions in options


def parse_position(text: str, *, option: str, now: float | None = None) -> Position:
    """Parse a position from the text of an option.

    Args:
        text: `earliest`, `latest`, `group:NAME`, `-10m` (before now; ms, s, m, h, d), an ISO time
            (UTC unless it has a zone), or JSON of offsets.
        option: name of the option, for error messages.
        now: seconds since 1970; the current time by default.

    Raises:
        BadPosition: the text has none of these forms.
    """
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return Earliest() if word.lower() == "earliest" else Latest()
    if word.lower().startswith(_GROUP):
        return _group(word[len(_GROUP) :].strip(), option)
    if word.startswith("{"):
        return Exact(from_json(word, option=option))
    if ago := _AGO.fullmatch(word):
        return _ago(int(ago[1]) * _UNITS[ago[2]], now)
    return At(_iso(word, option))


def position_of(where: object, *, option: str, now: float | None = None) -> Position:
    """Convert an argument to a position: text, a time, an age, or offsets.

    Raises:
        BadPosition: the value has none of these forms.
    """
    match where:
        case Earliest() | Latest() | At() | Group() | Exact():
            return where
        case str():
            return parse_position(where, option=option, now=now)
        case datetime():
            return At(to_ms(where))
        case timedelta():
            return _ago(abs(where.total_seconds()), now)
        case Mapping() if all(isinstance(queue, MessageQueue) for queue in where):
            return Exact(where)
    return Exact(from_plain(where, option=option))


def _group(name: str, option: str) -> Group:
    if not name:
        raise BadPosition(f"{option}: the name of a consumer group must follow {_GROUP!r}")
    return Group(name)


def _ago(seconds: float, now: float | None) -> At:
    return At(int(((time.time() if now is None else now) - seconds) * 1000))


def _iso(text: str, option: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadPosition(
            f"{option}={text!r}: must be earliest, latest, group:NAME, a time such as"
            " 2024-05-01T08:00:00 (UTC if it names no zone), -10m (before now; ms, s, m, h, d),"
            ' or JSON such as {"orders": {"broker-a": {"0": 23}}}'
        ) from None
    return to_ms(moment)


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, rounded up; a time without a zone is UTC."""
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return -((_EPOCH - zoned) // _MILLISECOND)  # integer arithmetic: floats can be off by one
