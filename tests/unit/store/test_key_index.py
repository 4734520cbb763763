import errno
import logging
import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bolide.protocol.tags import index_hash
from bolide.store.disk import Disk
from bolide.store.errors import StoreClosed
from bolide.store.key_index import IndexRecoveryPoint, KeyIndex
from tests.support.clock import FakeClock

SLOTS, CAPACITY = 3, 5
BEGIN = 1_700_000_000_000
EVER = {"limit": 64, "begin": 0, "end": 2**63 - 1}


def item(key: str, offset: int, seconds: float = 0) -> bytes:
    return struct.pack(">Iqq", index_hash("T", key), offset, BEGIN + round(seconds * 1000))


def items(count: int, first: int = 1, key: str = "k") -> bytes:
    """Records at 100, 200 and so on, one second apart."""
    return b"".join(item(key, n * 100, n) for n in range(first, first + count))


def opened(directory: Path, disk: Disk | None = None) -> KeyIndex:
    clock = FakeClock(BEGIN / 1000)
    index = KeyIndex(directory, slots=SLOTS, capacity=CAPACITY, disk=disk or Disk(), clock=clock)
    index.load()
    return index


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def index(directory: Path) -> Iterator[KeyIndex]:
    found = opened(directory)
    yield found
    found.close()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_empty_index_has_no_files_and_finds_nothing(index: KeyIndex, directory: Path) -> None:
    assert (index.end_offset, index.end_timestamp, index.sizes) == (0, 0, [])
    assert index.find("T", "k", **EVER) == []
    assert not directory.exists()


def test_records_are_found_by_topic_and_key_newest_first(index: KeyIndex) -> None:
    index.put(item("a", 100) + item("b", 200) + item("a", 300, 1))
    assert index.find("T", "a", **EVER) == [300, 100]
    assert index.find("T", "b", **EVER) == [200]
    assert index.find("U", "a", **EVER) == []
    assert (index.end_offset, index.end_timestamp) == (300, BEGIN + 1000)


def test_a_search_goes_on_in_older_files_until_it_has_enough(index: KeyIndex) -> None:
    index.put(items(11))
    assert len(index.sizes) == 3
    assert index.find("T", "k", **EVER) == [n * 100 for n in range(11, 0, -1)]
    assert index.find("T", "k", limit=6, begin=0, end=2**63 - 1) == [
        n * 100 for n in range(11, 5, -1)
    ]


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [(3, 6, [6, 5, 4, 3]), (0, 1, [1]), (11, 99, [11]), (12, 99, []), (4, 5, [5, 4])],
)
def test_only_times_asked_for_are_found(
    index: KeyIndex, begin: int, end: int, found: list[int]
) -> None:
    index.put(items(11))
    times = {"begin": BEGIN + begin * 1000, "end": BEGIN + end * 1000}
    assert index.find("T", "k", limit=64, **times) == [n * 100 for n in found]


def test_what_is_in_the_index_is_not_put_again(index: KeyIndex) -> None:
    index.put(items(6))
    index.put(items(8))
    assert index.find("T", "k", **EVER) == [n * 100 for n in range(8, 0, -1)]
    assert index.flush().count == CAPACITY
    assert len(index.sizes) == 2


def test_a_key_that_the_newest_record_lacks_is_put(index: KeyIndex) -> None:
    record = item("a", 100) + item("b", 100) + item("c", 100)
    index.put(record[:40])
    index.put(record + item("a", 200))
    assert [index.find("T", key, **EVER) for key in "abc"] == [[200, 100], [100], [100]]
    assert index.flush().count == CAPACITY


def test_a_file_is_named_by_local_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        index = opened(directory)
        index.put(items(1))
        index.close()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert names(directory) == ["20231115061320000"]


@pytest.mark.parametrize("step", [0, -3600, 0.0004])
def test_names_grow_whatever_the_clock_does(directory: Path, step: float) -> None:
    clock = FakeClock(BEGIN / 1000)
    index = KeyIndex(directory, slots=SLOTS, capacity=CAPACITY, disk=Disk(), clock=clock)
    for n in range(1, 12):
        index.put(items(1, n))
        clock.advance(step)
    index.close()
    assert len(names(directory)) == 3
    again = opened(directory)
    assert again.find("T", "k", **EVER) == [n * 100 for n in range(11, 0, -1)]
    again.close()


def test_a_new_file_begins_where_the_last_one_ended(index: KeyIndex, directory: Path) -> None:
    index.put(items(5))
    older, newer = (directory / name for name in names(directory))
    assert struct.unpack(">qqqqii", older.read_bytes()[:40])[1:4] == (BEGIN + 4000, 100, 400)
    assert struct.unpack(">qqqqii", newer.read_bytes()[:40]) == (
        *(BEGIN + 5000, BEGIN + 5000, 500, 500),
        *(1, 2),
    )


def test_an_index_opens_as_it_was_closed(index: KeyIndex, directory: Path) -> None:
    index.put(items(11))
    index.close()
    again = opened(directory)
    assert again.find("T", "k", **EVER) == [n * 100 for n in range(11, 0, -1)]
    assert again.end_offset == 1100
    again.put(items(1, 12))
    assert again.find("T", "k", limit=1, begin=0, end=2**63 - 1) == [1200]
    again.close()


def test_other_files_are_left_alone(index: KeyIndex, directory: Path) -> None:
    index.put(items(11))
    index.close()
    for name in ("readme", "2023111422132000", "20231114221320000.bak"):
        (directory / name).write_text("mine")
    again = opened(directory)
    again.clear()
    again.close()
    assert names(directory) == ["2023111422132000", "20231114221320000.bak", "readme"]


def test_from_a_file_of_another_length_on_all_is_dropped(
    index: KeyIndex, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index.put(items(11))
    index.close()
    oldest, damaged, _ = names(directory)
    os.truncate(directory / damaged, 7)
    with caplog.at_level(logging.WARNING):
        again = opened(directory)
    assert names(directory) == [oldest]
    assert damaged in caplog.text
    again.put(items(11))  # the log still has them
    assert again.find("T", "k", **EVER) == [n * 100 for n in range(11, 0, -1)]
    again.close()


def test_a_file_begun_and_never_written_hides_nothing(index: KeyIndex, directory: Path) -> None:
    index.put(items(4))
    index.close()
    (directory / "29991231235959999").write_bytes(bytes(40 + SLOTS * 4 + CAPACITY * 20))
    again = opened(directory)
    assert again.end_offset == 400
    times = {"begin": BEGIN + 2000, "end": BEGIN + 3000}
    assert again.find("T", "k", limit=64, **times) == [300, 200]
    again.truncate(300)
    assert again.find("T", "k", **EVER) == [200, 100]
    again.close()


def test_trimming_removes_files_before_the_log_but_never_the_newest(index: KeyIndex) -> None:
    index.put(items(11))
    index.trim(401)
    assert index.find("T", "k", **EVER) == [n * 100 for n in range(11, 4, -1)]
    index.trim(10_000)
    assert index.find("T", "k", **EVER) == [1100, 1000, 900]


def test_records_behind_the_end_of_the_log_are_forgotten(index: KeyIndex) -> None:
    index.put(items(11))
    index.truncate(401)
    assert (index.end_offset, index.find("T", "k", **EVER)) == (400, [400, 300, 200, 100])
    index.put(items(3, 5))
    assert index.find("T", "k", **EVER) == [n * 100 for n in range(7, 0, -1)]
    index.truncate(0)
    assert (index.end_offset, index.sizes) == (0, [])


def test_files_that_end_after_a_time_are_dropped(index: KeyIndex) -> None:
    index.put(items(11))
    index.drop_after(BEGIN + 8000)
    assert index.end_offset == 800
    index.drop_after(BEGIN + 7999)
    assert index.end_offset == 400
    index.drop_after(0)
    assert index.sizes == []


def test_a_flush_says_how_far_the_disk_has_it(index: KeyIndex, directory: Path) -> None:
    assert index.flush() == IndexRecoveryPoint()
    index.put(items(6))
    newest = names(directory)[-1]
    assert index.flush() == IndexRecoveryPoint(newest, 3, 600, BEGIN + 6000)
    assert index.has(newest)
    assert not index.has("")


class Watched(Disk):
    """Counts syncs, and does something else in the middle of one."""

    def __init__(self) -> None:
        self.synced: list[int] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def sync(self, descriptor: int) -> None:
        self.meanwhile()
        super().sync(descriptor)
        self.synced.append(os.fstat(descriptor).st_ino)


def test_a_flush_syncs_what_has_changed_and_nothing_else(directory: Path) -> None:
    disk = Watched()
    index = opened(directory, disk)
    index.put(items(9))
    disk.synced.clear()  # a new file is synced when it is made
    index.flush()
    files = [(directory / name).stat().st_ino for name in names(directory)]
    assert disk.synced == files
    index.put(items(1, 10))
    index.flush()
    index.flush()
    assert disk.synced[3:] == files[2:]
    index.close()


def test_others_go_on_during_a_flush_and_the_mark_is_from_before(directory: Path) -> None:
    disk = Watched()
    index = opened(directory, disk)
    index.put(items(9))
    found: list[list[int]] = []

    def meanwhile() -> None:
        disk.meanwhile = lambda: None
        index.put(items(1, 10))
        index.trim(500)
        found.append(index.find("T", "k", **EVER))

    disk.meanwhile = lambda: _in_thread(meanwhile)
    mark = index.flush()
    assert mark.end_offset == 900
    assert found == [[1000, 900, 800, 700, 600, 500]]
    assert index.flush().end_offset == 1000
    index.close()


def test_after_a_failed_flush_all_of_it_is_still_to_do(directory: Path) -> None:
    disk = Watched()
    index = opened(directory, disk)
    index.put(items(3))
    disk.synced.clear()
    disk.meanwhile = _fail
    with pytest.raises(OSError, match="failing"):
        index.flush()
    disk.meanwhile = lambda: None
    index.flush()
    assert len(disk.synced) == 1
    index.close()


def test_a_full_disk_refuses_a_put_that_can_be_made_again(directory: Path) -> None:
    class Small(Disk):
        full = False

        def allocate(self, path: Path, size: int) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "no space")
            return super().allocate(path, size)

    disk = Small()
    index = opened(directory, disk)
    index.put(items(2))
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        index.put(items(6, 3))
    assert index.find("T", "k", **EVER) == [400, 300, 200, 100]
    disk.full = False
    index.put(items(6, 3))
    assert index.find("T", "k", **EVER) == [n * 100 for n in range(8, 0, -1)]
    index.close()


def test_a_mark_without_a_file_restores_to_nothing(index: KeyIndex, directory: Path) -> None:
    index.put(items(6))
    index.restore(IndexRecoveryPoint())
    assert (index.sizes, index.end_offset) == ([], 0)
    assert names(directory) == []


def test_a_mark_of_a_file_that_is_gone_keeps_older_ones(index: KeyIndex, directory: Path) -> None:
    index.put(items(6))
    mark = index.flush()
    index.put(items(5, 7))
    index.close()
    (directory / mark.name).unlink()
    again = opened(directory)
    again.restore(mark)
    assert again.find("T", "k", **EVER) == [400, 300, 200, 100]
    again.close()


def test_a_closed_index_takes_nothing(directory: Path) -> None:
    index = opened(directory)
    index.close()
    index.close()
    with pytest.raises(StoreClosed):
        index.put(items(1))
    assert index.find("T", "k", **EVER) == []


@pytest.mark.parametrize(("slots", "capacity"), [(0, 5), (3, 1)])
def test_sizes_that_hold_nothing_are_refused(directory: Path, slots: int, capacity: int) -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        KeyIndex(directory, slots=slots, capacity=capacity, disk=Disk())


KEYS = ("a", "b", "c", "d")
records = st.lists(
    st.tuples(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), st.integers(0, 3000)),
    max_size=6,
)


class AgainstAModel(RuleBasedStateMachine):
    """The log as a list of items, and an index that always finds what the log has.

    After each loss, recovery puts the log again from `end_offset` on, as the store does.
    """

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.index = opened(self.directory)
        self.log: list[tuple[str, int, int]] = []
        self.next = 0
        self.now = BEGIN
        self.trimmed = 0
        self.mark = IndexRecoveryPoint()

    @rule(found=records)
    def put(self, found: list[tuple[list[str], int]]) -> None:
        first = len(self.log)
        for keys, later in found:
            self.now += later
            self.log += [(key, self.next, self.now) for key in keys]
            self.next += 100
        self.index.put(_packed(self.log[first:]))

    @rule()
    def flush(self) -> None:
        self.mark = self.index.flush()

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = opened(self.directory)
        assert self.index.mend() == 0

    @rule(share=st.floats(0, 1))
    def lose_the_end_of_the_log(self, share: float) -> None:
        end = round(self.next * share / 100) * 100
        if end >= self.trimmed:
            self.next = end
            self.log = [each for each in self.log if each[1] < end]
            self.index.truncate(end)
            self.mark = IndexRecoveryPoint()

    @rule(share=st.floats(0, 1))
    def lose_the_begin_of_the_log(self, share: float) -> None:
        self.trimmed = max(self.trimmed, round(self.next * share / 100) * 100)
        self.index.trim(self.trimmed)

    @precondition(lambda self: self.mark.name == "" or self.index.has(self.mark.name))
    @rule(noise=st.binary(min_size=8 + 4 * SLOTS, max_size=8 + 4 * SLOTS))
    def lose_power(self, noise: bytes) -> None:
        """Slots and counts of the marked file, and all that came later, may be anything."""
        if self.mark.name:
            with (self.directory / self.mark.name).open("r+b") as file:
                file.seek(32)
                file.write(noise)
                later = 40 + 4 * SLOTS + 20 * self.mark.count
                file.seek(later)
                file.write((noise * 8)[: 40 + 4 * SLOTS + 20 * CAPACITY - later])
        self.index.close()
        self.index = opened(self.directory)
        self.index.restore(self.mark)
        self._redo()

    @rule(share=st.floats(0, 1))
    def lose_files_after_a_time(self, share: float) -> None:
        self.index.drop_after(BEGIN + round((self.now - BEGIN) * share))
        self.mark = IndexRecoveryPoint()
        self._redo()

    @invariant()
    def everything_is_found(self) -> None:
        for key in KEYS:
            expected = {offset for name, offset, _ in self.log if name == key}
            kept = sorted((at for at in expected if at >= self.trimmed), reverse=True)
            found = self.index.find("T", key, limit=10_000, begin=0, end=2**63 - 1)
            assert [at for at in found if at >= self.trimmed] == kept
            assert found == sorted(found, reverse=True)
            assert set(found) <= expected

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            shutil.rmtree(self.directory)

    def _redo(self) -> None:
        self.index.put(_packed([each for each in self.log if each[1] >= self.index.end_offset]))


AgainstAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAgainstAModel = AgainstAModel.TestCase


def _packed(found: list[tuple[str, int, int]]) -> bytes:
    return b"".join(
        struct.pack(">Iqq", index_hash("T", key), offset, timestamp)
        for key, offset, timestamp in found
    )


def _in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "the lock is held over a sync"


def _fail() -> None:
    raise OSError(errno.EIO, "failing")
