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

from bolide.arrow.batches import BatchBuilder, TableSource
from bolide.arrow.errors import BadPosition, LogDamaged, LogFileGone, LogLost
from bolide.arrow.log_files import OpenLog
from bolide.arrow.log_splits import SPLIT_SIZE, Split, TimeRange, plan
from bolide.arrow.offsets import At, parse_position, to_ms
from bolide.arrow.schema import message_schema, parse_ddl
from bolide.kernel.column_buffers import END_LONG, FIRST_LONG, Walk, Wanted
from bolide.kernel.results import Stop
from bolide.model.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from bolide.protocol.record import RECORD_HEAD, is_record_magic, read_record
from bolide.protocol.record_errors import BadRecord

log = logging.getLogger(__name__)


When = str | int | datetime
"""A store time: an ISO time (UTC if it names no zone), `-10m`, ms since 1970, or a datetime."""
_READ_SIZE = 4 * 1024 * 1024
_SIZE_AND_MAGIC = struct.Struct(">II")


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

    The end of the log is fixed by this call. Messages come in the order in which they were stored.

    Args:
        path: a store directory, its commitlog directory, or one log file.
        topics: one topic name or several; by default all except system topics.
        start: first store time, inclusive; see `When`.
        end: last store time, exclusive.
        broker: value of the column `broker`; null by default, because the log does not contain it.
        value_schema: columns of JSON bodies, such as `"id bigint, name string"`; they form the
            column `value`, which is null if a body does not match.
        include_properties: whether to add a column with all properties.
        include_internal: whether to include system topics, half and rolled-back messages.
        verify_crc: whether to verify the checksums of bodies.
        fail_on_data_loss: whether to raise for damaged records and missing files.

    Raises:
        ConfigError: an option is invalid, or the path contains no log.
        LogFileGone: a file is missing, and data loss is not allowed.
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
    """The messages of some splits of a log, in the order in which they were stored."""

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
        NoCommitLog: the path contains no log.
        LogFileGone: a file is missing, and data loss is not allowed.
    """
    times = TimeRange(options.since, options.until)
    return plan(path, times, options.split_size, options.report_loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of a log reader: plain values that can be sent to worker processes."""

    topics: tuple[str, ...] = ()
    """Empty: all except system topics."""
    since: int = FIRST_LONG
    until: int = END_LONG
    """Store times in ms; `until` is exclusive."""
    split_size: int = SPLIT_SIZE
    """Bytes; 0 makes each file one split."""
    broker: str | None = None
    """Value of the column `broker`: the log does not contain the name of its broker."""
    include_internal: bool = False
    """Whether to include system topics, half and rolled-back messages."""
    include_properties: bool = True
    value_schema: str | None = None
    """Columns of JSON bodies, such as `id bigint, name string`; they form the column `value`."""
    verify_crc: bool = True
    fail_on_data_loss: bool = True

    @property
    def value(self) -> pa.StructType | None:
        return None if self.value_schema is None else parse_ddl(self.value_schema)

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch. Raises BadValueSchema."""
        return message_schema(include_properties=self.include_properties, value=self.value)

    def report_loss(self, loss: LogLost) -> None:
        """Raise the loss, or log it if data loss is allowed."""
        if self.fail_on_data_loss:
            raise loss
        log.warning("%s, physical offset %s: %s; continuing", loss.path, loss.at, loss.reason)


def time_of(when: When, *, option: str) -> int:
    """A store time in milliseconds since 1970.

    Raises:
        BadPosition: the value is not a time; the text names the option.
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
    """The rows of a split in log order; no batch is empty.

    Raises:
        LogFileGone: the file was deleted since planning, and data loss is not allowed.
        LogDamaged: a record is damaged, and data loss is not allowed.
    """
    try:
        opened = OpenLog(split.path, split.base)
    except FileNotFoundError:
        options.report_loss(
            LogFileGone(split.path, split.start, "the file was deleted before it was read")
        )
        return
    with opened:
        yield from _SplitReader(opened, split, options).run()


class _SplitReader:
    def __init__(self, opened: OpenLog, split: Split, options: LogOptions) -> None:
        self._log = opened
        self._end = split.end
        self._offset = split.start
        self._options = options
        self._builder = BatchBuilder(
            broker=options.broker,
            wanted=_wanted(options),
            include_properties=options.include_properties,
            value=options.value,
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        while self._offset < self._end:
            yield from self._read_block(self._log.read(self._offset, self._read_size()))
        yield from self._builder.flush()

    def _read_size(self) -> int:
        """Bytes to read next: up to the end of the split, and at least the current record."""
        head = self._log.read(self._offset, RECORD_HEAD.size).ljust(RECORD_HEAD.size, b"\0")
        size, magic, physical_offset = RECORD_HEAD.unpack(head)
        is_record = is_record_magic(magic) and physical_offset == self._offset
        return max(min(_READ_SIZE, self._end - self._offset), size if is_record else 0)

    def _read_block(self, block: bytearray) -> Iterator[pa.RecordBatch]:
        """Decode the complete records of a block and advance past them."""
        position = 0
        while True:
            walk = self._add(block, position)
            position = walk.end
            if walk.stop is Stop.BATCH:
                batch = self._batch_at(block, position)
                if isinstance(batch, Walk):
                    walk = batch
                    break
                yield from self._builder.add_batch(batch)
                position += len(batch)
            elif walk.stop is Stop.FULL:
                yield self._builder.build()
            else:
                break
        self._offset += walk.end
        if not walk.end:
            self._offset = self._next_offset(walk)

    def _add(self, block: bytearray, position: int) -> Walk:
        return self._builder.columns.add(
            block,
            position,
            min(len(block), self._end - self._offset),
            physical_offset=self._offset,
            check_crc=self._options.verify_crc,
        )

    def _batch_at(self, block: bytearray, position: int) -> bytes | Walk:
        """The record of an inner batch, or the end of the walk if it is damaged."""
        try:
            record = read_record(block, position, check_crc=self._options.verify_crc)
        except BadRecord as exc:
            return Walk(position, Stop.DAMAGED, exc.reason)
        return bytes(block[position : position + record.size])

    def _next_offset(self, walk: Walk) -> int:
        """The offset to continue at if no valid record begins here; reports losses."""
        if walk.stop is Stop.BLANK:
            size, _ = _SIZE_AND_MAGIC.unpack(self._log.read(self._offset, _SIZE_AND_MAGIC.size))
            if self._offset + size >= self._end:
                return self._end
            if self._offset + size == self._log.end:
                return self._report_missing_file()
            return self._skip_damage(
                f"a blank record of {size} bytes, but more of the file is left"
            )
        if walk.stop is Stop.END:
            return self._skip_damage("the file ends here, but its log does not")
        return self._skip_damage(walk.reason or "there are zeros where a record should begin")

    def _report_missing_file(self) -> int:
        """The file is shorter than planned: the plan assumed it reaches to the next file."""
        gone = LogFileGone(Path(self._log.path).parent, self._log.end, "the next file is missing")
        self._options.report_loss(gone)
        return self._end

    def _skip_damage(self, reason: str) -> int:
        following = self._log.search(self._offset + 1, self._end, followers=0) or self._end
        lost = f"{reason}; no sound record lies before {following}"
        self._options.report_loss(LogDamaged(self._log.path, self._offset, lost))
        return following


def _wanted(options: LogOptions) -> Wanted:
    return Wanted(
        since=options.since,
        until=options.until,
        undelivered=options.include_internal,
        topic=_topic_filter(options),
    )


def _topic_filter(options: LogOptions) -> Callable[[bytes], bool] | None:
    if options.topics:
        return frozenset(topic.encode() for topic in options.topics).__contains__
    return None if options.include_internal else _is_user_topic


def _is_user_topic(topic: bytes) -> bool:
    name = topic.decode("utf-8", "replace")
    return name not in SYSTEM_TOPICS and not name.startswith(SYSTEM_TOPIC_PREFIX)
