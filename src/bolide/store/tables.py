"""The small tables in a store's `config` directory, in the JSON that Java brokers read and write.

A table lives in memory and is saved whole. The shapes are those of RocketMQ 5.x; 4.9 lacks the
versions and the forbidden table, and both releases read both forms.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import field

from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.pop import RequestModeTable
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.protocol.bodies.topics import QueueMappingTable, TopicConfig, TopicConfigTable
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

log = logging.getLogger(__name__)

T = TypeVar("T")

_SLICE = 256
"""Entries of a map that are encoded at a time."""
_BARE_KEY = re.compile(rb"[{,]\s*-?[0-9]+\s*:")
_STRING_OR_BARE_KEY = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9]+)(?=\s*:)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableKind(Generic[T]):
    """The contents of a table; calling `shape` without arguments makes an empty one.

    `interval` is the least number of seconds between two saves. `encode` may run on another
    thread than the one that changes the table, so it copies maps by `list` before iterating.
    """

    file_name: str
    shape: type[T]
    interval: float
    encode: Callable[[T], bytes]


class Table(Generic[T]):
    """The value of a table and its file.

    The file is replaced as a whole and its predecessor is kept as `.bak`: after a crash either the
    old table or the new one is read. Java 5.x renames the file to `.bak` before it writes, so a
    backup alone is valid too. Saving blocks; it may run on any one thread while others change the
    value and call `changed`.
    """

    def __init__(
        self,
        directory: Path,
        kind: TableKind[T],
        *,
        disk: Disk | None = None,
        interval: float | None = None,
    ) -> None:
        self.path = directory / kind.file_name
        self.value = kind.shape()
        self.interval = kind.interval if interval is None else interval
        self._kind = kind
        self._disk = disk or Disk()
        self.changes = 0
        """Number of changes since the broker started."""
        self._dirty = False
        self._damaged = False
        self._last_try = -math.inf

    def load(self) -> None:
        """Read the file, or its backup if the file is missing, empty or unreadable.

        Without either the table is empty.

        Raises:
            DamagedFile: the file or its backup exists, but neither can be read.
        """
        backup = self.path.with_name(self.path.name + ".bak")
        faults = []
        for path in (self.path, backup):
            try:
                found = _read(path, self._kind.shape)
            except (OSError, fastjson.BadJson) as exc:
                faults.append((path, str(exc)))
                continue
            if found is not None:
                self._use(found, path, faults)
                return
        if faults:
            path, reason = faults[0]
            raise DamagedFile(
                path, f"{reason}; there is nothing else to read: mend it or move it away"
            )
        self.value = self._kind.shape()

    def changed(self) -> None:
        """Record that the value has changed and must be saved."""
        self.changes += 1
        self._dirty = True

    def encode(self, value: T | None = None) -> bytes:
        """The table, or another value of its kind, as its file has it."""
        return self._kind.encode(self.value if value is None else value)

    def decode(self, data: bytes) -> T:
        """Read a table that another broker sent. Raises BadJson."""
        return decode_table(data, self._kind.shape)

    def save_due(self, now: float) -> bool:
        """Save if the value changed and the interval has passed; `now` is in seconds of any clock.

        Raises:
            OSError: as `save`.
        """
        if not self._dirty or now - self._last_try < self.interval:
            return False
        self._last_try = now
        return self.save()

    def save(self) -> bool:
        """Write the table if it changed; returns False if it did not. Blocks.

        Raises:
            OSError: the old file is untouched; the next save tries again.
        """
        if not self._dirty:
            return False
        self._dirty = False  # cleared first: later changes are for the next save
        try:
            data = self._kind.encode(self.value)
            self._put_damaged_aside()
            self._disk.replace(self.path, data)
        except BaseException:
            self._dirty = True
            raise
        return True

    def _use(self, value: T, path: Path, faults: list[tuple[Path, str]]) -> None:
        self.value = value
        if path == self.path:
            return
        reason = faults[0][1] if faults else "it is missing or empty"
        log.warning("%s is read in place of %s: %s", path, self.path.name, reason)
        self._damaged = bool(faults)
        self._dirty = True

    def _put_damaged_aside(self) -> None:
        """Rename an unreadable file, so that it does not replace the good backup."""
        if self._damaged:
            self.path.replace(self.path.with_name(self.path.name + ".damaged"))
            self._damaged = False


def _read(path: Path, shape: type[T]) -> T | None:
    """Return the table in a file, or None if the file is missing or blank."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return decode_table(data, shape) if data.strip() else None


def decode_table(data: bytes, shape: type[T]) -> T:
    """Decode a table, as its file has it or another broker sends it, of any size.

    Raises:
        BadJson: it is damaged.
    """
    if b"\0" in data:  # white space to Java's parser, and what a power cut leaves of a block
        raise fastjson.BadJson("the file has zero bytes: part of it was never written")
    try:
        return msgspec.json.decode(data, type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return fastjson.decode(_quote_keys(data), shape)


def _quote_keys(data: bytes) -> bytes:
    """Put quotes around bare numeric keys: standard JSON is decoded much faster."""
    if not _BARE_KEY.search(data):
        return data
    return _STRING_OR_BARE_KEY.sub(lambda key: b'"%b"' % key[1] if key[1] else key[0], data)


# ---- contents


class DelayOffsets(Struct, kw_only=True):
    """Queue offset up to which each delay level has been delivered."""

    offset_table: dict[int, Long] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class BloomPositions(Struct, kw_only=True):
    """The bits of one consumer in the bit maps of consume queue extensions."""

    bit_num: Int = 0
    bit_pos: list[Int] = field(default_factory=list)


class ConsumerFilter(Struct, kw_only=True):
    """The SQL filter of one group on one topic; times in milliseconds."""

    consumer_group: str
    topic: str
    expression: str | None = None
    expression_type: str | None = None
    born_time: Long = 0
    dead_time: Long = 0
    client_version: Long = 0
    bloom_filter_data: BloomPositions | None = None
    dead: bool = False  # written for Java's tools; derived from the two times when read

    def is_dead(self) -> bool:
        """Whether the group's consumers have left since the filter was made."""
        return self.dead_time >= self.born_time


class TopicFilters(Struct, kw_only=True):
    topic: str
    group_filter_data: dict[str, ConsumerFilter] = field(default_factory=dict)


class ConsumerFilters(Struct, kw_only=True):
    """SQL filters by topic and group (`ConsumerFilterManager`)."""

    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict)


# ---- encodings


def _encode(value: msgspec.Struct) -> bytes:
    """Encode with sorted keys, and maps in slices: no step holds the interpreter for long.

    Their keys are sorted here. msgspec's own sort takes quadratic time for keys that are almost in
    order, as those of most tables are.
    """
    names = sorted(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
    members = [(wire, getattr(value, name)) for wire, name in names]
    texts = [
        f' "{wire}": '.encode() + (_encode_map if isinstance(found, dict) else _indented)(found)
        for wire, found in members
    ]
    return b"{\n" + b",\n".join(texts) + b"\n}"


def _encode_map(entries: dict[str, object]) -> bytes:
    keys, texts = sorted(entries), []
    for start in range(0, len(keys), _SLICE):
        some = keys[start : start + _SLICE]
        found = {key: value for key in some if (value := entries.get(key)) is not None}
        if found:  # unless all have been removed meanwhile
            texts.append(_indented(found).removeprefix(b"{").removesuffix(b"\n }"))
    return b"{" + b",".join(texts) + b"\n }" if texts else b"{}"


def _indented(value: object) -> bytes:
    """Encode the value of a member."""
    text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1)
    return text.replace(b"\n", b"\n ")  # there is no other line break in JSON


def encode_consumer_offsets(offsets: ConsumerOffsets, *, quote_numbers: bool = False) -> bytes:
    """Encode as Java's file has it, or with quotes around numeric keys.

    Slaves of RocketMQ 5.x (fastjson2) refuse keys without quotes in an answer; 4.9 reads both.
    """
    rows = list(offsets.offset_table.items())
    by_number = _by_quoted_number if quote_numbers else _by_number
    version, groups = _text(offsets.data_version), _text(_topics_by_group(key for key, _ in rows))
    table = ",\n".join([f"  {_text(key)}:{by_number(queues)}" for key, queues in rows])
    return (
        f'{{\n "dataVersion":{version},\n "groupTopicMap":{groups},'
        f'\n "offsetTable":{{\n{table}\n }}\n}}'
    ).encode()


def encode_delay_offsets(offsets: DelayOffsets, *, quote_numbers: bool = False) -> bytes:
    """Encode as `encode_consumer_offsets`."""
    by_number = _by_quoted_number if quote_numbers else _by_number
    version, table = _text(offsets.data_version), by_number(offsets.offset_table)
    return f'{{\n "dataVersion":{version},\n "offsetTable":{table}\n}}'.encode()


def _encode_filters(filters: ConsumerFilters) -> bytes:
    for topic in list(filters.filter_data_by_topic.values()):
        for found in list(topic.group_filter_data.values()):
            found.dead = found.is_dead()
    return _encode(filters)


def _topics_by_group(keys: Iterable[str]) -> dict[str, list[str]]:
    """The `groupTopicMap` that Java writes beside the offsets and never reads."""
    found: dict[str, list[str]] = {}
    for key in keys:
        topic, _, group = key.partition("@")
        found.setdefault(group, []).append(topic)
    return dict(sorted(found.items()))  # see `_encode`


def _by_number(numbers: Mapping[int, int]) -> str:
    """Encode a map as fastjson does: without quotes around numeric keys."""
    return "{" + ",".join([f"{key}:{number}" for key, number in list(numbers.items())]) + "}"


def _by_quoted_number(numbers: Mapping[int, int]) -> str:
    return "{" + ",".join([f'"{key}":{number}' for key, number in list(numbers.items())]) + "}"


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


# ---- the tables

_QUEUE_TYPE, _BATCH_QUEUES = "queue.type", "BatchCQ"

TOPICS = TableKind("topics.json", TopicConfigTable, 0.0, _encode)
GROUPS = TableKind("subscriptionGroup.json", GroupConfigTable, 0.0, _encode)
CONSUMER_OFFSETS = TableKind("consumerOffset.json", ConsumerOffsets, 5.0, encode_consumer_offsets)
DELAY_OFFSETS = TableKind("delayOffset.json", DelayOffsets, 10.0, encode_delay_offsets)
REQUEST_MODES = TableKind("messageRequestMode.json", RequestModeTable, 0.0, _encode)
CONSUMER_FILTERS = TableKind("consumerFilter.json", ConsumerFilters, 10.0, _encode_filters)
QUEUE_MAPPINGS = TableKind("topicQueueMapping.json", QueueMappingTable, 0.0, fastjson.encode)
TIMER_METRICS = TableKind("timermetrics", TimerMetrics, 10.0, _encode)


def with_batch_queues(topic: TopicConfig) -> TopicConfig:
    """The topic with batch queues as its only attribute."""
    return msgspec.structs.replace(topic, attributes={_QUEUE_TYPE: _BATCH_QUEUES})


def has_batch_queues(topic: TopicConfig) -> bool:
    """Whether the queues of a topic are batch queues (`QueueTypeUtils.isBatchCq`)."""
    return topic.attributes.get(_QUEUE_TYPE) == _BATCH_QUEUES


def read_topics(root: Path) -> TopicConfigTable:
    """Return the topic table of a store; it is empty if there is none. Blocks.

    Raises:
        DamagedFile: the table exists and cannot be read.
    """
    table = Table(root / "config", TOPICS)
    table.load()
    return table.value


def read_batch_topics(root: Path) -> set[str]:
    """Return the topics with batch queues in the topic table of a store. Blocks.

    Raises:
        DamagedFile: as `read_topics`.
    """
    topics = read_topics(root).topic_config_table
    return {name for name, topic in topics.items() if has_batch_queues(topic)}
