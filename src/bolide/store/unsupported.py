"""Refuses stores and topics of kinds that RocketMQ has and Bolide does not support.

Serving such a store in part would hide messages or deliver them twice.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.batch_queue import BATCH_DIRECTORY
from bolide.store.errors import UnsupportedStore
from bolide.store.tables import has_batch_queues, read_topics

LIGHT_PREFIX = "%LMQ%"
"""Prefix of the names of light message queues."""

_ROCKSDB_FILE = "CURRENT"
_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "rdb")
_KEY_VALUE = ("rocksdbstore", "kvStore")
_MOST_NAMES = 5
_KINDS = {"message.type": "LITE"}


def refuse_unsupported(root: Path) -> None:
    """Check the directories of a store, before anything in it is changed.

    Raises:
        UnsupportedStore: the store has queues or tables of an unsupported kind.
    """
    for refused in _unsupported(root):
        raise refused


def refuse_unsupported_topics(topics: Iterable[TopicConfig], table: Path) -> None:
    """Check the topics of the topic table.

    Raises:
        UnsupportedStore: some topics are of an unsupported kind.
    """
    topics = list(topics)
    for attribute, kind in _KINDS.items():
        found = [
            topic.topic_name
            for topic in topics
            if topic.attributes.get(attribute, "").lower() == kind.lower()
        ]
        if found:
            raise UnsupportedStore(
                table, f"has topics with {attribute}={kind} ({_named(found)})",
                "delete them with RocketMQ (mqadmin deleteTopic), or take that attribute away here"
                " to have their messages as plain ones",
            )  # fmt: skip
    both = [
        topic.topic_name
        for topic in topics
        if has_batch_queues(topic) and topic.attributes.get("cleanup.policy") == "COMPACTION"
    ]
    if both:
        raise UnsupportedStore(
            table, f"has topics with both queue.type=BatchCQ and compaction ({_named(both)})",
            "take cleanup.policy away from them: a compaction keeps records, and theirs hold"
            " several messages",
        )  # fmt: skip


def _unsupported(root: Path) -> Iterator[UnsupportedStore]:
    queues = root / "consumequeue"
    if _is_rocksdb(queues):
        yield UnsupportedStore(
            queues, "the consume queues are in RocksDB",
            "move this directory away, and they are made anew from the commit log",
        )  # fmt: skip
    for path in (root / "config" / name for name in _TABLES):
        if _is_rocksdb(path):
            yield UnsupportedStore(
                path, "this table is in RocksDB",
                "have RocketMQ write it as JSON (mqadmin rocksDBConfigToJson), put that below"
                " config, and move this directory away",
            )  # fmt: skip
    for path in (root / name for name in _KEY_VALUE):
        if _is_rocksdb(path) and _has_content(path):
            yield UnsupportedStore(
                path, "timers, transactions or pops are kept in RocksDB",
                "let RocketMQ deliver them first, with the settings for RocksDB off, then move"
                " this directory away",
            )  # fmt: skip
    yield from _topics_in(queues, "light message queues", LIGHT_PREFIX)
    yield from _of_another_type(root)


def _of_another_type(root: Path) -> Iterator[UnsupportedStore]:
    """Queues whose type is not that of their topic; a Java broker does not open them either."""
    for batches, directory in ((False, root / BATCH_DIRECTORY), (True, root / "consumequeue")):
        with_queues = [path.name for path in _subdirectories(directory) if any(path.iterdir())]
        if with_queues and (found := _typed(root, batches=batches).intersection(with_queues)):
            kind = "BatchCQ" if batches else "SimpleCQ"
            yield UnsupportedStore(
                directory, f"has queues of topics with queue.type={kind} ({_named(list(found))})",
                "give the topics in config/topics.json their old queue.type, or move the"
                " directories of these topics away: their queues are made anew from the commit log",
            )  # fmt: skip


def _typed(root: Path, *, batches: bool) -> set[str]:
    topics = read_topics(root).topic_config_table.items()
    return {name for name, topic in topics if has_batch_queues(topic) is batches}


def _topics_in(directory: Path, what: str, prefix: str = "") -> Iterator[UnsupportedStore]:
    found = [path.name for path in _subdirectories(directory) if path.name.startswith(prefix)]
    if found:
        yield UnsupportedStore(
            directory, f"has {what} ({_named(found)})",
            "read them with RocketMQ, delete them there (mqadmin deleteTopic), then move what is"
            " left of them away",
        )  # fmt: skip


def _named(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _is_rocksdb(directory: Path) -> bool:
    return (directory / _ROCKSDB_FILE).is_file()


def _has_content(directory: Path) -> bool:
    """RocketMQ 5.5 creates the database even if the settings for RocksDB are off."""
    return any(
        path.suffix == ".sst" or (path.suffix == ".log" and path.stat().st_size)
        for path in directory.iterdir()
    )


def _subdirectories(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from (path for path in directory.iterdir() if path.is_dir())
