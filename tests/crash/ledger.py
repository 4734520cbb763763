"""What a store has promised, and whether it keeps it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bolide.protocol.record import Record, read_record
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits, ReadStatus
from tests.crash.letters import Name, name_of, was_sent, was_torn


def small_config(root: Path, mode: FlushMode = FlushMode.ASYNC, **changes: object) -> StoreConfig:
    """Files so small that a few messages fill them, on a disk that is never too full."""
    values: dict[str, object] = {
        "root": root,
        "flush_mode": mode,
        "commit_log_file_size": 16 * 1024,
        "consume_queue_file_size": 40 * 20,
        "max_hash_slots": 50,
        "max_index_entries": 300,
        "disk_warning_ratio": 1.0,
        "disk_clean_forcibly_ratio": 1.0,
        "disk_max_used_ratio": 1.0,
    }
    return StoreConfig(**(values | changes))  # type: ignore[arg-type]


class Entry(NamedTuple):
    """A message that was acknowledged."""

    name: Name
    topic: str
    queue_id: int
    queued: bool
    place: Appended


@dataclass
class Ledger:
    entries: dict[Name, Entry] = field(default_factory=dict)
    gone: set[Name] = field(default_factory=set)
    """Messages that a recovery did not find: they must not come back."""

    def add(self, entry: Entry) -> None:
        assert entry.name not in self.entries
        self.entries[entry.name] = entry

    def check(
        self, store: MessageStore, *, may_be_torn: bool = False, keys: bool = True
    ) -> dict[Name, Record]:
        """Assert that all of it is there, and nothing that was never sent.

        Returns:
            What is readable.
        """
        seen: dict[Name, Record] = {}
        for topic, queue_id in store.queues.keys:
            for record in read_all(store, topic.decode(), queue_id):
                name = name_of(record)
                assert was_sent(record) or (may_be_torn and was_torn(record)), record
                assert (record.topic, record.queue_id) == (topic.decode(), queue_id)
                assert name not in seen, f"{name} is there twice"
                assert name not in self.gone, f"{name} is back"
                seen[name] = record
        for entry in self.entries.values():
            if entry.place.physical_offset >= store.log.min_offset:
                self._check_entry(store, entry, seen)
        if keys:
            check_keys(store, {name: record for name, record in seen.items() if was_sent(record)})
        return seen

    def _check_entry(self, store: MessageStore, entry: Entry, seen: dict[Name, Record]) -> None:
        place = entry.place
        data = store.record_at(place.physical_offset)
        assert data is not None, f"{entry} is lost"
        record = read_record(bytes(data), check_crc=True)
        assert isinstance(record, Record)
        assert was_sent(record)
        assert name_of(record) == entry.name
        if entry.queued:
            assert entry.name in seen, f"{entry} is not in its queue"
            found = seen[entry.name]
            assert (found.physical_offset, found.queue_offset) == (
                place.physical_offset, place.queue_offset,
            )  # fmt: skip


def read_all(store: MessageStore, topic: str, queue_id: int) -> list[Record]:
    """Every message of a queue; asserts that it has no gap and that every body is sound."""
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    records: list[Record] = []
    offset, place = low, -1
    while offset < high:
        found = store.read(topic, queue_id, offset, ReadLimits(max_count=1000))
        assert found.status is ReadStatus.FOUND, (topic, queue_id, offset, found)
        for data in found.records:
            # Copied: a view would keep the mapping from being closed.
            record = read_record(bytes(data), check_crc=True)
            assert isinstance(record, Record)
            assert record.queue_offset == offset, "a queue has a gap"
            assert record.physical_offset > place, "a queue is not in the order of the log"
            offset, place = offset + 1, record.physical_offset
            records.append(record)
    return records


def check_keys(store: MessageStore, seen: dict[Name, Record]) -> None:
    """Assert that every message is found by both of its keys, and nothing else is."""
    for name, record in seen.items():
        for key in (name.key, f"id-{name.key}"):
            places = [
                found.physical_offset
                for data in store.find(record.topic, key)
                if isinstance(found := read_record(bytes(data)), Record) and name_of(found) == name
            ]
            assert places == [record.physical_offset], f"{key} is not in the index"
