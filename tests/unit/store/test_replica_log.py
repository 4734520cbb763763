import errno
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.store import checkpoint
from bolide.store.config import FlushMode
from bolide.store.disk import Disk
from bolide.store.errors import StoreUnwritable
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits
from bolide.store.replica_log import LogMismatch
from bolide.store.truncation import truncate_store
from tests.support.faults import FaultyDisk, PowerCutDisk, copy_store
from tests.support.store import body_of, draft, small_config


def log_bytes(store: MessageStore) -> bytes:
    """All bytes of a log, from its first file to its end."""
    parts = []
    position = store.log.min_offset
    while position < store.log.written:
        file = store.log.find_file(position)
        assert file is not None
        end = min(file.end, store.log.written)
        parts.append(bytes(file.view[position - file.start : end - file.start]))
        position = end
    return b"".join(parts)


def fill(store: MessageStore, count: int, *, queues: int = 3, size: int = 20) -> None:
    for number in range(count):
        store.append(draft("T", f"{number:05}".encode() * (size // 5), queue_id=number % queues))


def bodies(store: MessageStore, queues: int = 3) -> list[list[bytes]]:
    return [[body_of(record) for record in _records(store, queue_id)] for queue_id in range(queues)]


def _records(store: MessageStore, queue_id: int) -> Iterator[memoryview]:
    at, end = store.min_offset("T", queue_id), store.max_offset("T", queue_id)
    while at < end:
        found = store.read("T", queue_id, at)
        yield from found.records
        at = found.next_offset


@contextmanager
def replica(root: Path, *, mode: FlushMode = FlushMode.ASYNC) -> Iterator[MessageStore]:
    config = small_config(root, mode=mode)
    with MessageStore(config, background=False) as store:
        store.replica.begin()
        yield store


def send(data: bytes, target: MessageStore, sizes: list[int]) -> None:
    """Send bytes from the target's end on, in pieces of these sizes."""
    turn = 0
    while (at := target.replica.end) < len(data):
        size = sizes[turn % len(sizes)]
        turn += 1
        target.replica.append(at, memoryview(data)[at : at + size])
        target.flush()
        target.replica.dispatch()


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=5), count=st.integers(1, 400))
def test_pieces_of_any_size_give_the_same_log_and_queues(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], count: int
) -> None:
    root = tmp_path_factory.mktemp("stores")
    with MessageStore(small_config(root / "master"), background=False) as master:
        fill(master, count, size=100)
        with replica(root / "slave") as slave:
            send(log_bytes(master), slave, sizes)

            assert log_bytes(slave) == log_bytes(master)
            assert bodies(slave) == bodies(master)
            assert slave.units == master.units


@pytest.mark.parametrize("mode", FlushMode)
def test_a_replica_goes_on_after_a_restart_within_a_record(tmp_path: Path, mode: FlushMode) -> None:
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 300, size=100)
        data = log_bytes(master)
        with replica(tmp_path / "slave", mode=mode) as slave:
            slave.replica.append(0, memoryview(data)[: len(data) // 2 + 7])
            slave.flush()
            slave.replica.dispatch()
        with replica(tmp_path / "slave", mode=mode) as slave:
            assert slave.replica.end < len(data) // 2 + 7
            send(data, slave, [1000])

            assert log_bytes(slave) == data
            assert bodies(slave) == bodies(master)
            assert not slave.recovery.rebuilt


def test_a_replica_stopped_within_a_record_keeps_nothing_of_it(tmp_path: Path) -> None:
    properties = {"KEYS": "order-1", "UNIQ_KEY": "AC11000100002A9F0000000000000001"}
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 3)
        last = master.append(draft("T", b"x" * 50, properties=properties))
        data = log_bytes(master)
    for size in range(1, last.size):
        root = tmp_path / str(size)
        with replica(root) as slave:
            slave.replica.append(0, memoryview(data)[: last.physical_offset + size])
            if size % 2:
                slave.replica.dispatch()
        with replica(root) as slave:
            assert slave.recovery.clean
            assert slave.log.end == last.physical_offset, size
            assert log_bytes(slave) == data[: last.physical_offset]


def test_a_replica_that_cannot_cut_its_end_does_not_count_as_stopped(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 3)
        data = log_bytes(master)
    disk = FaultyDisk()
    with MessageStore(small_config(tmp_path / "slave"), background=False, disk=disk) as slave:
        slave.replica.begin()
        slave.replica.append(0, memoryview(data)[:-5])
        slave.flush()
        with disk.failing("write", errno.EIO, "commitlog"):
            slave.close()
    with replica(tmp_path / "slave") as slave:
        assert not slave.recovery.clean
        assert slave.log.end < len(data) - 5


def test_bytes_that_do_not_continue_the_log_are_refused(tmp_path: Path) -> None:
    with replica(tmp_path) as slave:
        slave.replica.append(0, memoryview(bytes(8)))

        with pytest.raises(LogMismatch, match="this log ends at 8"):
            slave.replica.append(100, memoryview(b"x"))


def test_bytes_that_are_no_record_are_refused(tmp_path: Path) -> None:
    with replica(tmp_path) as slave:
        slave.replica.append(0, memoryview(b"\0\0\0\x40garbage" * 100))

        with pytest.raises(LogMismatch, match="are no record"):
            slave.replica.dispatch()


def test_a_file_of_another_length_is_named(tmp_path: Path) -> None:
    config = small_config(tmp_path / "master")
    with MessageStore(config, background=False) as master:
        fill(master, 2000, size=100)
        data = log_bytes(master)
    other = small_config(tmp_path / "slave", log_size=2 * config.commit_log_file_size)
    with MessageStore(other, background=False) as slave:
        slave.replica.begin()
        slave.replica.append(0, memoryview(data)[: 2 * config.commit_log_file_size])

        with pytest.raises(LogMismatch, match="mappedFileSizeCommitLog"):
            slave.replica.dispatch()


def test_an_empty_replica_begins_where_its_master_does(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 2000, size=100)
        start = master.log.files[-1].start
        data = log_bytes(master)[start:]
        with replica(tmp_path / "slave") as slave:
            slave.replica.append(start, memoryview(data))
            slave.replica.dispatch()

            assert slave.log.min_offset == start
            assert bodies(slave)[0] == bodies(master)[0][slave.min_offset("T", 0) :]


def test_a_promoted_replica_cuts_half_a_record_and_takes_appends(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 9, size=100)
        data = log_bytes(master)
        with replica(tmp_path / "slave") as slave:
            slave.replica.append(0, memoryview(data)[:-10])
            slave.replica.dispatch()
            slave.refuse(StoreUnwritable("a slave"))
            with pytest.raises(StoreUnwritable, match="a slave"):
                slave.append(draft("T", b"x"))
            slave.finish_replication()
            slave.stop_refusing()

            assert bodies(slave)[2] == bodies(master)[2][:-1]
            assert slave.append(draft("T", b"next", queue_id=2)).queue_offset == 2


@pytest.mark.parametrize("keep", [0, 1, 150, 299, 300])
def test_a_truncated_store_goes_on_from_the_cut(tmp_path: Path, keep: int) -> None:
    config = small_config(tmp_path)
    with MessageStore(config, background=False) as store:
        fill(store, 300, size=100)
        position = store.log.end
        if keep < 300:
            position = next(
                offset
                for offset in _boundaries(store)
                if sum(1 for each in _boundaries(store) if each < offset) == keep
            )
        cut = truncate_store(store, position)

        assert cut.records == 300 - keep
        assert sum(map(len, bodies(store))) == keep
        assert store.append(draft("T", b"next")).physical_offset == position
    with MessageStore(config, background=False) as store:
        assert sum(map(len, bodies(store))) == keep + 1
        assert not store.recovery.rebuilt


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_cut_that_fails_is_made_good_by_the_next(tmp_path: Path, call: str) -> None:
    """Bytes that were not erased would follow the new ones when the store is opened."""
    config = small_config(tmp_path / "old")
    disk = FaultyDisk()
    with MessageStore(small_config(tmp_path / "new"), background=False) as master:
        fill(master, 12, size=100)
        data = log_bytes(master)
    with MessageStore(config, background=False, disk=disk) as store:
        fill(store, 30, size=100)
        store.replica.begin()
        position = _boundaries(store)[10]
        with disk.failing(call, errno.EIO, "commitlog"), pytest.raises(OSError, match="Input"):
            truncate_store(store, position)
        assert store.replica.end > position

        truncate_store(store, position)
        store.maintenance.run()  # tries the disk again
        store.replica.append(position, memoryview(data)[position:])
        store.replica.dispatch()
        killed = copy_store(config.root, tmp_path / "killed")
    with MessageStore(small_config(killed), background=False) as store:
        assert store.log.end == len(data)


class StuckDisk(Disk):
    """One file of the log cannot be removed."""

    is_stuck = False

    def remove(self, path: Path) -> None:
        if self.is_stuck and path.name == f"{4096:020d}":
            raise OSError(errno.EIO, "Input/output error")
        super().remove(path)


def test_a_crash_at_any_moment_of_a_cut_leaves_a_store_that_opens(tmp_path: Path) -> None:
    class WatchedDisk(Disk):
        moments = 0
        is_watched = False

        def remove(self, path: Path) -> None:
            super().remove(path)
            if self.is_watched and path.parent.name == "commitlog":
                self.moments += 1
                copy_store(tmp_path / "store", tmp_path / str(self.moments))

    disk = WatchedDisk()
    with MessageStore(small_config(tmp_path / "store"), background=False, disk=disk) as store:
        fill(store, 300, size=100)
        store.replica.begin()
        data, files, position = log_bytes(store), len(store.log.files), _boundaries(store)[10]
        disk.is_watched = True
        truncate_store(store, position)
        disk.is_watched = False
        assert disk.moments == files - 1 > 3
    for moment in range(1, disk.moments + 1):
        with MessageStore(small_config(tmp_path / str(moment)), background=False) as store:
            assert store.log.end >= position
            assert log_bytes(store) == data[: store.log.end]


@pytest.mark.parametrize("mode", FlushMode)
def test_a_cut_that_cannot_remove_a_file_leaves_no_gap(tmp_path: Path, mode: FlushMode) -> None:
    config, disk = small_config(tmp_path / "store", mode=mode), StuckDisk()
    with MessageStore(config, background=False, disk=disk) as store:
        fill(store, 300, size=100)
        store.flush()
        store.replica.begin()
        data, position = log_bytes(store), _boundaries(store)[10]
        disk.is_stuck = True
        with pytest.raises(OSError, match="Input/output"):
            truncate_store(store, position)
        assert store.replica.end > position
        assert log_bytes(store) == data[: store.replica.end]
        killed = copy_store(config.root, tmp_path / "killed")

        disk.is_stuck = False
        truncate_store(store, position)
        assert store.replica.end == position
    with MessageStore(small_config(killed, mode=mode), background=False) as store:
        assert log_bytes(store) == data[: store.log.end]


def test_a_power_cut_at_any_moment_of_a_cut_leaves_the_beginning_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("1")
    config, chance = small_config(tmp_path / "store"), random.Random(6)
    with MessageStore(config, background=False) as store:
        fill(store, 300, size=100)
    disk, left = PowerCutDisk(config.root), 0

    def cut(_: str) -> None:
        nonlocal left
        left += 1
        disk.cut(tmp_path / str(left), chance)

    with MessageStore(config, background=False, disk=disk) as store:
        store.replica.begin()
        data, position = log_bytes(store), _boundaries(store)[10]
        disk.on_moment = cut
        truncate_store(store, position)
        disk.on_moment = lambda _: None
        disk.cut(tmp_path / "after", chance, new=0)
    (tmp_path / "boot_id").write_text("2")
    for name in range(1, left + 1):
        with MessageStore(small_config(tmp_path / str(name)), background=False) as store:
            assert store.log.end >= position
            assert log_bytes(store) == data[: store.log.end]
    assert len(list((tmp_path / "after" / "commitlog").iterdir())) == 1


def test_no_recovery_point_stays_behind_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is killed before the next checkpoint has no hole up to that point."""
    config = small_config(tmp_path / "store", log_size=1 << 16)
    with MessageStore(config, background=False) as store:
        fill(store, 30, size=100)
        store.replica.begin()
        places = _boundaries(store)
        truncate_store(store, places[20])
        monkeypatch.setattr(store.maintenance, "checkpoint", lambda: False)
        truncate_store(store, places[10])
        killed = copy_store(config.root, tmp_path / "killed")
        monkeypatch.undo()
    with MessageStore(small_config(killed, log_size=1 << 16), background=False) as store:
        assert store.log.end == places[10]
        assert sum(map(len, bodies(store))) == 10


def test_a_discarded_log_is_kept_without_a_copy(tmp_path: Path) -> None:
    config = small_config(tmp_path / "slave")
    with MessageStore(config, background=False) as store:
        fill(store, 300, size=100)
        store.replica.begin()
        files = [file.path.stat().st_ino for file in store.log.files]
        store.restart_at(100 * config.commit_log_file_size)

        kept = sorted(each for each in (config.root / "cut").iterdir() if each.is_file())
        assert [each.stat().st_ino for each in kept] == files
        assert store.replica.end == store.replica.dispatched == 100 * config.commit_log_file_size
        assert store.units == 0
        assert not list(config.log_directories[0].iterdir())


def test_a_log_whose_files_cannot_be_removed_stays(tmp_path: Path) -> None:
    """With a gap behind the file that is left the store could not be opened again."""

    disk = StuckDisk()
    with MessageStore(small_config(tmp_path), background=False, disk=disk) as store:
        fill(store, 300, size=100)
        end = store.log.end
        store.replica.begin()
        disk.is_stuck = True
        with pytest.raises(OSError, match="Input/output"):
            store.restart_at(100 * 4096)
        assert store.replica.end == end

        disk.is_stuck = False
        store.restart_at(100 * 4096)
        assert store.replica.end == 100 * 4096


def test_a_log_without_anything_in_common_begins_where_a_file_does(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path), background=False) as store:
        fill(store, 300, size=100)
        for _ in range(2):
            store.log.retire(store.log.files[0])
        store.log.remove_retired()
        cut = truncate_store(store, 5000)

        assert cut.position == store.log.end == 4096
        assert sum(map(len, bodies(store))) == 0


def _boundaries(store: MessageStore) -> list[int]:
    """Physical offsets of all records."""
    found = []
    for queue_id in range(3):
        queue = store.find_queue("T", queue_id)
        assert queue is not None
        found += [unit.physical_offset for unit in queue.read(0, 1000)]
    return sorted(found)


def test_what_is_not_confirmed_cannot_be_read(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path), background=False) as store:
        first = store.append(draft("T", b"first", properties={"KEYS": "k"}))
        store.append(draft("T", b"second", properties={"KEYS": "k"}))
        store.log.confirmed = first.end

        assert store.max_offset("T", 0) == 1
        assert [body_of(each) for each in store.read("T", 0, 0).records] == [b"first"]
        assert [body_of(each) for each in store.find("T", "k")] == [b"first"]
        assert len(store.find("T", "k", unconfirmed=True)) == 2


def test_what_a_stalled_replica_does_not_confirm_stays_unreadable(tmp_path: Path) -> None:
    """However much is appended meanwhile, and also after a restart."""
    config = small_config(tmp_path / "store", log_size=1 << 20, queue_units=1000)
    with MessageStore(config, background=False) as store:
        fill(store, 100)
        store.log.confirmed = store.log.end
        confirmed = readable_counts(store)
        for _ in range(3):
            fill(store, 3000)
            store.maintenance.run()
            assert readable_counts(store) == confirmed
        store.maintenance.checkpoint()
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
    killed = small_config(tmp_path / "copy", log_size=1 << 20, queue_units=1000)
    with MessageStore(killed, background=False) as store:
        store.log.confirmed = store.confirmed_before
        assert readable_counts(store) == confirmed


def readable_counts(store: MessageStore) -> list[tuple[int, int, int]]:
    """Of each queue: its end as clients see it, what a read returns, and what its end returns."""
    found = []
    for queue_id in range(3):
        end, most = store.max_offset("T", queue_id), ReadLimits(10_000, 1 << 20)
        behind = store.read("T", queue_id, end + 10)
        assert (behind.records, behind.max_offset) == ([], end)
        assert store.stored_at("T", queue_id, end) == -1
        assert not store.is_recent("T", queue_id, end)
        found.append((end, len(store.read("T", queue_id, 0, most).records), behind.next_offset))
    return found


def test_a_failing_disk_takes_no_bytes_until_it_is_mended(tmp_path: Path) -> None:
    """What lies behind the flushed part is written again then, and the rest is erased."""
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 30, size=100)
        data = log_bytes(master)
        disk = FaultyDisk()
        with MessageStore(small_config(tmp_path / "slave"), background=False, disk=disk) as slave:
            slave.replica.begin()
            slave.replica.append(0, memoryview(data)[:1000])
            with disk.failing("sync", errno.EIO, "commitlog"):
                assert not slave.flush()
                with pytest.raises(StoreUnwritable):
                    slave.replica.append(1000, memoryview(data)[1000:2000])
            slave.maintenance.run()
            send(data, slave, [500])

            assert log_bytes(slave) == data


@pytest.mark.parametrize("mode", FlushMode)
def test_another_master_goes_on_within_a_record(tmp_path: Path, mode: FlushMode) -> None:
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 30, size=100)
        data = log_bytes(master)
        with replica(tmp_path / "slave", mode=mode) as slave:
            slave.replica.append(0, memoryview(data)[:1000])  # whole records, and a part of one
            if mode is FlushMode.ASYNC:
                slave.replica.dispatch()
            slave.replica.begin()  # the next term as a slave
            send(data, slave, [700])

            assert bodies(slave) == bodies(master)


def test_a_promoted_replica_with_staged_bytes_writes_at_its_end(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path / "master"), background=False) as master:
        fill(master, 9, size=100)
        data = log_bytes(master)
        with replica(tmp_path / "slave", mode=FlushMode.SYNC) as slave:
            slave.replica.append(0, memoryview(data)[:-10])  # nothing of it is flushed
            slave.finish_replication()
            appended = slave.append(draft("T", b"next", queue_id=2))

            assert slave.wait_flushed(appended)
            assert slave.log.flushed == slave.log.end == appended.end
            assert bodies(slave)[2] == [*bodies(master)[2][:-1], b"next"]
            assert bodies(slave)[:2] == bodies(master)[:2]


def test_a_master_deposed_during_a_flush_that_fails_dispatches_what_replaces_its_group(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    config = small_config(tmp_path / "old", mode=FlushMode.SYNC)
    with (
        MessageStore(small_config(tmp_path / "new"), background=False) as new,
        MessageStore(config, disk=disk, background=False) as old,
    ):
        old.append(draft(body=b"both"))
        assert old.flush()
        old.append(draft(body=b"lost 1"))
        old.append(draft(body=b"lost 2"))
        old.replica.begin()
        with disk.failing("sync", errno.EIO, "commitlog"):
            assert not old.flush()
        old.maintenance.run()

        new.replica.begin()
        new.replica.append(0, memoryview(log_bytes(old)))
        new.replica.dispatch()
        new.finish_replication()
        for number in range(5):
            new.append(draft(body=f"new {number:2}".encode()))
        old.replica.append(old.log.end, memoryview(log_bytes(new))[old.log.end :])
        assert old.flush()
        old.replica.dispatch()

        assert log_bytes(old) == log_bytes(new)
        assert bodies(old, 1) == bodies(new, 1)


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("mode", FlushMode)
def test_what_a_power_cut_may_have_taken_depends_on_the_flush_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: FlushMode, same_boot: bool
) -> None:
    monkeypatch.setattr(checkpoint, "_BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("1")
    config = small_config(tmp_path / "store", mode=mode)
    with MessageStore(config, background=False) as store:
        store.append(draft())
        store.flush()
        store.maintenance.checkpoint()
        copy_store(tmp_path / "store", tmp_path / "left")
    assert not (tmp_path / "store" / "lostTail").exists()
    (tmp_path / "boot_id").write_text("1" if same_boot else "2")

    left = small_config(tmp_path / "left", mode=FlushMode.ASYNC)
    is_lost = mode is FlushMode.ASYNC and not same_boot
    for _ in range(2):  # it stays so until a controller knows
        with MessageStore(left, background=False) as store:
            assert store.may_have_lost_tail is is_lost
    with MessageStore(left, background=False) as store:
        store.lost_tail_is_known()
        assert not store.may_have_lost_tail
