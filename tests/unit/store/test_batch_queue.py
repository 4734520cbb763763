"""Batch queues: the bytes of their units, lookups by message offset, and life after a crash."""

import errno
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.inner_batch import unwrap
from bolide.store.batch_queue import BATCH_UNIT_SIZE, BatchQueue, BatchUnit, unit_of
from bolide.store.batch_reading import batch_offset_at
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.descriptors import DescriptorCache
from bolide.store.disk import Disk
from bolide.store.layout import Layout
from bolide.store.message_store import MessageStore
from bolide.store.reading import MessageFilter, ReadLimits, ReadStatus
from bolide.store.verify import verify
from tests.support.batches import batch_draft, items
from tests.support.clock import FakeClock
from tests.support.faults import FaultyDisk
from tests.support.store import MONDAY_NOON, draft, record_of, small_config


def config_in(root: Path, **changes: object) -> StoreConfig:
    return small_config(root, **{"batch_queue_file_size": 4 * BATCH_UNIT_SIZE, **changes})  # type: ignore[arg-type]


def store_in(root: Path, clock: FakeClock | None = None, **changes: object) -> MessageStore:
    chosen = clock or FakeClock(MONDAY_NOON)
    return MessageStore(config_in(root, **changes), clock=chosen, background=False)


def fill(store: MessageStore, sizes: list[int], first: int = 0) -> int:
    """Append records with so many messages each; those with none are no inner batches."""
    for size in sizes:
        store.append(batch_draft(items(first, size)) if size else draft("Bulk", b"%d" % first))
        first += size or 1
    return first


def content(store: MessageStore) -> list[tuple[int, bytes]]:
    """Queue offsets and bodies of all messages of the queue."""
    found, at = [], store.min_offset("Bulk", 0)
    while (step := store.read("Bulk", 0, at)).status is ReadStatus.FOUND:
        for data in step.records:
            found += [(each.queue_offset, bytes(each.body)) for each in unwrap(record_of(data))]
        at = step.next_offset
    return found


def numbers(end: int, first: int = 0) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(first, end)]


def queue_bytes(root: Path) -> bytes:
    directory = root / "batchconsumequeue" / "Bulk" / "0"
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir())).rstrip(b"\0")


# ---- units


GOLDEN = Path(__file__).parents[2] / "golden" / "inner-batches-5.x.jsonl"


def test_a_unit_has_the_bytes_that_java_writes() -> None:
    """Batches of four, three and six messages and a message alone, as RocketMQ 5.5.0 left them."""
    rows = [msgspec.json.decode(line) for line in GOLDEN.read_bytes().splitlines()]
    records = [record_of(bytes.fromhex(row["record"])) for row in rows]
    units = [unit_of(record) for record in records]
    assert [unit.encode().hex() for unit in units] == [row["unit"] for row in rows]
    assert [(unit.base, unit.messages) for unit in units] == [(0, 4), (4, 1), (5, 3), (8, 6)]
    inner = [message for record in records for message in unwrap(record)]
    assert [(each.queue_offset, bytes(each.body)) for each in inner] == numbers(14)


def test_units_are_as_long_as_in_java_and_files_hold_whole_ones() -> None:
    assert BATCH_UNIT_SIZE == 46
    assert StoreConfig(batch_queue_file_size=100).batch_queue_file_size == 138
    assert StoreConfig().batch_queue_file_size == 300_000 * 46


# ---- lookups


def queue_of(units: list[tuple[int, int]], directory: Path) -> BatchQueue:
    """A queue in memory, with one record for each pair of messages and store time."""
    queue = BatchQueue(directory, 46 * 4, disk=Disk(), descriptors=DescriptorCache())
    for number, (messages, time) in enumerate(units):
        queue.add(BatchUnit(number * 1000, 1000, number, time, queue.max_offset, messages))
    return queue


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_offset_is_found_in_its_record(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], is_written: bool
) -> None:
    directory = tmp_path_factory.mktemp("queue")
    queue = queue_of([(size, 0) for size in sizes], directory)
    if is_written:
        queue.write_below(2**62)
        queue.sync()
        queue = BatchQueue(directory, 46 * 4, disk=Disk(), descriptors=DescriptorCache())
        queue.load()
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]
    assert (queue.min_offset, queue.max_offset) == (0, len(owners))
    assert [unit.tags_code for unit in queue.read(0, len(owners))] == owners
    for offset, owner in enumerate(owners):
        unit = next(queue.batches(offset, 1))
        assert (unit.tags_code, unit.base <= offset < unit.end) == (owner, True)
    assert not list(queue.batches(len(owners), 1))


def test_the_end_below_a_position_may_be_far_below_the_units_in_memory(tmp_path: Path) -> None:
    queue = queue_of([(3, 0)] * 1000, tmp_path)
    queue.write_below(2**62)
    queue = BatchQueue(tmp_path, 46 * 4, disk=Disk(), descriptors=DescriptorCache())
    queue.load()
    assert queue.tail.base > 700
    for records in (0, 1, 2, 400, 700, 999, 1000):
        assert queue.end_below(records * 1000) == 3 * records
        assert queue.end_below(records * 1000 + 999) == 3 * records


def test_a_time_does_not_mean_a_record_that_is_not_confirmed(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.queues.batch_topics.add(b"Bulk")
        fill(store, [3])
        store.log.confirmed = store.log.end
        fill(store, [3, 3], first=3)
        assert store.max_offset("Bulk", 0) == 3
        assert store.offset_at("Bulk", 0, 2**40 * 1000) == 3


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_the_minimum_is_the_first_message_of_the_first_record_left(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], removed: int
) -> None:
    queue = queue_of([(size, 0) for size in sizes], tmp_path_factory.mktemp("queue"))
    queue.raise_minimum(removed * 1000)
    assert queue.min_offset == sum(sizes[:removed])


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(5, 0, 0), (10, 0, 0), (11, 2, 2), (20, 2, 6), (25, 8, 8), (30, 8, 8), (99, 8, 8)],
)
def test_a_time_means_the_record_that_java_means(
    tmp_path: Path, timestamp: int, lower: int, upper: int
) -> None:
    queue = queue_of([(2, 10), (2, 20), (2, 20), (2, 20), (2, 30)], tmp_path)
    assert batch_offset_at(queue, timestamp, Boundary.LOWER) == lower
    assert batch_offset_at(queue, timestamp, Boundary.UPPER) == upper


# ---- the store


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
@settings(max_examples=25, deadline=None)
def test_a_queue_rebuilt_from_the_log_has_the_bytes_of_the_written_one(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    root = tmp_path_factory.mktemp("store")
    with store_in(root) as store:
        store.set_batched("Bulk", is_batched=True)
        end = fill(store, sizes)
    written = queue_bytes(root)
    for path in (root / "batchconsumequeue" / "Bulk" / "0").iterdir():
        path.unlink()  # the directory itself says which kind of queues the topic has
    with store_in(root) as store:
        assert content(store) == numbers(end)
    assert queue_bytes(root) == written


def test_a_log_cut_at_any_byte_leaves_whole_records_and_their_units(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with store_in(root, index_enabled=False) as store:
        store.set_batched("Bulk", is_batched=True)
        fill(store, [3, 0])
        end = store.log.written
        appended = store.append(batch_draft(items(4, 2)))
    for cut in range(end, appended.end + 1, 1):
        copy = tmp_path / "cut"
        shutil.copytree(root, copy)
        (copy / "abort").write_text("")
        (copy / "checkpoint").unlink()
        with (copy / "commitlog" / f"{0:020}").open("r+b") as file:
            file.seek(cut)
            file.write(bytes(4096 - cut))
        with store_in(copy, index_enabled=False) as store:
            whole = cut == appended.end
            assert content(store) == numbers(6 if whole else 4)
            assert store.append(draft("Bulk", b"next")).queue_offset == (6 if whole else 4)
        shutil.rmtree(copy)


@pytest.mark.parametrize("position", range(0, BATCH_UNIT_SIZE, 3))
def test_a_queue_file_cut_at_any_byte_is_mended(tmp_path: Path, position: int) -> None:
    with store_in(tmp_path) as store:
        store.set_batched("Bulk", is_batched=True)
        fill(store, [2, 2, 0, 3, 1])
    written = queue_bytes(tmp_path)
    path = tmp_path / "batchconsumequeue" / "Bulk" / "0" / f"{4 * BATCH_UNIT_SIZE:020}"
    with path.open("r+b") as file:
        file.truncate(position)
    (tmp_path / "abort").write_text("")
    with store_in(tmp_path) as store:
        assert content(store) == numbers(9)
    assert queue_bytes(tmp_path) == written


def test_batches_that_the_disk_did_not_take_give_their_offsets_back(tmp_path: Path) -> None:
    disk = FaultyDisk()
    config = config_in(tmp_path, mode=FlushMode.SYNC)
    with MessageStore(config, clock=FakeClock(MONDAY_NOON), background=False, disk=disk) as store:
        store.set_batched("Bulk", is_batched=True)
        fill(store, [3, 0])
        assert store.flush()
        assert (store.max_offset("Bulk", 0), store.units) == (4, 4)
        with disk.failing("write", errno.EIO, "commitlog"), disk.failing("sync", errno.EIO):
            fill(store, [5], first=4)
            assert not store.flush()
        store.maintenance.run()
        assert (store.max_offset("Bulk", 0), store.units) == (4, 4)
        assert store.append(batch_draft(items(4, 2))).queue_offset == 4
        assert store.flush()
        assert content(store) == numbers(6)


def test_retention_raises_the_minimum_to_a_whole_record(tmp_path: Path) -> None:
    clock = FakeClock(MONDAY_NOON)
    with store_in(tmp_path, clock, file_reserved_hours=1) as store:
        store.set_batched("Bulk", is_batched=True)
        end = fill(store, [5] * 30)
        store.flush()
        clock.advance(7200)
        store.retention.delete_expired_soon()
        assert store.retention.run()
        low = store.min_offset("Bulk", 0)
        assert low % 5 == 0 < low < end
        assert content(store) == numbers(end, low)
        assert store.read("Bulk", 0, low - 1).status is ReadStatus.OFFSET_TOO_SMALL
    with store_in(tmp_path) as store:
        assert content(store) == numbers(end, low)
        assert store.append(draft("Bulk")).queue_offset == end


def test_the_limits_of_a_read_count_messages(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.set_batched("Bulk", is_batched=True)
        fill(store, [4, 4, 4])
        found = store.read("Bulk", 0, 1, ReadLimits(max_count=8))
        assert (len(found.records), found.count, found.next_offset) == (2, 8, 8)
        none = MessageFilter(code=lambda _: False)
        skipped = store.read("Bulk", 0, 1, wanted=none)
        assert (skipped.status, skipped.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 12)


def test_a_topic_table_says_which_topics_have_batch_queues(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"Bulk":{"topicName":"Bulk","attributes":{"queue.type":"BatchCQ"}}}}'
    )
    with store_in(tmp_path) as store:
        assert fill(store, [3, 0, 2]) == 6
    shutil.rmtree(tmp_path / "batchconsumequeue")
    with store_in(tmp_path) as store:
        assert content(store) == numbers(6)


# ---- verification


def verified(root: Path, *, repair: bool = False) -> list[str]:
    report = verify(Layout.of(config_in(root)), repair=repair)
    assert report.sound is (not report.findings)
    return [finding.reason for finding in report.findings]


def test_a_sound_batch_queue_passes_the_verification(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.set_batched("Bulk", is_batched=True)
        fill(store, [3, 0, 2, 1, 1, 4])
    assert verified(tmp_path) == []
    report = verify(Layout.read_off(tmp_path))
    assert (report.sound, report.queues, report.units) == (True, 1, 6)


@pytest.mark.parametrize("at", [5, 30, 2 * 46 + 29, 5 * 46 + 37])
def test_a_wrong_unit_is_reported_and_repaired(tmp_path: Path, at: int) -> None:
    with store_in(tmp_path) as store:
        store.set_batched("Bulk", is_batched=True)
        fill(store, [3, 0, 2, 1, 1, 4])
    written = queue_bytes(tmp_path)
    directory = tmp_path / "batchconsumequeue" / "Bulk" / "0"
    number, position = divmod(at, 4 * BATCH_UNIT_SIZE)
    path = directory / f"{number * 4 * BATCH_UNIT_SIZE:020}"
    data = bytearray(path.read_bytes())
    data[position] ^= 0x01
    path.write_bytes(data)
    assert len(verified(tmp_path)) == 1
    assert verified(tmp_path, repair=True) == []
    assert queue_bytes(tmp_path) == written
    with store_in(tmp_path) as store:
        assert content(store) == numbers(12)


def test_missing_units_are_reported_and_written_again(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.set_batched("Bulk", is_batched=True)
        fill(store, [3, 0, 2, 1, 1, 4])
    written = queue_bytes(tmp_path)
    path = tmp_path / "batchconsumequeue" / "Bulk" / "0" / f"{4 * BATCH_UNIT_SIZE:020}"
    path.write_bytes(bytes(4 * BATCH_UNIT_SIZE))
    assert "the log has records" in verified(tmp_path)[0]
    assert verified(tmp_path, repair=True) == []
    assert queue_bytes(tmp_path) == written
