import threading
from pathlib import Path

import pytest

from bolide.kernel.units import UNIT
from bolide.store.consume_queue import ConsumeQueue
from bolide.store.disk import Disk
from bolide.store.queue_table import QueueTable


@pytest.fixture
def table(tmp_path: Path) -> QueueTable:
    return open_table(tmp_path)


def open_table(tmp_path: Path, disk: Disk | None = None) -> QueueTable:
    table = QueueTable(tmp_path / "consumequeue", 160, disk=disk or Disk())
    table.load()
    return table


def put(table: QueueTable, topic: bytes, queue_id: int, *places: int) -> ConsumeQueue:
    queue = table.require(topic, queue_id)
    for place in places:
        queue.append(UNIT.pack(place, 100, 0))
    table.changed(queue)
    return queue


def write_all(table: QueueTable) -> None:
    table.write(table.take_changed(), 10**9)


def test_a_queue_is_made_once(table: QueueTable) -> None:
    assert table.find(b"T", 0) is None
    queue = table.require(b"T", 0)
    assert table.require(b"T", 0) is table.find(b"T", 0) is queue
    assert table.keys == [(b"T", 0)]
    assert len(table) == 1


@pytest.mark.parametrize("topic", [b"", b".", b"..", b"a/b", b"a\0b", b"x" * 256])
def test_a_topic_that_cannot_be_a_directory_is_refused(table: QueueTable, topic: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a directory"):
        table.require(topic, 0)
    assert table.keys == []


def test_a_queue_id_below_zero_is_refused(table: QueueTable) -> None:
    with pytest.raises(ValueError, match="below 0"):
        table.require(b"T", -1)


@pytest.mark.parametrize(
    "topic", [b"T", b"%RETRY%group", "größe".encode(), b"\xff\xfe", b"x" * 255]
)
def test_queues_are_found_again_under_their_names(tmp_path: Path, topic: bytes) -> None:
    table = open_table(tmp_path)
    put(table, topic, 0, 0, 100)
    put(table, topic, 12, 200)
    write_all(table)
    again = open_table(tmp_path)
    assert sorted(again.keys) == [(topic, 0), (topic, 12)]
    assert again.units() == 3
    assert again.detach_topic(topic, tmp_path / "aside") == 2


def test_what_else_lies_in_the_directory_is_passed_over(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    put(table, b"T", 0, 0)
    write_all(table)
    (tmp_path / "consumequeue" / "readme").write_text("x")
    (tmp_path / "consumequeue" / "T" / "notes").mkdir()
    assert open_table(tmp_path).keys == [(b"T", 0)]


def test_only_changed_queues_are_handed_out_and_only_once(table: QueueTable) -> None:
    first, second = put(table, b"T", 0, 0), put(table, b"T", 1, 100)
    put(table, b"T", 0, 200)
    assert table.take_changed() == {first, second}
    assert table.take_changed() == set()


def test_units_of_records_behind_a_position_wait_and_stay_noted(table: QueueTable) -> None:
    queue = put(table, b"T", 0, 0, 100, 200)
    done = put(table, b"T", 1, 0)
    table.write(table.take_changed(), 200)
    assert (queue.written, done.written) == (2, 1)
    assert table.take_changed() == {queue}


def test_queues_that_could_not_be_written_stay_noted(tmp_path: Path) -> None:
    class FullDisk(Disk):
        full = True

        def create_sparse(self, path: Path, size: int) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return super().create_sparse(path, size)

    disk = FullDisk()
    table = open_table(tmp_path, disk)
    queues = {put(table, b"T", number, 0) for number in range(3)}
    with pytest.raises(OSError, match="No space left"):
        write_all(table)
    disk.full = False
    changed = table.take_changed()
    assert changed == queues
    table.write(changed, 10**9)
    assert open_table(tmp_path).units() == 3


def test_small_changes_are_synced_only_when_asked_for_all(table: QueueTable) -> None:
    queue = put(table, b"T", 0, 0)
    write_all(table)
    table.sync(least_pages=1)
    assert queue.synced == 0
    table.sync()
    assert queue.synced == 1


def test_the_newest_record_with_a_unit_is_known(table: QueueTable) -> None:
    assert table.max_physical_offset() == -1
    put(table, b"T", 0, 0, 500)
    put(table, b"U", 0, 300)
    assert table.max_physical_offset() == 500


def test_truncating_and_rewinding_reach_all_queues(table: QueueTable) -> None:
    put(table, b"T", 0, 0, 200)
    put(table, b"U", 0, 100, 300)
    table.rewind(300)
    assert table.units() == 3
    table.truncate(200)
    assert table.units() == 2


def test_raising_the_minimum_pauses_where_files_went(tmp_path: Path, table: QueueTable) -> None:
    long = put(table, b"T", 0, *range(0, 2000, 100))
    short = put(table, b"U", 0, 1900)
    write_all(table)
    pauses: list[int] = []
    table.raise_minimum(1000, lambda: pauses.append(long.min_offset))
    assert (long.min_offset, short.min_offset) == (10, 0)
    assert pauses == [10]
    assert len(list((tmp_path / "consumequeue" / "T" / "0").iterdir())) == 2


def test_a_detached_topic_is_moved_aside_with_its_files(tmp_path: Path, table: QueueTable) -> None:
    put(table, b"T", 0, 0)
    put(table, b"T", 1, 100)
    put(table, b"U", 0, 200)
    write_all(table)
    assert table.detach_topic(b"T", tmp_path / "aside") == 2
    assert table.keys == [(b"U", 0)]
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert sorted(path.name for path in (tmp_path / "aside").iterdir()) == ["0", "1"]
    assert table.detach_topic(b"T", tmp_path / "again") == 0


def test_a_topic_that_was_never_written_is_detached_too(tmp_path: Path, table: QueueTable) -> None:
    put(table, b"T", 0, 0)
    assert table.detach_topic(b"T", tmp_path / "aside") == 1
    assert not (tmp_path / "aside").exists()


def test_a_topic_removed_between_taking_and_writing_does_not_come_back(
    tmp_path: Path, table: QueueTable
) -> None:
    put(table, b"T", 0, 0)
    taken = table.take_changed()
    table.detach_topic(b"T", tmp_path / "aside")
    table.write(taken, 10**9)
    table.sync()
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert open_table(tmp_path).keys == []


def test_queues_are_read_while_others_write_and_trim(table: QueueTable) -> None:
    queue = put(table, b"T", 0)
    wrong: list[object] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            low, high = queue.min_offset, queue.max_offset
            for offset, unit in enumerate(queue.read(low, high - low), low):
                if unit.physical_offset != offset * 100:
                    wrong.append((offset, unit))

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(0, 4000, 50):
        put(table, b"T", 0, *range(number * 100, (number + 50) * 100, 100))
        if number % 200 == 0:
            write_all(table)
        if number % 1000 == 0:
            table.raise_minimum((number - 500) * 100)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
