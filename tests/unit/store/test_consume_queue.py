import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.kernel.units import BLANK_SIZE, UNIT, UNIT_SIZE
from bolide.store import consume_queue
from bolide.store.consume_queue import ConsumeQueue, Unit
from bolide.store.descriptors import DescriptorCache
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile, NotInMemory

FILE_UNITS = 8
RECORD = 100

Open = Callable[..., ConsumeQueue]


@pytest.fixture
def open_queue(tmp_path: Path) -> Open:
    """Opens the queue of the directory as it is then."""

    def make(disk: Disk | None = None, *, file_units: int = FILE_UNITS) -> ConsumeQueue:
        directory = tmp_path / "T" / "0"
        size = file_units * UNIT_SIZE
        queue = ConsumeQueue(
            directory, size, disk=disk or Disk(), descriptors=DescriptorCache(limit=2)
        )
        if directory.exists():
            queue.load()
        return queue

    return make


def unit(number: int) -> Unit:
    return Unit(number * RECORD, RECORD, -number)


def fill(queue: ConsumeQueue, count: int) -> None:
    """Append units whose records lie one behind the other."""
    first = queue.max_offset
    for number in range(first, first + count):
        queue.append(UNIT.pack(*unit(number)))


def units(queue: ConsumeQueue, start: int = 0, count: int = 10_000) -> list[Unit]:
    return list(queue.read(start, count))


def files(tmp_path: Path) -> dict[str, int]:
    """Names without their zeros, and how many units each holds."""
    found = {}
    for path in sorted((tmp_path / "T" / "0").iterdir()):
        whole = UNIT.iter_unpack(path.read_bytes())
        found[path.name.lstrip("0") or "0"] = sum(size > 0 for _, size, _ in whole)
    return found


def test_units_are_read_from_memory_before_they_are_written(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 3)
    assert units(queue) == [unit(0), unit(1), unit(2)]
    assert units(queue, 1, 1) == [unit(1)]
    assert units(queue, 3) == units(queue, -1, 1) == []
    assert (queue.max_offset, queue.written) == (3, 0)


def test_units_go_to_the_files_up_to_the_offset_that_is_said(
    open_queue: Open, tmp_path: Path
) -> None:
    queue = open_queue()
    fill(queue, 20)
    assert queue.write(10)
    assert files(tmp_path) == {"0": 8, "160": 2}
    assert queue.write(99)
    assert not queue.write(99)
    assert files(tmp_path) == {"0": 8, "160": 8, "320": 4}
    assert {path.stat().st_size for path in (tmp_path / "T" / "0").iterdir()} == {160}
    assert units(open_queue()) == [unit(number) for number in range(20)]


def test_a_long_queue_keeps_only_its_end_in_memory(open_queue: Open) -> None:
    queue = open_queue(file_units=300)
    for _ in range(30):
        fill(queue, 100)
        queue.write(queue.max_offset)
    assert queue.tail.size < 1000 * UNIT_SIZE
    assert units(queue) == [unit(number) for number in range(3000)]
    for start in (0, 299, 300, 2500, 2999):
        assert units(queue, start, 2) == [unit(n) for n in range(start, min(start + 2, 3000))]


def test_units_that_are_not_in_the_files_never_leave_memory(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 3000)
    assert units(queue) == [unit(number) for number in range(3000)]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 500])
def test_a_queue_is_found_again_as_it_was_written(open_queue: Open, count: int) -> None:
    queue = open_queue()
    fill(queue, count)
    queue.write(count)
    again = open_queue()
    assert (again.max_offset, again.written) == (count, count)
    assert units(again) == [unit(number) for number in range(count)]
    fill(again, 5)
    again.write(again.max_offset)
    assert units(open_queue()) == [unit(number) for number in range(count + 5)]


@pytest.mark.parametrize("count", [1, 204, 205, 206, 410, 999, 1000])
def test_the_end_of_a_large_file_is_found(open_queue: Open, count: int) -> None:
    queue = open_queue(file_units=1000)
    fill(queue, count)
    queue.write(count)
    assert open_queue(file_units=1000).max_offset == count


def test_the_end_is_found_in_a_file_without_holes(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue(file_units=1000)
    fill(queue, 300)
    queue.write(300)
    path = tmp_path / "T" / "0" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data)
    assert open_queue(file_units=1000).max_offset == 300


def test_the_end_below_a_position_leaves_out_what_is_behind_it(open_queue: Open) -> None:
    queue = open_queue()
    assert queue.end_below(10**9) == 0
    fill(queue, 5)
    assert [queue.end_below(at) for at in (0, 99, 100, 399, 400, 10**9)] == [0, 0, 1, 3, 4, 5]


def large_queue(open_queue: Open, *, is_loaded: bool) -> ConsumeQueue:
    """A queue of 3,000 units in several files, of which most are not in memory."""
    queue = open_queue(file_units=700)
    for _ in range(30):
        fill(queue, 100)
        queue.write(queue.max_offset)
    if is_loaded:
        queue = open_queue(file_units=700)
    assert queue.tail.base > 2000
    return queue


@pytest.mark.parametrize("is_loaded", [False, True], ids=["written", "loaded"])
def test_the_end_below_a_position_may_be_far_below_the_units_in_memory(
    open_queue: Open, *, is_loaded: bool
) -> None:
    queue = large_queue(open_queue, is_loaded=is_loaded)
    base = queue.tail.base
    for end in (0, 1, 2, 100, 699, 700, 701, 1999, base - 201, base - 1, base, base + 1, 3000):
        assert queue.end_below(end * RECORD) == end
        assert queue.end_below(end * RECORD + RECORD - 1) == end


def test_the_end_below_a_position_is_never_below_the_first_file(open_queue: Open) -> None:
    queue = large_queue(open_queue, is_loaded=True)
    queue.remove_below(1500 * RECORD)
    assert queue.first_offset == 1400
    found = [queue.end_below(at * RECORD) for at in (0, 1400, 1401, 1800)]
    assert found == [1400, 1400, 1401, 1800]


def test_blank_units_in_the_files_count_as_below_any_position(open_queue: Open) -> None:
    queue = open_queue(file_units=700)
    queue.start_at(600)
    for number in range(2000):
        queue.append(UNIT.pack(*unit(number)))
        queue.write(queue.max_offset)
    assert queue.tail.base > 1000
    assert [queue.end_below(at * RECORD) for at in (0, 1, 50)] == [600, 601, 650]


def test_the_end_is_not_looked_up_in_the_files_if_it_is_in_memory(
    open_queue: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = large_queue(open_queue, is_loaded=True)
    place = (queue.tail.base + 1) * RECORD

    def refuse(*_: object, **__: object) -> None:
        raise NotInMemory("somewhere", 0)

    monkeypatch.setattr(consume_queue, "read_at", refuse)
    assert queue.end_below(place) == queue.tail.base + 1
    with pytest.raises(NotInMemory):
        queue.end_below(place - 2 * RECORD, may_block=False)


def test_truncating_drops_units_in_memory_and_on_the_disk(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    fill(queue, 20)
    queue.write(18)
    queue.truncate(9 * RECORD, thoroughly=False)
    assert (queue.max_offset, queue.written) == (9, 9)
    assert files(tmp_path) == {"0": 8, "160": 1}
    fill(queue, 2)
    queue.write(11)
    assert units(open_queue()) == [unit(number) for number in range(11)]


def test_truncating_deeper_than_memory_reaches_finds_the_place_in_the_files(
    open_queue: Open, tmp_path: Path
) -> None:
    queue = open_queue()
    fill(queue, 1000)
    queue.write(1000)
    queue = open_queue()
    queue.truncate(77 * RECORD, thoroughly=False)
    assert queue.max_offset == 77
    assert sum(files(tmp_path).values()) == 77
    assert units(queue) == [unit(number) for number in range(77)]


def test_truncating_to_nothing_leaves_an_empty_queue(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 20)
    queue.write(20)
    queue.truncate(0, thoroughly=False)
    assert (queue.max_offset, units(queue)) == (0, [])
    assert open_queue().max_offset == 0


def test_truncating_thoroughly_erases_what_lies_behind_a_hole(
    open_queue: Open, tmp_path: Path
) -> None:
    queue = open_queue()
    fill(queue, 3)
    queue.write(3)
    path = tmp_path / "T" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(6 * UNIT_SIZE)
        file.write(UNIT.pack(*unit(6)))
    queue = open_queue()
    queue.truncate(10**9, thoroughly=True)
    assert queue.max_offset == 3
    assert files(tmp_path) == {"0": 3}


def test_rewinding_forgets_what_was_never_written(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 10)
    queue.write(6)
    queue.rewind(6 * RECORD)
    assert queue.max_offset == queue.written == 6
    fill(queue, 1)
    assert units(queue) == [unit(number) for number in range(7)]


def test_a_run_is_appended_from_where_the_queue_ends(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 5)
    run = b"".join(UNIT.pack(*unit(number)) for number in range(3, 8))
    queue.append_run(3, run)
    assert units(queue) == [unit(number) for number in range(8)]
    queue.append_run(3, run)
    assert queue.max_offset == 8
    with pytest.raises(ValueError, match="units 8 to 9 are missing"):
        queue.append_run(9, run)


def test_a_queue_that_begins_late_has_blank_units_before(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    queue.append_run(11, UNIT.pack(*unit(11)))
    queue.write(12)
    assert (queue.min_offset, queue.max_offset) == (11, 12)
    assert (tmp_path / "T" / "0" / f"{160:020d}").read_bytes()[:60] == UNIT.pack(
        0, BLANK_SIZE, 0
    ) * 3
    again = open_queue()
    again.raise_minimum(0)
    assert (again.min_offset, again.max_offset) == (11, 12)
    assert units(again, 11) == [unit(11)]


def test_lost_units_are_filled_with_blanks(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 2)
    queue.fill(5)
    queue.append(UNIT.pack(*unit(5)))
    queue.write(6)
    again = open_queue()
    assert again.max_offset == 6
    assert [found.size for found in units(again, 2)] == [BLANK_SIZE] * 3 + [RECORD]


def test_a_restarted_queue_begins_at_zero_again(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    queue.append_run(11, UNIT.pack(*unit(11)))
    queue.write(12)
    queue.restart()
    fill(queue, 1)
    queue.write(1)
    assert files(tmp_path) == {"0": 1}
    assert (queue.min_offset, queue.max_offset, queue.first_offset) == (0, 1, 0)
    assert units(open_queue()) == [unit(0)]


def test_the_minimum_follows_the_log(open_queue: Open) -> None:
    queue = open_queue()
    fill(queue, 30)
    for position, least in ((0, 0), (1, 1), (RECORD, 1), (1950, 20), (1950, 20), (10**9, 30)):
        queue.raise_minimum(position)
        assert queue.min_offset == least


def test_files_below_the_log_go_but_never_the_last(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    fill(queue, 20)
    queue.write(20)
    assert queue.remove_below(8 * RECORD - RECORD) == []
    assert [path.name[-3:] for path in queue.remove_below(8 * RECORD)] == ["000"]
    assert [path.name[-3:] for path in queue.remove_below(10**9)] == ["160"]
    assert files(tmp_path) == {"320": 4}
    queue.raise_minimum(10**9)
    again = open_queue()
    again.raise_minimum(10**9)
    assert (again.min_offset, again.max_offset) == (queue.min_offset, queue.max_offset) == (20, 20)


def test_a_read_of_removed_files_returns_nothing(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    fill(queue, 1000)
    queue.write(1000)
    queue = open_queue()
    assert units(queue, 0, 1) == [unit(0)]
    (tmp_path / "T" / "0" / f"{0:020d}").unlink()
    queue._descriptors.close()
    assert units(queue, 0, 5) == []


def test_a_detached_queue_writes_no_files_any_more(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    fill(queue, 3)
    queue.write(2)
    queue.detach()
    (tmp_path / "T" / "0").rename(tmp_path / "aside")
    assert not queue.write(queue.max_offset)
    queue.sync()
    assert not (tmp_path / "T" / "0").exists()
    assert units(queue) == []


class CountingDisk(Disk):
    def __init__(self) -> None:
        self.synced: list[int] = []

    def sync(self, descriptor: int) -> None:
        self.synced.append(os.fstat(descriptor).st_ino)


def test_only_the_files_that_changed_are_synced(open_queue: Open, tmp_path: Path) -> None:
    disk = CountingDisk()
    queue = open_queue(disk)

    def inodes(*starts: int) -> list[int]:
        return [(tmp_path / "T" / "0" / f"{start:020d}").stat().st_ino for start in starts]

    fill(queue, 10)
    queue.write(10)
    queue.sync()
    assert disk.synced == inodes(0, 160)
    queue.sync()
    fill(queue, 1)
    queue.write(11)
    queue.sync()
    assert disk.synced == inodes(0, 160, 160)
    assert queue.synced == 11


def test_what_a_full_disk_refuses_stays_in_memory_and_is_written_later(open_queue: Open) -> None:
    class FullDisk(Disk):
        room = 1

        def create_sparse(self, path: Path, size: int) -> int:
            self.room -= 1
            if self.room < 0:
                raise OSError(28, "No space left on device")
            return super().create_sparse(path, size)

    disk = FullDisk()
    queue = open_queue(disk)
    fill(queue, 20)
    with pytest.raises(OSError, match="No space left"):
        queue.write(20)
    assert (queue.written, queue.max_offset) == (8, 20)
    assert units(queue) == [unit(number) for number in range(20)]
    disk.room = 10
    queue.write(20)
    assert units(open_queue()) == [unit(number) for number in range(20)]


def test_a_file_that_was_cut_gets_its_length_again(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    fill(queue, 8)
    queue.write(8)
    path = tmp_path / "T" / "0" / f"{0:020d}"
    os.truncate(path, 3 * UNIT_SIZE + 7)
    again = open_queue()
    assert again.max_offset == 3
    assert path.stat().st_size == 160


def test_a_file_that_is_too_long_or_misnamed_is_damaged(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    fill(queue, 1)
    queue.write(1)
    path = tmp_path / "T" / "0" / f"{0:020d}"
    with pytest.raises(DamagedFile, match="160 bytes long, the settings say 80"):
        open_queue(file_units=4)
    path.rename(path.with_name(f"{7:020d}"))
    with pytest.raises(DamagedFile):
        open_queue()


def test_files_of_other_names_and_empty_ones_are_passed_over(
    open_queue: Open, tmp_path: Path
) -> None:
    queue = open_queue()
    fill(queue, 2)
    queue.write(2)
    directory = tmp_path / "T" / "0"
    (directory / "notes.txt").write_text("x")
    (directory / "7").write_text("x")
    (directory / f"{160:020d}").touch()
    assert open_queue().max_offset == 2
    assert not (directory / f"{160:020d}").exists()


def test_random_appends_writes_and_reads_agree_with_a_list(open_queue: Open) -> None:
    choice, queue, model = random.Random(5), open_queue(), list[Unit]()
    for _ in range(300):
        match choice.randrange(6):
            case 0 | 1:
                fill(queue, count := choice.randrange(60))
                model += [unit(number) for number in range(len(model), len(model) + count)]
            case 2:
                queue.write(choice.randrange(len(model) + 2))
            case 3:
                queue.write(len(model))
                queue = open_queue()
            case 4 if choice.random() < 0.2:
                kept = choice.randrange(len(model) + 1)
                queue.truncate(kept * RECORD, thoroughly=choice.random() < 0.5)
                del model[kept:]
            case _:
                start, count = choice.randrange(len(model) + 3), choice.randrange(300)
                assert units(queue, start, count) == model[start : start + count]
        assert queue.max_offset == len(model)
