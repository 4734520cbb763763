import errno
import mmap
import os
import tempfile
from pathlib import Path

import pytest

from bolide.store.disk import Disk, data_ranges

KIB = 1024


def test_an_allocated_file_has_its_length_and_its_place_on_the_disk(tmp_path: Path) -> None:
    descriptor = Disk().allocate(tmp_path / "log" / "0", 64 * KIB)
    found = os.fstat(descriptor)
    assert found.st_size == 64 * KIB
    assert found.st_blocks * 512 >= 64 * KIB
    assert (tmp_path / "log" / "0").read_bytes() == bytes(64 * KIB)
    os.close(descriptor)


def test_a_file_has_no_name_until_it_is_whole(tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {}

    class Watched(Disk):
        def step(self, name: str) -> None:
            seen[name] = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))

    os.close(Watched().allocate(tmp_path / "log" / "0", KIB))
    assert seen["allocated"] == ["log"]
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["0"]


@pytest.mark.parametrize("nameless", [True, False])
def test_a_file_without_room_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, nameless: bool
) -> None:
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)

    def no_room(descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room, raising=False)
    with pytest.raises(OSError, match="No space left"):
        Disk().allocate(tmp_path / "log" / "0", KIB)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_is_allocated_where_the_system_has_no_call_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    descriptor = Disk().allocate(tmp_path / "0", 3 * KIB)
    assert os.fstat(descriptor).st_size == 3 * KIB
    os.close(descriptor)


def test_a_file_is_allocated_where_there_are_none_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    os.close(Disk().allocate(tmp_path / "log" / "0", 3 * KIB))
    assert (tmp_path / "log" / "0").stat().st_size == 3 * KIB


def test_without_nameless_files_one_is_made_beside_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    seen: list[str] = []

    class Watched(Disk):
        def step(self, name: str) -> None:
            seen.extend(sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")))

    os.close(Watched().allocate(tmp_path / "log" / "0", KIB))
    assert seen == [".log-0", "log"]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_file_takes_the_place_of_one_that_could_not_be_removed(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"left over")
    os.close(Disk().allocate(tmp_path / "0", KIB))
    assert (tmp_path / "0").read_bytes() == bytes(KIB)


def test_a_file_is_allocated_in_a_directory_on_another_disk(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not os.access(elsewhere, os.W_OK) or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(dir=elsewhere) as target:
        (tmp_path / "log").symlink_to(target)
        os.close(Disk().allocate(tmp_path / "log" / "0", 3 * KIB))
        assert (Path(target) / "0").stat().st_size == 3 * KIB


def test_a_file_whose_name_cannot_be_made_sure_of_is_not_there(tmp_path: Path) -> None:
    class Broken(Disk):
        def sync_directory(self, path: Path) -> None:
            if (path / "0").exists():
                raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        Broken().allocate(tmp_path / "0", KIB)
    assert list(tmp_path.iterdir()) == []


def test_pages_that_are_only_looked_at_do_not_become_data(tmp_path: Path) -> None:
    size = 32 * 1024 * KIB
    descriptor = Disk().allocate(tmp_path / "0", size)
    os.pwrite(descriptor, b"x", 0)
    with mmap.mmap(descriptor, size) as mapping:
        for first, last in data_ranges(descriptor, 0, size):
            mapping.find(b"y", first, last)  # reading ahead brings more into memory
            assert last <= 64 * KIB
    os.close(descriptor)


def test_a_sparse_file_has_its_length_and_takes_no_room(tmp_path: Path) -> None:
    descriptor = Disk().create_sparse(tmp_path / "queue" / "0", 1024 * KIB)
    found = os.fstat(descriptor)
    assert found.st_size == 1024 * KIB
    assert found.st_blocks * 512 < 64 * KIB
    os.close(descriptor)


def test_zeroing_touches_only_what_was_asked_for(tmp_path: Path) -> None:
    disk = Disk()
    descriptor = disk.create_sparse(tmp_path / "0", 16 * KIB)
    disk.write(descriptor, b"\xff" * 16 * KIB, 0)
    disk.zero(descriptor, 5000, 9000)
    assert (tmp_path / "0").read_bytes() == b"\xff" * 5000 + bytes(4000) + b"\xff" * (
        16 * KIB - 9000
    )
    os.close(descriptor)


def test_zeroing_a_hole_writes_nothing(tmp_path: Path) -> None:
    disk = Disk()
    descriptor = disk.create_sparse(tmp_path / "0", 1024 * KIB)
    disk.write(descriptor, b"x", 0)
    before = os.fstat(descriptor).st_blocks
    disk.zero(descriptor, 0, 1024 * KIB)
    assert os.fstat(descriptor).st_blocks == before
    assert (tmp_path / "0").read_bytes() == bytes(1024 * KIB)
    os.close(descriptor)


def test_data_lies_between_holes(tmp_path: Path) -> None:
    disk = Disk()
    descriptor = disk.create_sparse(tmp_path / "0", 1024 * KIB)
    disk.write(descriptor, b"x", 256 * KIB)
    ranges = data_ranges(descriptor, 0, 1024 * KIB)
    assert any(first <= 256 * KIB < last for first, last in ranges)
    assert sum(last - first for first, last in ranges) <= 64 * KIB
    assert data_ranges(descriptor, 256 * KIB, 256 * KIB + 1) == [(256 * KIB, 256 * KIB + 1)]
    os.close(descriptor)


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, pwrite = Disk(), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    descriptor = disk.create_sparse(tmp_path / "0", 10)
    disk.write(descriptor, b"0123456789", 0)
    assert (tmp_path / "0").read_bytes() == b"0123456789"
    os.close(descriptor)


def test_removing_what_is_gone_is_nothing(tmp_path: Path) -> None:
    Disk().remove(tmp_path / "missing")


def test_a_small_file_is_replaced_and_the_old_one_kept(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "table.json"
    disk.replace(path, b"one")
    disk.replace(path, b"two")
    assert path.read_bytes() == b"two"
    assert (tmp_path / "table.json.bak").read_bytes() == b"one"


def test_how_full_a_disk_is_lies_between_nothing_and_all(tmp_path: Path) -> None:
    assert 0 <= Disk().used_ratio(tmp_path) <= 1
