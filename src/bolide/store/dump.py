"""Reads messages from a store directory or a single log file, as values for JSON lines.

Read-only and without the store lock: a dump works beside a running broker, up to the current end.
"""

import base64
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bolide.errors import BolideError, ConfigError
from bolide.kernel.units import BLANK_SIZE, UNIT
from bolide.model.message import SysFlag, compression_type, transaction_type
from bolide.model.properties import KEY_SEPARATOR, PropertyName
from bolide.protocol.compression import decompress
from bolide.protocol.hosts import unpack_host
from bolide.protocol.inner_batch import unwrap
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import Record
from bolide.store.batch_queue import BATCH_DIRECTORY, BATCH_UNIT, BATCH_UNIT_SIZE, BatchUnit
from bolide.store.consume_queue import Unit
from bolide.store.layout import Layout
from bolide.store.log_walk import Damage, LogWalk, SoundRecords, read_one
from bolide.store.queue_files import QueueFiles

Warn = Callable[[str], None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLAGS = (
    SysFlag.COMPRESSED, SysFlag.MULTI_TAGS, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6,
    SysFlag.NEEDS_UNWRAP, SysFlag.INNER_BATCH,
)  # fmt: skip


class BodyForm(StrEnum):
    TEXT = "text"
    BASE64 = "base64"
    HEX = "hex"
    NONE = "none"


class Bound(NamedTuple):
    """An offset, or a store time in milliseconds."""

    value: int
    is_time: bool

    @classmethod
    def parse(cls, text: str) -> "Bound":
        """Parse an offset (digits) or a time (ISO 8601, UTC by default, or @ and milliseconds).

        Raises:
            ConfigError: the text is neither.
        """
        if text.isdecimal():
            return cls(int(text), is_time=False)
        if text.startswith("@") and text[1:].isdecimal():
            return cls(int(text[1:]), is_time=True)
        try:
            time = datetime.fromisoformat(text)
        except ValueError as exc:
            raise ConfigError(f"{text!r} is neither an offset nor a time (ISO 8601)") from exc
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        return cls(round((time - _EPOCH) / timedelta(milliseconds=1)), is_time=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects messages from `first` up to, but not including, `last`.

    Offsets are queue offsets if topic and queue are given, else physical offsets.
    """

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    first: Bound | None = None
    last: Bound | None = None

    @property
    def by_queue(self) -> bool:
        return self.topic is not None and self.queue_id is not None

    def wants(self, record: Record) -> bool:
        return (
            (self.topic is None or record.topic == self.topic)
            and (self.queue_id is None or record.queue_id == self.queue_id)
            and (self.first is None or self._value(record, self.first) >= self.first.value)
            and (self.last is None or self._value(record, self.last) < self.last.value)
            and (self.key is None or self.key in _keys(record.decode_properties()))
        )

    def _value(self, record: Record, bound: Bound) -> int:
        if bound.is_time:
            return record.store_timestamp
        return record.queue_offset if self.by_queue else record.physical_offset


def dump(path: Path, selection: Selection, warn: Warn) -> Iterator[Record]:
    """Yield the selected records in log or queue order, skipping damage with a warning.

    Raises:
        ConfigError: `path` has no log files.
        OSError: a file cannot be opened.
    """
    files = _log_files(path)
    if selection.by_queue and (batches := _batch_queue_of(path, selection)):
        yield from _dump_batches(batches, files, selection, warn)
        return
    if selection.by_queue and (queue := _queue_of(path, selection)):
        yield from _dump_queue(queue, files, selection, warn)
        return
    for file, size in _within(files, selection):
        try:
            for item in LogWalk(file, size).run():
                if isinstance(item, Damage):
                    warn(f"{file} at {item.at}: {item.reason}")
                elif isinstance(item, SoundRecords):
                    messages = (each for record in item.records() for each in unwrap(record))
                    yield from filter(selection.wants, messages)
        except FileNotFoundError:
            warn(f"{file}: was removed in the meantime")


def describe(record: Record, form: BodyForm) -> dict[str, object]:
    """Return all fields of a message under JSON names."""
    properties = record.decode_properties()
    store_host = unpack_host(record.store_host)
    compression, body = _plain_body(record)
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "storeTime": _iso(record.store_timestamp),
        "bornTime": _iso(record.born_timestamp),
        "storeHost": str(store_host),
        "bornHost": str(unpack_host(record.born_host)),
        "offsetId": OffsetId(store_host, record.physical_offset).encode(),
        "uniqueId": properties.get(PropertyName.UNIQUE_ID),
        "tags": properties.get(PropertyName.TAGS),
        "keys": [word for word in _key_words(properties) if word],
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "flags": [flag.name for flag in _FLAGS if record.sys_flag & flag],
        "transaction": transaction_type(record.sys_flag).name,
        "compression": compression,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCrc": record.body_crc,
        "bodySize": len(record.body),
        "properties": properties,
    } | _body(body, form)


def _plain_body(record: Record) -> tuple[str | None, bytes]:
    """Return the compression and the body; the body stays compressed if decompression fails."""
    try:
        kind = compression_type(record.sys_flag)
    except ValueError:
        return "UNKNOWN", bytes(record.body)
    try:
        return kind.name if kind else None, decompress(record.body, record.sys_flag)
    except BolideError as exc:
        return str(exc), bytes(record.body)


def _body(body: bytes, form: BodyForm) -> dict[str, object]:
    if form is BodyForm.NONE:
        return {}
    if form is BodyForm.HEX:
        return {"bodyHex": body.hex()}
    if form is BodyForm.TEXT:
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass  # not UTF-8: fall back to base64
    return {"bodyBase64": base64.b64encode(body).decode()}


def _iso(milliseconds: int) -> str | int:
    """Format a time in UTC; a time out of range stays a number."""
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _key_words(properties: dict[str, str]) -> list[str]:
    return properties.get(PropertyName.KEYS, "").split(KEY_SEPARATOR)


def _keys(properties: dict[str, str]) -> list[str]:
    return [properties.get(PropertyName.UNIQUE_ID, ""), *_key_words(properties)]


# ---- files


def _log_files(path: Path) -> list[tuple[Path, int]]:
    """Return the log files at a path with their nominal lengths."""
    if path.is_dir():
        directory = path / "commitlog" if (path / "commitlog").is_dir() else path
        files = sorted(file for file in directory.iterdir() if file.name.isdigit())
    else:
        files = [path] if path.exists() and path.name.isdigit() else []
    files = [file for file in files if file.stat().st_size]
    if not files:
        raise ConfigError(f"{path} is neither a store directory nor a log file named by its start")
    lengths = [file.stat().st_size for file in files]
    distances = [int(after.name) - int(before.name) for before, after in pairwise(files)]
    size = min(distances, default=0)
    return [
        (file, size if length > size // 2 and size else length)
        for file, length in zip(files, lengths, strict=True)
    ]


def _within(files: list[tuple[Path, int]], selection: Selection) -> list[tuple[Path, int]]:
    """Return the files that may hold selected records, by offset or time of their first record."""
    first, last = (
        None if bound and selection.by_queue and not bound.is_time else bound
        for bound in (selection.first, selection.last)
    )
    begin = 0
    if first:
        starts = [_position(file, first) for file, _ in files]
        # Strictly before: records of one millisecond may be in two files.
        before = [at for at, start in enumerate(starts) if start and start < first.value]
        begin = before[-1] if before else 0
    return [
        (file, size)
        for file, size in files[begin:]
        if last is None or _position(file, last) < last.value
    ]


def _position(file: Path, bound: Bound) -> int:
    """Offset or store time of a file's first record; 0 if unknown."""
    if not bound.is_time:
        return int(file.name)
    record = read_one(file, int(file.name))
    return 0 if isinstance(record, str) else record.store_timestamp


# ---- by the queue


def _queue_of(path: Path, selection: Selection) -> QueueFiles | None:
    """Return the selected consume queue, if the store has it."""
    if not (path / "commitlog").is_dir() or selection.topic is None:
        return None
    directory = path / "consumequeue" / selection.topic / str(selection.queue_id)
    files = QueueFiles(directory, Layout.read_off(path).queue_file_size)
    return files if files else None


def _batch_queue_of(path: Path, selection: Selection) -> QueueFiles | None:
    """Return the selected batch queue, if the store has it."""
    if not (path / "commitlog").is_dir() or selection.topic is None:
        return None
    directory = path / BATCH_DIRECTORY / selection.topic / str(selection.queue_id)
    size = Layout.read_off(path).batch_queue_file_size
    files = QueueFiles(directory, size, BATCH_UNIT_SIZE)
    return files if files else None


def _dump_batches(
    queue: QueueFiles, files: list[tuple[Path, int]], selection: Selection, warn: Warn
) -> Iterator[Record]:
    starts = [int(file.name) for file, _ in files]
    for _, data in queue.blocks(queue.first, queue.end):
        for unit in map(BatchUnit._make, BATCH_UNIT.iter_unpack(data)):
            if unit.size <= 0 or unit.physical_offset < starts[0]:
                continue
            record = _record_of(unit.physical_offset, files, starts)
            if isinstance(record, str):
                warn(f"queue offset {unit.base}, at {unit.physical_offset}: {record}")
            else:
                yield from filter(selection.wants, unwrap(record))


def _record_of(
    physical_offset: int, files: list[tuple[Path, int]], starts: list[int]
) -> Record | str:
    at = bisect_left(starts, physical_offset + 1) - 1
    return read_one(files[at][0], physical_offset) if at >= 0 else "it was removed"


def _dump_queue(
    queue: QueueFiles, files: list[tuple[Path, int]], selection: Selection, warn: Warn
) -> Iterator[Record]:
    starts = [int(file.name) for file, _ in files]
    first = selection.first.value if selection.first and not selection.first.is_time else 0
    last = selection.last.value if selection.last and not selection.last.is_time else queue.end
    for offset, data in queue.blocks(first, min(last, queue.end)):
        for number, fields in enumerate(UNIT.iter_unpack(data)):
            unit = Unit._make(fields)
            expired = unit.physical_offset < starts[0]
            if unit.size <= 0 or unit.size == BLANK_SIZE or expired:
                continue
            record = _record_of(unit.physical_offset, files, starts)
            if isinstance(record, str):
                warn(f"queue offset {offset + number}, at {unit.physical_offset}: {record}")
            elif selection.wants(record):
                yield record
