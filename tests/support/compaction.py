"""Stores with a compaction topic whose files hold ten messages."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bolide.store.compaction.queue_log import QueueLog
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits, ReadStatus
from tests.support.store import draft, record_of, small_config

TOPIC = "Latest"
PER_FILE = 10
LOG_SIZE, QUEUE_SIZE = 11 * 46 * 9, 11 * 46
Message = tuple[int, str, bytes]
"""Queue offset, key and body."""


def compaction_config(root: Path, **changes: object) -> StoreConfig:
    config = small_config(
        root,
        log_size=64 * 1024,
        queue_units=1000,
        compaction_file_size=LOG_SIZE - 46,
        compaction_queue_file_size=QUEUE_SIZE + 3,
    )
    return replace(config, **changes)  # type: ignore[arg-type]  # options are typed by the class


def opened(
    root: Path, *, disk: Disk | None = None, topic: str = TOPIC, **changes: object
) -> MessageStore:
    """Open a store without threads; close it with `close`."""
    config = compaction_config(root, **changes)
    store = MessageStore(config, disk=disk, background=False).__enter__()
    store.compaction.add(topic)
    store.compaction.open_all()
    return store


def put(store: MessageStore, values: Iterable[tuple[str, bytes]], queue_id: int = 0) -> None:
    """Store messages with keys, and copy them into the compaction log."""
    for key, body in values:
        properties = {"KEYS": key} if key else {}
        store.append(draft(TOPIC, body, queue_id=queue_id, properties=properties))
    store.flush()
    store.compaction.run()


def log_of(store: MessageStore, queue_id: int = 0) -> QueueLog:
    return store.compaction._logs[TOPIC, queue_id]


def read_all(
    store: MessageStore, queue_id: int = 0, begin: int = 0, most: int = 7
) -> list[Message]:
    """Read a queue to its end as a consumer does."""
    found: list[Message] = []
    offset = begin
    while True:
        result = store.read(TOPIC, queue_id, offset, ReadLimits(most))
        for data in result.records:
            record = record_of(data)
            key = record.decode_properties().get("KEYS", "")
            found.append((record.queue_offset, key, bytes(record.body)))
        if result.status in (ReadStatus.OFFSET_OVERFLOW_ONE, ReadStatus.NO_MESSAGE_IN_QUEUE):
            return found
        assert result.status in (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE), result
        assert result.next_offset > offset
        offset = result.next_offset


def newest(values: Iterable[tuple[str, bytes]], below: int) -> list[Message]:
    """What is left of values when those before an offset have been compacted."""
    numbered = [(offset, key, body) for offset, (key, body) in enumerate(values)]
    last = {key: offset for offset, key, _ in numbered if offset < below}
    return [
        (offset, key, body)
        for offset, key, body in numbered
        if offset >= below or (body and last[key] == offset)
    ]
