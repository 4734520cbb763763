"""Timer log and wheel: what is put in comes out in order, after any crash too."""

import shutil
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.timers import (
    DELETE,
    PLAIN,
    ROLL,
    TimerCheckpoint,
    TimerEntry,
    TimerFiles,
    TimerRecoveryPoint,
)

NOW = 1_700_000_000_000
SLOTS = 64
UNIT = 52


class HastyDisk(Disk):
    """Waits for nothing: the page cache is what survives here."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


def files_in(root: Path, *, file_size: int = 1000, slots: int = SLOTS) -> TimerFiles:
    return TimerFiles(root, disk=HastyDisk(), file_size=file_size, slots=slots)


def waiting(due: int, place: int, magic: int = PLAIN) -> TimerEntry:
    return TimerEntry(NOW + due, place, 100, magic, NOW, 7)


def checkpoint(files: TimerFiles, queue_offset: int = 0, *, marked: bool = True) -> TimerCheckpoint:
    return TimerCheckpoint(
        read_time=NOW,
        log_position=files.log_end,
        queue_offset=queue_offset,
        recovery_point=TimerRecoveryPoint() if marked else None,
    )


def all_in(files: TimerFiles) -> list[TimerEntry]:
    first = files.number(NOW)
    return files.load(first, first + SLOTS - 1, 10_000).waiting


def test_units_and_slots_are_as_rocketmq_writes_them(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    files.add([TimerEntry(NOW + 1500, 4096, 126, PLAIN | ROLL, NOW, -5), waiting(1600, 5000)])
    files.close()

    log = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    assert struct.unpack_from(">iqiqiqiiq", log) == (52, -1, 3, NOW, 1500, 4096, 126, -5, 0)
    assert struct.unpack_from(">iq", log, UNIT) == (52, 0)
    number = NOW // 1000 + 1
    wheel = (tmp_path / "timerwheel").read_bytes()
    assert struct.unpack_from(">qqqii", wheel, number % SLOTS * 32) == (number, 0, UNIT, 2, 0)
    assert len(log) == 1000
    assert len(wheel) == SLOTS * 32


def test_a_file_of_the_log_ends_as_rocketmqs_does(tmp_path: Path) -> None:
    files = files_in(tmp_path, file_size=52 * 3 + 20)
    files.open()
    files.add([waiting(at, at) for at in range(4)])

    first = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    assert struct.unpack_from(">iqI", first, 3 * UNIT) == (20, 0, 0xCBD43194)
    assert (tmp_path / "timerlog" / f"{176:020d}").exists()
    assert [each.physical_offset for each in all_in(files)] == [0, 1, 2, 3]
    files.close()


def test_what_is_due_first_comes_first_and_recalls_come_apart(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    files.add([waiting(900, 1), waiting(100, 2), waiting(100, 3), waiting(2500, 4)])
    files.add([waiting(500, 5, PLAIN | DELETE)])

    found = files.load(files.number(NOW), files.number(NOW) + 1, 100)

    assert [each.physical_offset for each in found.waiting] == [2, 3, 1]
    assert [each.physical_offset for each in found.recalls] == [5]
    assert found.last_slot == files.number(NOW) + 1
    files.close()


def test_a_slot_with_very_many_is_taken_in_parts(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    order = [(at * 37) % 101 for at in range(101)]
    files.add([waiting(due * 3, 1000 + due) for due in order])

    taken: list[int] = []
    found = files.load(files.number(NOW), files.number(NOW), 10)
    while found.boundary:
        assert len(found.waiting) == 10
        taken += [each.due for each in found.waiting]
        found = files.load(found.last_slot, found.last_slot, 10, found.boundary)
    taken += [each.due for each in found.waiting]

    assert taken == [NOW + due * 3 for due in range(101)]
    files.close()


def test_a_limit_leaves_later_slots_for_the_next_time(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    files.add([waiting(slot * 1000 + at, slot * 10 + at) for slot in range(4) for at in range(6)])

    first = files.load(files.number(NOW), files.number(NOW) + 9, 13)
    rest = files.load(first.last_slot + 1, files.number(NOW) + 9, 13)

    assert len(first.waiting) == len(rest.waiting) == 12
    files.close()


def test_slots_of_an_earlier_round_are_empty(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    files.add([waiting(0, 1)])
    later = SLOTS * 1000
    assert files.load(files.number(NOW + later), files.number(NOW + later), 9).waiting == []
    files.add([waiting(later, 2)])
    found = files.load(files.number(NOW + later), files.number(NOW + later), 9)
    assert [each.physical_offset for each in found.waiting] == [2]
    files.close()


def test_log_files_go_when_all_their_messages_are_gone(tmp_path: Path) -> None:
    files = files_in(tmp_path, file_size=52 * 2 + 16)
    files.open()
    files.add([waiting(at, 100 * at) for at in range(5)])

    files.trim(199)
    assert len(list((tmp_path / "timerlog").iterdir())) == 3
    files.trim(401)

    assert [path.name for path in (tmp_path / "timerlog").iterdir()] == [f"{240:020d}"]
    assert [each.physical_offset for each in all_in(files)] == [400]
    files.close()


def test_a_file_of_another_length_is_refused_and_named(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    files.add([waiting(1, 1)])
    files.close()
    with pytest.raises(DamagedFile, match="mappedFileSizeTimerLog is 2000"):
        files_in(tmp_path, file_size=2000).open()
    with pytest.raises(DamagedFile, match="timerwheel"):
        files_in(tmp_path, slots=SLOTS + 1).open()


def test_a_wheel_that_rocketmq_left_behind_its_log_is_brought_up_to_it(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    files.add([waiting(10, 1)])
    files.save(checkpoint(files, marked=False))
    old = (tmp_path / "timerwheel").read_bytes()
    files.add([waiting(20, 2), waiting(3000, 3)])
    files.close()
    (tmp_path / "timerwheel").write_bytes(old)

    again = files_in(tmp_path)
    found = again.open()

    assert found.is_whole
    assert found.last is not None
    assert found.last.physical_offset == 3
    assert [each.physical_offset for each in all_in(again)] == [1, 2, 3]
    again.close()


def test_without_its_wheel_a_log_counts_as_lost(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open()
    files.add([waiting(10, 1)])
    files.save(checkpoint(files))
    files.close()
    (tmp_path / "timerwheel").unlink()

    again = files_in(tmp_path)
    assert not again.open().is_whole
    assert all_in(again) == []
    again.add([waiting(10, 1)])
    assert [each.physical_offset for each in all_in(again)] == [1]
    again.close()


def test_a_mark_counts_only_as_long_as_rocketmq_has_not_written(tmp_path: Path) -> None:
    ours = TimerCheckpoint(
        read_time=1, log_position=2, queue_offset=3, recovery_point=TimerRecoveryPoint()
    )
    data = bytearray(ours.encode())
    assert len(data) == 4096
    assert TimerCheckpoint.decode(bytes(data)) == ours
    struct.pack_into(">q", data, 16, 4)
    assert TimerCheckpoint.decode(bytes(data)).recovery_point is None
    assert TimerCheckpoint.decode(bytes(data[:100])) == TimerCheckpoint()


class Files(RuleBasedStateMachine):
    """Files against a list, through crashes: of the process, and of the machine.

    A crash of the machine keeps what was saved, and of what came later any page or none.
    """

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.files = files_in(self.root, file_size=52 * 9 + 30)
        self.files.open()
        self.saved: list[TimerEntry] = []
        self.unsaved: list[TimerEntry] = []
        self.places = 0
        self.save()

    def teardown(self) -> None:
        with suppress(AttributeError):
            self.files.close()
            shutil.rmtree(self.root)

    @rule(dues=st.lists(st.integers(0, SLOTS * 1000 - 1), min_size=1, max_size=12))
    def add(self, dues: list[int]) -> None:
        batch = [waiting(due, self.places + at) for at, due in enumerate(dues)]
        self.places += len(dues)
        self.files.add(batch)
        self.unsaved += batch

    @rule()
    def save(self) -> None:
        self.files.save(checkpoint(self.files, len(self.saved) + len(self.unsaved)))
        self.saved += self.unsaved
        self.unsaved = []
        shutil.rmtree(self.root / "on-disk", ignore_errors=True)
        self.copy("on-disk")

    @rule()
    def crash_of_the_process(self) -> None:
        self.files.close()
        self.reopen()

    @precondition(lambda self: self.unsaved)
    @rule(pages=st.randoms(use_true_random=False), page=st.sampled_from([64, 256]))
    def crash_of_the_machine(self, pages: Random, page: int) -> None:
        self.files.close()
        for path in [self.root / "timerwheel", *(self.root / "timerlog").iterdir()]:
            before = self.root / "on-disk" / path.relative_to(self.root)
            data = path.read_bytes()
            old = before.read_bytes() if before.exists() else bytes(len(data))
            kept = b"".join(
                (data if pages.random() < 0.5 else old)[at : at + page]
                for at in range(0, len(data), page)
            )
            path.write_bytes(kept)
        self.reopen()

    def reopen(self) -> None:
        """What came after the checkpoint is put in again, as it is still in the queue."""
        self.files = files_in(self.root, file_size=52 * 9 + 30)
        found = self.files.open()
        assert found.is_whole
        assert found.checkpoint.queue_offset == len(self.saved)
        assert all_in(self.files) == sorted(self.saved)
        self.files.add(self.unsaved)

    def copy(self, name: str) -> None:
        target = self.root / name
        (target / "timerlog").mkdir(parents=True)
        shutil.copy(self.root / "timerwheel", target)
        for path in (self.root / "timerlog").iterdir() if (self.root / "timerlog").exists() else ():
            shutil.copy(path, target / "timerlog")

    @invariant()
    def all_of_it_is_there(self) -> None:
        if hasattr(self, "files"):
            assert all_in(self.files) == sorted(self.saved + self.unsaved)


def test_files_are_what_a_list_would_be() -> None:
    run_state_machine_as_test(
        Files,
        settings=settings(
            max_examples=40,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
