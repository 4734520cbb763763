"""The commit log as a table, read from its files without a broker.

The log is cut into splits at record boundaries; a record belongs to the split that contains its
first byte. The end of the log is fixed when the splits are planned: records that a broker appends
later are not read.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from os import PathLike, fspath
from pathlib import Path

import pyarrow as pa

from bolide.arrow.batches import Batches, TableSource
from bolide.arrow.errors import BadPosition, LogDamaged, LogFileGone, LogLost
from bolide.arrow.log_files import OpenLog
from bolide.arrow.log_splits import SPLIT_SIZE, Split, Times, plan
from bolide.arrow.offsets import At, parse_position, to_ms
from bolide.arrow.schema import message_schema, parse_ddl
from bolide.kernel.column_buffers import END_LONG, FIRST_LONG, Walk, Wanted
from bolide.kernel.results import Stop
from bolide.model.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from bolide.protocol.record import RECORD_HEAD, is_record_magic

log = logging.getLogger(__name__)


When = str | int | datetime
"""A store time: an ISO time (UTC if it names no zone), `-10m`, ms since 1970, or a datetime."""
_CHUNK = 4 * 1024 * 1024
_START = struct.Struct(">II")


def read_commit_log(  # noqa: PLR0913  the options that it has
    path: str | PathLike[str],
    *,
    topics: str | Iterable[str] = (),
    start: When | None = None,
    end: When | None = None,
    broker: str | None = None,
    value_schema: str | None = None,
    include_properties: bool = True,
    include_internal: bool = False,
    verify_crc: bool = True,
    fail_on_data_loss: bool = True,
) -> "LogReader":
    """Read the messages of a store directory, or of a copy of it, without a broker.

    ```python
    orders = read_commit_log("/var/lib/bolide/store", topics="orders", start="2026-01-31")
    print(orders.to_table().num_rows)
    ```

    Where the log ends is found out now. Messages come in the order in which they were stored.

    Args:
        path: a store directory, its commitlog directory, or one log file.
        topics: one or several; by default all but the broker's own.
        start: the first store time wanted; see `When`.
        end: the first store time that is not wanted any more.
        broker: what the column `broker` says; null by default, as the log does not know.
        value_schema: columns of JSON bodies, such as `"id bigint, name string"`; they become the
            column `value`, which is null where a body does not fit.
        include_properties: whether there is a column with all properties.
        include_internal: whether to have the broker's own topics, half and rolled-back messages.
        verify_crc: whether to compare bodies with their checksums.
        fail_on_data_loss: whether to raise for damaged records and missing files.

    Raises:
        ConfigError: an option cannot be used, or there is no log; names it.
        LogFileGone: a file is missing, and that is not allowed.
    """
    options = LogOptions(
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        since=FIRST_LONG if start is None else time_of(start, option="start"),
        until=END_LONG if end is None else time_of(end, option="end"),
        broker=broker,
        value_schema=value_schema,
        include_properties=include_properties,
        include_internal=include_internal,
        verify_crc=verify_crc,
        fail_on_data_loss=fail_on_data_loss,
    )
    return LogReader(plan_splits(fspath(path), options), options)


class LogReader(TableSource):
    """The messages of parts of a log, in the order in which they were stored."""

    def __init__(self, splits: Iterable[Split], options: "LogOptions") -> None:
        """Raises BadValueSchema."""
        self.splits = tuple(splits)
        self._options = options
        self._schema = options.schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for split in self.splits:
            yield from read_split(split, self._options)


def plan_splits(path: str, options: "LogOptions") -> list[Split]:
    """Cut a log into splits.

    Raises:
        NoCommitLog: there is none at that path.
        LogFileGone: a file is missing, and that is not allowed.
    """
    times = Times(options.since, options.until)
    return plan(path, times, options.split_size, options.lose)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Plain values that travel to workers."""

    topics: tuple[str, ...] = ()
    """None: all but the broker's own."""
    since: int = FIRST_LONG
    until: int = END_LONG
    """Store times in ms; `until` itself is not wanted."""
    split_size: int = SPLIT_SIZE
    """Bytes; 0 makes each file one split."""
    broker: str | None = None
    """What the column says: the log does not know the name of its broker."""
    include_internal: bool = False
    """Whether the broker's own topics, half and rolled-back messages are wanted too."""
    include_properties: bool = True
    value_schema: str | None = None
    """Columns of JSON bodies, such as `id bigint, name string`; they become `value`."""
    verify_crc: bool = True
    fail_on_data_loss: bool = True

    @property
    def value(self) -> pa.StructType | None:
        return None if self.value_schema is None else parse_ddl(self.value_schema)

    @property
    def schema(self) -> pa.Schema:
        """That of every batch. Raises BadValueSchema."""
        return message_schema(include_properties=self.include_properties, value=self.value)

    def lose(self, loss: LogLost) -> None:
        """Raises it, unless that is allowed: then it is logged."""
        if self.fail_on_data_loss:
            raise loss
        log.warning("%s, physical offset %s: %s; reading goes on", loss.path, loss.at, loss.reason)


def time_of(when: When, *, option: str) -> int:
    """Milliseconds since 1970.

    Raises:
        BadPosition: it is no time; names the option.
    """
    if isinstance(when, int):
        return when
    if isinstance(when, datetime):
        return to_ms(when)
    if when.strip().isdecimal():
        return int(when)
    position = parse_position(when, option=option)
    if not isinstance(position, At):
        raise BadPosition(f"{option}={when!r}: must be a time, such as 2024-05-01T08:00:00 or -10m")
    return position.timestamp_ms


def read_split(split: Split, options: LogOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a split in the order of the log; never empty batches.

    Raises:
        LogFileGone: the file was deleted meanwhile, and that is not allowed.
        LogDamaged: a record is not sound, and that is not allowed.
    """
    try:
        opened = OpenLog(split.path, split.base)
    except FileNotFoundError:
        options.lose(
            LogFileGone(split.path, split.start, "the file was deleted before it was read")
        )
        return
    with opened:
        yield from _SplitWalk(opened, split, options).run()


class _SplitWalk:
    def __init__(self, opened: OpenLog, split: Split, options: LogOptions) -> None:
        self._log = opened
        self._end = split.end
        self._at = split.start
        self._options = options
        self._batches = Batches(
            broker=options.broker,
            wanted=_wanted(options),
            include_properties=options.include_properties,
            value=options.value,
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        while self._at < self._end:
            yield from self._take(self._log.read(self._at, self._chunk_size()))
        yield from self._batches.rest()

    def _chunk_size(self) -> int:
        """Enough for the record here; nothing is read for those of other splits."""
        head = self._log.read(self._at, RECORD_HEAD.size).ljust(RECORD_HEAD.size, b"\0")
        size, magic, place = RECORD_HEAD.unpack(head)
        is_here = is_record_magic(magic) and place == self._at
        return max(min(_CHUNK, self._end - self._at), size if is_here else 0)

    def _take(self, block: bytearray) -> Iterator[pa.RecordBatch]:
        """Move on behind the records that lie in a block whole."""
        position = 0
        while True:
            walk = self._add(block, position)
            if walk.stop is not Stop.FULL:
                break
            yield self._batches.cut()
            position = walk.end
        self._at += walk.end
        if not walk.end:
            self._at = self._judge(walk)

    def _add(self, block: bytearray, position: int) -> Walk:
        return self._batches.columns.add(
            block,
            position,
            min(len(block), self._end - self._at),
            physical_offset=self._at,
            check_crc=self._options.verify_crc,
        )

    def _judge(self, walk: Walk) -> int:
        """Where to go on if no sound record lies here."""
        if walk.stop is Stop.BLANK:
            size, _ = _START.unpack(self._log.read(self._at, _START.size))
            if self._at + size >= self._end:
                return self._end
            if self._at + size == self._log.end:
                return self._miss_next_file()
            return self._pass_over(f"a blank record of {size} bytes, but more of the file is left")
        if walk.stop is Stop.END:
            return self._pass_over("the file ends here, but its log does not")
        return self._pass_over(walk.reason or "there are zeros where a record should begin")

    def _miss_next_file(self) -> int:
        """The plan took this file for a longer one, as another lies that far behind it."""
        gone = LogFileGone(Path(self._log.path).parent, self._log.end, "the next file is missing")
        self._options.lose(gone)
        return self._end

    def _pass_over(self, reason: str) -> int:
        following = self._log.search(self._at + 1, self._end, followers=0) or self._end
        lost = f"{reason}; no sound record lies before {following}"
        self._options.lose(LogDamaged(self._log.path, self._at, lost))
        return following


def _wanted(options: LogOptions) -> Wanted:
    return Wanted(
        since=options.since,
        until=options.until,
        undelivered=options.include_internal,
        topic=_topic_choice(options),
    )


def _topic_choice(options: LogOptions) -> Callable[[bytes], bool] | None:
    if options.topics:
        return frozenset(topic.encode() for topic in options.topics).__contains__
    return None if options.include_internal else _is_of_users


def _is_of_users(topic: bytes) -> bool:
    name = topic.decode("utf-8", "replace")
    return name not in SYSTEM_TOPICS and not name.startswith(SYSTEM_TOPIC_PREFIX)
