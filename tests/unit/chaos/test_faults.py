"""Faults in a disk and a clock, steered by a file."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.chaos.faults import FAULTS_VARIABLE, FaultFile, Faults, faulty_disk, shifted
from bolide.store.disk import Disk


@pytest.fixture
def file(tmp_path: Path) -> FaultFile:
    return FaultFile(tmp_path / "faults.json")


@pytest.fixture
def disk(file: FaultFile) -> Disk:
    return faulty_disk(file)()


@pytest.fixture
def allocated(disk: Disk, tmp_path: Path) -> Iterator[int]:
    descriptor = disk.allocate(tmp_path / "allocated", 8192)
    yield descriptor
    os.close(descriptor)


def set_faults(file: FaultFile, faults: Faults) -> None:
    faults.write(file._path)
    file.look()


def test_a_missing_or_damaged_file_means_no_faults(file: FaultFile, tmp_path: Path) -> None:
    file.look()
    assert file.faults == Faults()

    (tmp_path / "faults.json").write_text("{")
    file.look()
    assert file.faults == Faults()


def test_a_full_disk_takes_no_new_files(file: FaultFile, disk: Disk, tmp_path: Path) -> None:
    set_faults(file, Faults(is_disk_full=True))

    for call in (disk.allocate, disk.create_sparse):
        with pytest.raises(OSError, match="No space left") as raised:
            call(tmp_path / "new", 4096)
        assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        disk.replace(tmp_path / "table.json", b"{}")

    set_faults(file, Faults())
    disk.replace(tmp_path / "table.json", b"{}")


def test_a_full_disk_takes_writes_to_what_is_allocated(
    file: FaultFile, disk: Disk, allocated: int, tmp_path: Path
) -> None:
    sparse = disk.create_sparse(tmp_path / "sparse", 8192)
    set_faults(file, Faults(is_disk_full=True))

    disk.write(allocated, b"fits", 0)
    with pytest.raises(OSError, match="No space left"):
        disk.write(sparse, b"needs a block", 0)
    os.close(sparse)


def test_fsync_fails_and_is_slow(file: FaultFile, disk: Disk, allocated: int) -> None:
    set_faults(file, Faults(is_sync_failing=True))
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync(allocated)

    set_faults(file, Faults(sync_delay=0.05))
    began = time.monotonic()
    disk.sync(allocated)
    assert time.monotonic() - began >= 0.05


def test_a_clock_is_shifted(file: FaultFile) -> None:
    clock = shifted(lambda: 100.0, file)
    assert clock() == 100.0

    set_faults(file, Faults(clock_shift=-2.5))

    assert clock() == 97.5


def test_a_watched_file_is_noticed(file: FaultFile, tmp_path: Path) -> None:
    file.watch()
    Faults(clock_shift=1.0).write(tmp_path / "faults.json")

    deadline = time.monotonic() + 5
    while file.faults.clock_shift != 1.0:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_member_is_the_bolide_command(tmp_path: Path) -> None:
    """Its clock and disk are replaced; the command line is the same."""
    printed = subprocess.run(
        [sys.executable, "-m", "bolide.chaos.member", "--version"],
        env=os.environ | {FAULTS_VARIABLE: str(tmp_path / "faults.json")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert printed.stdout.startswith("bolide ")
