"""Kinds of stores and topics that RocketMQ has and Bolide has not: they are refused by name.

To serve half of one would hide messages, or have them read twice.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.errors import UnservedStore

LIGHT_PREFIX = "%LMQ%"
"""With which the names of light message queues begin."""

_ROCKSDB_MARK = "CURRENT"
_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "rdb")
_KEY_VALUE = ("rocksdbstore", "kvStore")
_MOST_NAMES = 5
_KINDS = {"queue.type": "BatchCQ", "cleanup.policy": "COMPACTION"}


def refuse_unserved(root: Path) -> None:
    """Look at the directories of a store, before anything in it is changed.

    Raises:
        UnservedStore: it has queues or tables of a kind that is not served.
    """
    for refused in _unserved(root):
        raise refused


def _unserved(root: Path) -> Iterator[UnservedStore]:
    queues = root / "consumequeue"
    if _is_rocksdb(queues):
        yield UnservedStore(
            queues, "the consume queues are in RocksDB",
            "move this directory away, and they are made anew from the commit log",
        )  # fmt: skip
    for path in (root / "config" / name for name in _TABLES):
        if _is_rocksdb(path):
            yield UnservedStore(
                path, "this table is in RocksDB",
                "have RocketMQ write it as JSON (mqadmin rocksDBConfigToJson), put that below"
                " config, and move this directory away",
            )  # fmt: skip
    for path in (root / name for name in _KEY_VALUE):
        if _is_rocksdb(path) and _has_content(path):
            yield UnservedStore(
                path, "timers, transactions or pops are kept in RocksDB",
                "let RocketMQ deliver them first, with the settings for RocksDB off, then move"
                " this directory away",
            )  # fmt: skip
    yield from _topics_in(root / "batchconsumequeue", "topics with queue.type=BatchCQ")
    compacted = root / "compaction" / "compactionLog"
    yield from _topics_in(compacted, "topics with cleanup.policy=COMPACTION")
    yield from _topics_in(queues, "light message queues", LIGHT_PREFIX)


def _topics_in(directory: Path, what: str, prefix: str = "") -> Iterator[UnservedStore]:
    found = [path.name for path in _subdirectories(directory) if path.name.startswith(prefix)]
    if found:
        yield UnservedStore(
            directory, f"has {what} ({_named(found)})",
            "read them with RocketMQ, delete them there (mqadmin deleteTopic), then move what is"
            " left of them away",
        )  # fmt: skip


def refuse_unserved_topics(topics: Iterable[TopicConfig], table: Path) -> None:
    """Look at the topics that a table tells of.

    Raises:
        UnservedStore: some are of a kind that is not served.
    """
    for attribute, kind in _KINDS.items():
        found = [
            topic.topic_name
            for topic in topics
            if topic.attributes.get(attribute, "").lower() == kind.lower()
        ]
        if found:
            raise UnservedStore(
                table, f"has topics with {attribute}={kind} ({_named(found)})",
                "delete them with RocketMQ (mqadmin deleteTopic), or take that attribute away here"
                " to have their messages as plain ones",
            )  # fmt: skip


def _named(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _is_rocksdb(directory: Path) -> bool:
    return (directory / _ROCKSDB_MARK).is_file()


def _has_content(directory: Path) -> bool:
    """RocketMQ 5.5 makes the database whether or not it is to use it."""
    return any(
        path.suffix == ".sst" or (path.suffix == ".log" and path.stat().st_size)
        for path in directory.iterdir()
    )


def _subdirectories(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from (path for path in directory.iterdir() if path.is_dir())
