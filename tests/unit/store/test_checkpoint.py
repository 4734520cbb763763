import struct
from dataclasses import replace
from pathlib import Path

import pytest

from bolide.store.checkpoint import Checkpoint, CheckpointFile, RecoveryPoint, boot_id
from bolide.store.disk import Disk
from bolide.store.key_index import IndexRecoveryPoint

RECOVERY_POINT = RecoveryPoint(
    position=5_000_000_000,
    last_record=4_999_999_900,
    units=123_456,
    index=IndexRecoveryPoint("20231114221320123", 77, 4_999_999_000, 1_700_000_000_500),
    boot_id="01234567-89ab-cdef-0123-456789abcdef",
)
FULL = Checkpoint(
    log_timestamp=1_700_000_001_000,
    queue_timestamp=1_700_000_001_000,
    index_timestamp=1_700_000_000_500,
    master_flushed_offset=17,
    confirm_offset=5_000_000_000,
    recovery_point=RECOVERY_POINT,
)


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    assert Checkpoint.decode(FULL.encode()) == FULL
    assert Checkpoint.decode(Checkpoint().encode()) == Checkpoint()


def test_rocketmqs_fields_stand_where_it_looks_for_them() -> None:
    data = FULL.encode()
    assert len(data) == 4096
    assert struct.unpack(">qqqqq", data[:40]) == (
        1_700_000_001_000, 1_700_000_001_000, 1_700_000_000_500, 17, 5_000_000_000,
    )  # fmt: skip


def test_a_recovery_point_is_void_when_rocketmq_wrote_its_times_since() -> None:
    data = bytearray(FULL.encode())
    struct.pack_into(">q", data, 0, 1_700_000_009_000)
    found = Checkpoint.decode(bytes(data))
    assert found.recovery_point is None
    assert found.log_timestamp == 1_700_000_009_000


@pytest.mark.parametrize("at", range(1024, 1024 + 137))
def test_a_damaged_recovery_point_is_none(at: int) -> None:
    data = bytearray(FULL.encode())
    data[at] ^= 0x40
    assert Checkpoint.decode(bytes(data)).recovery_point is None


@pytest.mark.parametrize("size", [0, 1, 40, 1024, 4095])
def test_a_file_that_was_cut_says_nothing(size: int) -> None:
    assert Checkpoint.decode(FULL.encode()[:size]) == Checkpoint()


def test_the_safe_time_is_three_seconds_before_the_older_one() -> None:
    assert FULL.safe_timestamp == 1_700_000_001_000 - 3000
    assert replace(FULL, queue_timestamp=10_000).safe_timestamp == 7000
    assert replace(FULL, queue_timestamp=2_999).safe_timestamp == 0


def test_a_missing_file_is_an_empty_checkpoint(tmp_path: Path) -> None:
    assert CheckpointFile(tmp_path / "checkpoint", Disk()).load() == Checkpoint()


def test_a_saved_checkpoint_is_there_for_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    CheckpointFile(path, Disk()).save(FULL)
    assert CheckpointFile(path, Disk()).load() == FULL
    assert path.stat().st_size == 4096


def test_voiding_removes_the_recovery_point_and_keeps_the_times(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "checkpoint", Disk())
    file.save(FULL)
    file.void_recovery_point()
    assert file.load() == replace(FULL, recovery_point=None)


@pytest.mark.parametrize(
    ("point", "confirmed", "position", "kept_point", "kept_confirmed"),
    [
        (100, 80, 100, True, 80),
        (100, 80, 99, False, 80),
        (100, 80, 50, False, 50),
        (0, 0, -1, False, 0),
        (None, 80, 50, False, 50),
    ],
)
def test_what_is_said_of_the_log_behind_a_cut_is_withdrawn(
    tmp_path: Path,
    point: int | None,
    confirmed: int,
    position: int,
    kept_point: bool,
    kept_confirmed: int,
) -> None:
    file = CheckpointFile(tmp_path / "checkpoint", Disk())
    known = RecoveryPoint(position=point, last_record=-1, units=0) if point is not None else None
    file.save(replace(FULL, confirm_offset=confirmed, recovery_point=known))
    assert file.value.synced_end == max(point or 0, confirmed)
    file.withdraw(position)
    assert file.load().recovery_point == (known if kept_point else None)
    assert file.load().confirm_offset == kept_confirmed


def test_a_failed_save_keeps_what_was_known(tmp_path: Path) -> None:
    class FullDisk(Disk):
        def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
            raise OSError(28, "No space left on device")

    file = CheckpointFile(tmp_path / "checkpoint", FullDisk())
    with pytest.raises(OSError, match="No space left"):
        file.save(FULL)
    assert file.value == Checkpoint()


def test_the_system_names_its_run_or_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(boot_id()) in {0, 36}
    monkeypatch.setattr("bolide.store.checkpoint._BOOT_ID", Path("/nowhere/boot_id"))
    assert boot_id() == ""
