"""What makes a store note that its log may lack messages at its end, and what does not."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bolide.store.config import FlushMode
from bolide.store.disk import Disk
from bolide.store.layout import Layout
from bolide.store.message_store import MessageStore
from bolide.store.truncation import truncate_store
from bolide.store.verify import verify
from tests.support.faults import FaultyDisk, copy_store
from tests.support.store import draft, small_config


@contextmanager
def opened(
    root: Path, mode: FlushMode = FlushMode.ASYNC, disk: Disk | None = None
) -> Iterator[MessageStore]:
    with MessageStore(small_config(root, mode=mode), background=False, disk=disk) as store:
        yield store


def fill(store: MessageStore, count: int = 50) -> list[int]:
    """Append messages; returns where they lie."""
    places = [store.append(draft("T", b"x" * 50)).physical_offset for _ in range(count)]
    store.flush()
    return places


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def damage(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 20)


# ---- it has


@pytest.mark.parametrize("kept", [0, 1])
def test_a_log_that_lost_files_is_noted_until_a_controller_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: int
) -> None:
    with opened(tmp_path) as store:
        fill(store)
        end = store.log.end
    for path in log_files(tmp_path)[kept:]:
        path.unlink()
    for _ in range(2):
        with opened(tmp_path) as store:
            assert store.log.end < end
            assert store.may_have_lost_tail
    assert f"up to {end} it was on the disk" in caplog.text
    with opened(tmp_path) as store:
        store.lost_tail_is_known()
    with opened(tmp_path) as store:
        assert not store.may_have_lost_tail


@pytest.mark.parametrize("mode", FlushMode)
def test_a_log_that_is_cut_before_sound_records_is_noted(tmp_path: Path, mode: FlushMode) -> None:
    with opened(tmp_path / "store", mode) as store:
        store.maintenance.checkpoint()
        end = fill(store)[-1]
        left = copy_store(tmp_path / "store", tmp_path / "left")
    damage(log_files(left)[0], 2300)
    with opened(left, mode) as store:
        assert 0 < store.log.end < end
        assert store.may_have_lost_tail


def test_a_crash_of_the_recovery_does_not_remove_the_evidence(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with opened(tmp_path / "store") as store:
        store.maintenance.checkpoint()
        fill(store)
        left = copy_store(tmp_path / "store", tmp_path / "left")
    damage(log_files(left)[0], 2300)
    with (
        disk.failing("write", errno.EIO, "commitlog", partly=True),
        pytest.raises(OSError, match="Input/output"),
        opened(left, disk=disk),
    ):
        pass
    with opened(left) as store:
        assert store.may_have_lost_tail


def test_a_repair_does_not_remove_the_evidence(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store)
    log_files(tmp_path)[-1].unlink()
    verify(Layout.of(small_config(tmp_path)), repair=True)
    with opened(tmp_path) as store:
        assert store.may_have_lost_tail


def test_a_store_knows_whether_it_began_with_nothing(tmp_path: Path) -> None:
    for is_empty in (True, False):
        with opened(tmp_path) as store:
            assert store.began_empty is is_empty
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as store:
        assert store.began_empty
        fill(store)
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as store:
        assert not store.began_empty


# ---- it has not


def nothing(_: MessageStore) -> None: ...


def roll_back(store: MessageStore) -> None:
    """A group commit that fails, and is taken back."""
    store.maintenance.checkpoint()
    store.append(draft("T", b"refused"))
    store._disk.error = errno.EIO  # type: ignore[attr-defined]
    store.flush()
    store._disk.error = 0  # type: ignore[attr-defined]
    store.maintenance.run()


def cut(store: MessageStore) -> None:
    store.replica.begin()
    store.log.confirmed = store.log.end
    truncate_store(store, 2272)


def cut_all(store: MessageStore) -> None:
    store.replica.begin()
    truncate_store(store, 0)


def begin_anew(store: MessageStore) -> None:
    """The log of the master begins behind the end of this one."""
    store.log.confirmed = store.log.end
    store.replica.begin()
    store.restart_at(100 * 4096)


def begin_anew_with_bytes(store: MessageStore) -> None:
    begin_anew(store)
    store.replica.append(100 * 4096, memoryview(bytes(10)))


def retire(store: MessageStore) -> None:
    store.log.retire(store.log.files[0])
    store.log.remove_retired()


class _Sync(Disk):
    error = 0

    def sync(self, descriptor: int) -> None:
        if self.error:
            raise OSError(self.error, "Input/output error")
        super().sync(descriptor)


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize(
    "work", [nothing, roll_back, cut, cut_all, begin_anew, begin_anew_with_bytes, retire]
)
def test_a_log_that_has_what_it_should_have_is_not_noted(
    tmp_path: Path, mode: FlushMode, work: Callable[[MessageStore], None]
) -> None:
    root, killed = tmp_path / "store", tmp_path / "killed"
    with opened(root, mode, _Sync()) as store:
        store.maintenance.checkpoint()
        fill(store)
        store.maintenance.checkpoint()
        work(store)
        copy_store(root, killed)
        store.maintenance.checkpoint()
        copy_store(root, tmp_path / "killed later")
    for left in (root, root, killed, tmp_path / "killed later"):
        with opened(left, mode) as store:
            assert not store.may_have_lost_tail, left


def test_a_replica_killed_within_a_record_is_not_noted(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        fill(master)
        data = bytes(master.log.files[0].view)
    with opened(tmp_path / "slave") as slave:
        slave.replica.begin()
        slave.replica.append(0, memoryview(data)[:1000])
        slave.replica.dispatch()
        slave.maintenance.checkpoint()
        slave.replica.append(1000, memoryview(data)[1000:2000])
        copy_store(tmp_path / "slave", tmp_path / "killed")
    for name in ("slave", "killed"):
        with opened(tmp_path / name) as slave:
            assert not slave.may_have_lost_tail


def test_a_cut_that_is_killed_before_its_checkpoint_is_not_taken_for_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "store") as store:
        fill(store)
        store.maintenance.checkpoint()
        monkeypatch.setattr(store.maintenance, "checkpoint", lambda: False)
        cut(store)
        killed = copy_store(tmp_path / "store", tmp_path / "killed")
        monkeypatch.undo()
    (killed / "abort").unlink()  # as if stopped: a store without a recovery point is noted anyway
    with opened(killed) as store:
        assert store.log.end == 2272
        assert not store.may_have_lost_tail
