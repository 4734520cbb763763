from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bolide.kernel import record_size
from bolide.protocol.record import Blank, encode_blank, read_record
from bolide.protocol.record_errors import RecordTooLarge
from bolide.store import commit_log as module
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile, NotInMemory
from tests.support.store import body_of, draft, record_of

SIZE = 4096
SMALL = record_size(draft(body=b""))

Open = Callable[..., CommitLog]


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Open]:
    opened: list[CommitLog] = []

    def make(*, disk: Disk | None = None, staged: bool = False, end: int = 0) -> CommitLog:
        log = CommitLog([tmp_path / "commitlog"], SIZE, disk=disk or Disk(), staged=staged)
        log.load()
        log.open_at(end)
        opened.append(log)
        return log

    yield make
    for log in opened:
        log.close()


def put(log: CommitLog, size: int = SMALL) -> int:
    """Append a record of `size` bytes."""
    return log.put(draft(body=bytes(size - SMALL)), size, 0, 1, seal=False)


def names(tmp_path: Path) -> list[int]:
    return sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())


class FullDisk(Disk):
    full = False

    def allocate(self, path: Path, size: int) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().allocate(path, size)


class StuckDisk(Disk):
    """A disk that notes which files are removed, and does not remove one of them."""

    stuck = -1

    def __init__(self) -> None:
        self.removed: list[int] = []

    def remove(self, path: Path) -> None:
        if int(path.name) == self.stuck:
            raise OSError(5, "Input/output error")
        self.removed.append(int(path.name))
        super().remove(path)


# ---- writing


def test_an_empty_log_has_no_files_until_the_first_record(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    assert (log.min_offset, log.end, log.files) == (0, 0, ())
    assert not (tmp_path / "commitlog").exists()
    assert put(log) == 0
    assert names(tmp_path) == [0]
    assert (tmp_path / "commitlog" / f"{0:020d}").stat().st_size == SIZE


def test_records_lie_one_behind_the_other(open_log: Open) -> None:
    log = open_log()
    assert [put(log), put(log, 500), put(log)] == [0, SMALL, SMALL + 500]
    assert log.end == log.written == 2 * SMALL + 500
    assert log.last_record == SMALL + 500
    assert record_of(log.read(SMALL, 500)).physical_offset == SMALL


@pytest.mark.parametrize(("left", "fits"), [(8, True), (9, True), (7, False), (0, False)])
def test_eight_bytes_are_left_behind_every_record(open_log: Open, left: int, fits: bool) -> None:
    log = open_log()
    put(log, 1000)
    place = put(log, SIZE - 1000 - left)
    assert place == (1000 if fits else SIZE)
    if not fits:
        assert read_record(log.files[0].view, 1000) == Blank(SIZE - 1000)


def test_a_record_that_fills_a_file_fits_and_a_larger_one_fits_none(open_log: Open) -> None:
    log = open_log()
    assert put(log, SIZE - 8) == 0
    assert put(log, SIZE - 8) == SIZE
    with pytest.raises(RecordTooLarge) as caught:
        log.reserve(SIZE - 7)
    assert (caught.value.size, caught.value.limit) == (SIZE - 7, SIZE - 8)
    assert log.end == 2 * SIZE - 8


def test_reading_ahead_is_switched_in_all_files_and_in_those_to_come(
    open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched: list[tuple[int, bool]] = []

    def note(file: LogFile, *, enabled: bool) -> None:
        switched.append((file.start, enabled))

    monkeypatch.setattr(LogFile, "read_ahead", note)
    log = open_log()
    put(log, SIZE - 8)
    log.read_ahead(enabled=True)
    assert switched == []
    log.read_ahead(enabled=False)
    put(log, SIZE - 8)
    log.read_ahead(enabled=True)
    put(log, SIZE - 8)
    assert switched == [(0, False), (SIZE, False), (0, True), (SIZE, True)]


def test_what_was_reserved_goes_into_one_file(open_log: Open) -> None:
    log = open_log()
    put(log, 2000)
    log.reserve(2500)
    assert [put(log, 500) for _ in range(5)] == [SIZE + 500 * number for number in range(5)]


def test_without_room_for_the_next_file_nothing_changes(open_log: Open, tmp_path: Path) -> None:
    disk = FullDisk()
    log = open_log(disk=disk)
    put(log, 3000)
    disk.full = True
    with pytest.raises(OSError, match="No space left"):
        log.reserve(2000)
    assert (log.end, names(tmp_path)) == (3000, [0])
    assert put(log, 500) == 3000
    disk.full = False
    assert put(log, 2000) == SIZE


def test_several_directories_take_turns(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    log = CommitLog(directories, SIZE, disk=Disk())
    for _ in range(5):
        put(log, 3000)
    log.close()
    assert sorted(int(path.name) // SIZE for path in directories[0].iterdir()) == [0, 2, 4]
    assert sorted(int(path.name) // SIZE for path in directories[1].iterdir()) == [1, 3]
    again = CommitLog(directories, SIZE, disk=Disk())
    again.load()
    assert [file.start for file in again.files] == [number * SIZE for number in range(5)]
    again.close()


def test_a_directory_for_old_files_gets_no_new_ones(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    log = CommitLog([old], SIZE, disk=Disk())
    put(log, 3000)
    log.close()
    log = CommitLog([old, new], SIZE, disk=Disk(), new=[new])
    log.load()
    log.open_at(3000)
    put(log, 3000)
    log.close()
    assert [path.name for path in new.iterdir()] == [f"{SIZE:020d}"]
    assert len(list(old.iterdir())) == 1


# ---- groups that wait in memory


def test_staged_records_are_readable_only_when_they_are_written(open_log: Open) -> None:
    log = open_log(staged=True)
    put(log)
    assert (log.end, log.written) == (SMALL, 0)
    assert log.read(0, SMALL) is None
    pending, end = log.take_pending()
    assert end == SMALL
    assert [(item.at, len(item.data)) for item in pending] == [(0, SMALL)]
    assert log.take_pending() == ([], SMALL)


def test_a_staged_roll_is_a_blank_and_a_record_of_the_next_file(open_log: Open) -> None:
    log = open_log(staged=True)
    put(log, 3000)
    put(log, 3000)
    pending, end = log.take_pending()
    assert [(item.file.start, item.at, len(item.data)) for item in pending] == [
        (0, 0, 3000), (0, 3000, 8), (SIZE, 0, 3000),
    ]  # fmt: skip
    assert bytes(pending[1].data) == encode_blank(SIZE - 3000)
    assert end == SIZE + 3000


def test_rewinding_takes_back_records_and_the_files_they_began(
    open_log: Open, tmp_path: Path
) -> None:
    log = open_log(staged=True)
    put(log, 3000)
    log.take_pending()
    log.written = 3000
    put(log, 3000)
    put(log, 3000)
    log.rewind()
    assert (log.end, names(tmp_path), log.last_record) == (3000, [0], -1)
    assert log.take_pending() == ([], 3000)
    assert put(log, 1000) == 3000


def test_a_file_that_cannot_be_removed_leaves_no_gap_when_appends_are_taken_back(
    open_log: Open, tmp_path: Path
) -> None:
    disk = StuckDisk()
    log = open_log(staged=True, disk=disk)
    for _ in range(4):
        put(log, 3000)
    disk.stuck = 2 * SIZE
    log.rewind()
    assert (log.end, names(tmp_path)) == (0, [0, SIZE, 2 * SIZE])
    assert [put(log, 3000) for _ in range(2)] == [0, SIZE]
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]


def test_a_log_that_cannot_drop_what_is_behind_its_end_is_not_opened(
    open_log: Open, tmp_path: Path
) -> None:
    disk = StuckDisk()
    log = open_log()
    for _ in range(4):
        put(log, 3000)
    log.close()
    disk.stuck = 2 * SIZE
    with pytest.raises(OSError, match="Input/output"):
        open_log(disk=disk, end=3000)
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]


def test_a_log_is_cleared_from_its_spare_file_on(open_log: Open) -> None:
    disk = StuckDisk()
    log = open_log(disk=disk)
    for _ in range(3):
        put(log, 3000)
    log.make_spare()
    disk.removed.clear()
    log.clear(100 * SIZE)
    assert list(dict.fromkeys(disk.removed)) == [3 * SIZE, 2 * SIZE, SIZE, 0]


# ---- opening


def test_files_are_found_again_in_order(open_log: Open) -> None:
    log = open_log()
    places = [put(log, 3000) for _ in range(4)]
    log.close()
    log = open_log(end=log.end)
    assert [record_of(log.read(place, 3000)).physical_offset for place in places] == places
    assert put(log, 3000) == 4 * SIZE


def test_a_file_of_another_length_is_refused(open_log: Open, tmp_path: Path) -> None:
    put(open_log())
    with (tmp_path / "commitlog" / f"{0:020d}").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DamagedFile, match=r"4097 bytes long, .* is 4096: .* verify --repair"):
        open_log()


def test_a_missing_file_is_noticed(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    for _ in range(3):
        put(log, 3000)
    (tmp_path / "commitlog" / f"{SIZE:020d}").unlink()
    with pytest.raises(DamagedFile, match="ends at 4096: one is missing"):
        open_log()


def test_an_empty_file_of_a_crash_is_removed(open_log: Open, tmp_path: Path) -> None:
    put(open_log())
    (tmp_path / "commitlog" / f"{SIZE:020d}").touch()
    assert len(open_log().files) == 1
    assert names(tmp_path) == [0]


def test_what_lies_behind_the_end_is_removed_and_erased(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    for size in (1000, 1000, 3000, 3000):
        put(log, size)
    log.close()
    log = CommitLog([tmp_path / "commitlog"], SIZE, disk=Disk())
    log.load()
    log.open_at(1000)
    log.erase_behind(1000)
    assert names(tmp_path) == [0]
    assert bytes(log.files[0].view[1000:]) == bytes(SIZE - 1000)
    assert bytes(log.files[0].view[:4]) == (1000).to_bytes(4)
    log.close()


# ---- reading


def test_reads_outside_of_the_log_find_nothing(open_log: Open) -> None:
    log = open_log()
    put(log, 1000)
    put(log, SIZE - 8)
    assert log.read(-1, 1) is None
    assert log.read(0, -1) is None
    assert log.read(log.end - 1, 2) is None
    assert log.read(10**12, 1) is None
    assert log.read(SIZE - 10, 20) is None, "not over the seam of two files"
    assert log.read(SIZE, 10) is not None


def test_reads_near_the_end_are_views_and_others_copies(
    open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HOT_WINDOW", 1000)
    log = open_log()
    old, new = put(log, 2000), put(log, 500)
    assert not log.is_hot(old)
    assert log.is_hot(new)
    first, last = log.read(old, 2000), log.read(new, 500)
    assert first and last and first.readonly and last.readonly
    log.files[0].view[new + 100] ^= 0xFF
    log.files[0].view[old + 100] ^= 0xFF
    assert last[100] == log.files[0].view[new + 100]
    assert first[100] != log.files[0].view[old + 100]
    last.release()


def test_a_block_has_as_many_bytes_as_there_are(open_log: Open) -> None:
    log = open_log()
    put(log, 1000)
    put(log, 1000)
    for start, least, most, size in (
        (0, 10, 500, 500), (0, 10, 9999, 2000), (1500, 500, 9999, 500), (1500, 501, 9999, None),
    ):  # fmt: skip
        block = log.read_block(start, least, most, may_block=True)
        assert (len(block) if block else None) == size


def test_a_cold_read_that_may_not_block_says_so_or_is_answered_from_the_cache(
    open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HOT_WINDOW", 0)
    monkeypatch.setattr("bolide.store.descriptors._ONLY_CACHED", None)
    log = open_log()
    put(log, 1000)
    with pytest.raises(NotInMemory):
        log.read(0, 1000, may_block=False)


# ---- preparing and removing files


def test_the_next_file_is_made_ahead_when_half_is_used(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    log.prepare()
    put(log, 1000)
    log.prepare()
    assert names(tmp_path) == [0]
    assert log.prepare_at == SIZE // 2
    put(log, 1500)
    log.prepare()
    assert names(tmp_path) == [0, SIZE]
    assert len(log.files) == 1
    assert put(log, 3000) == SIZE
    assert names(tmp_path) == [0, SIZE]


def test_a_file_made_ahead_but_not_used_goes_when_the_log_is_closed(
    open_log: Open, tmp_path: Path
) -> None:
    log = open_log()
    put(log, 3000)
    log.prepare()
    log.close()
    assert names(tmp_path) == [0]


def test_only_the_first_of_several_files_can_be_retired(open_log: Open) -> None:
    log = open_log()
    put(log, 3000)
    with pytest.raises(ValueError, match="not the first of several"):
        log.retire(log.files[0])
    put(log, 3000)
    with pytest.raises(ValueError, match="not the first of several"):
        log.retire(log.files[1])
    log.retire(log.files[0])
    assert log.min_offset == SIZE
    assert log.read(0, 100) is None


def test_who_reads_from_a_retired_file_goes_on(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    log.put(draft(body=b"kept"), record_size(draft(body=b"kept")), 0, 1, seal=False)
    put(log, 4050)
    record = log.read(0, SMALL + 4)
    log.retire(log.files[0])
    assert log.remove_retired() == []
    assert names(tmp_path) == [0, SIZE]
    assert body_of(record) == b"kept"
    assert record
    record.release()
    assert [path.name for path in log.remove_retired()] == [f"{0:020d}"]
    assert names(tmp_path) == [SIZE]


def test_what_was_retired_does_not_come_back(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    put(log, 3000)
    put(log, 3000)
    reader = log.read(0, 100)
    log.retire(log.files[0])
    log.close()
    assert names(tmp_path) == [SIZE]
    assert reader
    reader.release()


def test_files_go_in_order_so_that_no_crash_leaves_a_gap(open_log: Open, tmp_path: Path) -> None:
    log = open_log()
    for _ in range(3):
        put(log, 3000)
    reader = log.read(0, 100)
    log.retire(log.files[0])
    log.retire(log.files[0])
    assert log.remove_retired() == []
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]
    assert len(log.remove_retired(forcibly=True)) == 2
    assert names(tmp_path) == [2 * SIZE]
    assert reader
    reader.release()
