"""Our turn with a store directory, as a process of its own so that it can be killed.

It opens the store, reads everything, appends a mixed load, reads everything again and leaves both
readings in a file; then it closes the store, or says "appended" and waits for its end.
"""

import pickle
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolide.model.message import Host
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.hosts import pack_host
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import RecordDraft
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore
from bolide.store.tables import TOPICS, Table
from tests.interop.store_facts import Queue, read_by_ours

QUEUES_OF_TOPICS = {"Orders": 4, "Events": 2, "Single": 1}
DELAYED = "SCHEDULE_TOPIC_XXXX"
DELAY_LEVELS = 18

WRITTEN = [Queue(topic, n) for topic, count in QUEUES_OF_TOPICS.items() for n in range(count)]
WATCHED = [Queue(DELAYED, n) for n in range(DELAY_LEVELS)] + WRITTEN

SINGLES = 150
BATCHES = 7
BATCH = 8
MAX_BODY = 4000
TAGS = ("", "paid", "sent", "标签")

# Small, so that a few hundred messages fill several files of each kind.
SIZES = {
    "mappedFileSizeCommitLog": 256 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 1000,
    "maxMessageSize": 64 * 1024,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What the process is asked to do, and where it leaves its two readings."""

    root: Path
    name: str
    broker: Host
    times: list[tuple[Queue, int]]
    readings: Path
    close: bool


def main(turn: Turn) -> None:
    with MessageStore(config(turn.root)) as store:
        before = read_by_ours(store, turn.root, WATCHED, turn.times)
        append(store, turn.name, pack_host(turn.broker))
        after = read_by_ours(store, turn.root, WATCHED, turn.times)
        turn.readings.write_bytes(pickle.dumps((before, after)))
        print("appended", flush=True)
        if not turn.close:
            signal.pause()


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        commit_log_file_size=SIZES["mappedFileSizeCommitLog"],
        consume_queue_file_size=SIZES["mappedFileSizeConsumeQueue"],
        max_hash_slots=SIZES["maxHashSlotNum"],
        max_index_entries=SIZES["maxIndexNum"],
        max_message_size=SIZES["maxMessageSize"],
    )


def write_topics(root: Path) -> None:
    """Put the topics where a broker looks for them at its start."""
    table = Table(root / "config", TOPICS)
    for topic, count in QUEUES_OF_TOPICS.items():
        table.value.topic_config_table[topic] = TopicConfig(
            topic_name=topic, read_queue_nums=count, write_queue_nums=count
        )
    table.changed()
    table.save()


def append(store: MessageStore, name: str, store_host: bytes) -> None:
    drafts = _Drafts(name, store_host)
    for n in range(SINGLES):
        store.append(drafts.single(WRITTEN[n % len(WRITTEN)], n))
    for n in range(BATCHES):
        store.append_batch(list(drafts.batch(WRITTEN[n % len(WRITTEN)], n)))
    for level in (1, 9, 1, 18):
        store.append(drafts.delayed(level))


class _Drafts:
    """Messages as a broker hands them to the store; the name tells the rounds apart."""

    def __init__(self, name: str, store_host: bytes) -> None:
        self._name = name
        self._store_host = store_host
        self._random = random.Random(name)
        self._born_host = pack_host(Host("127.0.0.1", 54321))

    def single(self, queue: Queue, n: int) -> RecordDraft:
        keys = ((), (f"one-{self._name}-{n}",), (f"many-{self._name}-{n}", "popular"))[n % 3]
        size = 1 if n == 0 else self._random.randint(1, MAX_BODY)
        return self._draft(queue, size, n, *keys, number=str(n), 名="ä 😀")

    def batch(self, queue: Queue, n: int) -> Iterator[RecordDraft]:
        for part in range(BATCH):
            size = self._random.randint(1, 500)
            yield self._draft(queue, size, part, f"batch-{self._name}-{n}", "popular")

    def delayed(self, level: int) -> RecordDraft:
        """As `DelayScheduler` stores it: in the queue of its level, with its own as properties."""
        named = {
            PropertyName.DELAY_LEVEL: str(level),
            PropertyName.REAL_TOPIC: WRITTEN[0].topic,
            PropertyName.REAL_QUEUE_ID: str(WRITTEN[0].queue_id),
        }
        key = f"delayed-{level}-{self._name}"
        return self._draft(Queue(DELAYED, level - 1), 100, 1, key, **named)

    def _draft(self, queue: Queue, size: int, n: int, *keys: str, **properties: str) -> RecordDraft:
        named = {
            PropertyName.UNIQUE_ID: self._random.randbytes(16).hex().upper(),
            PropertyName.TAGS: TAGS[n % len(TAGS)],
            PropertyName.KEYS: " ".join(keys),
        }
        given = {name: text for name, text in named.items() if text} | properties
        return RecordDraft(
            queue.topic.encode(),
            self._random.randbytes(size),
            encode_properties(given).encode(),
            queue.queue_id,
            time.time_ns() // 1_000_000,
            self._born_host,
            self._store_host,
            flag=n % 3,
        )


if __name__ == "__main__":
    main(pickle.loads(Path(sys.argv[1]).read_bytes()))
