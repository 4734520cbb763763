"""Read one split of a log: all of its records that are wanted, or it is said what is lost."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from bolide.arrow.batches import Batches
from bolide.arrow.log_errors import LogDamaged, LogFileGone
from bolide.arrow.log_options import LogOptions
from bolide.arrow.log_planning import Split
from bolide.arrow.open_log import OpenLog
from bolide.kernel.column_buffers import Walk, Wanted
from bolide.kernel.results import Stop
from bolide.model.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from bolide.protocol.record import RECORD_HEAD, is_record_magic

_CHUNK = 4 * 1024 * 1024
_START = struct.Struct(">II")


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
