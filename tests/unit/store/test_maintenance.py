import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from bolide.store.checkpoint import CheckpointFile
from bolide.store.consume_queue import ConsumeQueue
from bolide.store.disk import Disk
from bolide.store.errors import StoreUnwritable
from bolide.store.message_store import MessageStore
from tests.support.faults import path_of
from tests.support.store import draft, small_config


class SteppedDisk(Disk):
    """Calls a function the next time a step is reached."""

    def __init__(self) -> None:
        self.at: dict[str, Callable[[], object]] = {}

    def step(self, name: str) -> None:
        if name in self.at:
            self.at.pop(name)()


def open_store(root: Path, disk: Disk | None = None) -> MessageStore:
    return MessageStore(small_config(root), disk=disk, background=False)


def after_a_crash(root: Path) -> MessageStore:
    copy = root.with_name("after the crash")
    shutil.copytree(root, copy)
    return open_store(copy)


def test_a_round_writes_the_queues_and_the_index(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.append(draft(properties={"KEYS": "k"}))
        assert not (tmp_path / "store" / "consumequeue").exists()
        store.maintenance.run()
        queue = store.queues.find(b"T", 0)
        assert queue
        assert queue.written == 1
        assert store.index
        assert store.index.find("T", "k", limit=1, begin=0, end=2**62) == [0]


def test_a_checkpoint_says_how_far_everything_is_on_the_disk(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for _ in range(3):
            appended = store.append(draft())
        assert store.maintenance.checkpoint()
        found = CheckpointFile(tmp_path / "store" / "checkpoint", Disk()).load()
        assert found.recovery_point
        assert (found.recovery_point.position, found.recovery_point.units) == (appended.end, 3)
        assert found.recovery_point.last_record == appended.physical_offset
        assert found.log_timestamp == found.queue_timestamp == appended.store_timestamp
        assert store.flushed == appended.end


def test_recovery_begins_at_the_last_checkpoint(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        position = store.append(draft()).end
        store.maintenance.checkpoint()
        store.append(draft())
        with after_a_crash(tmp_path / "store") as again:
            assert (again.recovery.start, again.recovery.records) == (position, 1)
            assert again.max_offset("T", 0) == 2


@pytest.mark.parametrize("step", ["mid-checkpoint", "before-checkpoint"])
def test_a_topic_removed_during_a_checkpoint_does_not_come_back(tmp_path: Path, step: str) -> None:
    disk = SteppedDisk()
    with open_store(tmp_path / "store", disk) as store:
        for topic in ("T", "U"):
            store.append(draft(topic))
        remover = threading.Thread(target=store.remove_topic, args=["T"])

        def remove_meanwhile() -> None:
            remover.start()
            remover.join(0.2)  # it may have to wait for this checkpoint

        disk.at[step] = remove_meanwhile
        assert store.maintenance.checkpoint()
        remover.join()
        with after_a_crash(tmp_path / "store") as again:
            assert not again.recovery.rebuilt
            assert again.queues.keys == [(b"U", 0)]


def test_a_checkpoint_waits_for_queues_that_are_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "store") as store:
        store.append(draft())
        other, write = threading.Thread(target=store.maintenance.checkpoint), store.queues.write

        def write_later(queues: set[ConsumeQueue], physical_offset: int) -> None:
            monkeypatch.setattr(store.queues, "write", write)
            other.start()
            other.join(0.2)  # it may have to wait for this round
            write(queues, physical_offset)

        monkeypatch.setattr(store.queues, "write", write_later)
        store.maintenance.run()
        other.join()
        mark = store._checkpoint.value.recovery_point
        assert mark
        queue = store.queues.find(b"T", 0)
        assert queue
        assert (mark.units, queue.synced) == (1, 1)


def test_a_failed_checkpoint_leaves_the_store_to_be_recovered(tmp_path: Path) -> None:
    class NoSync(Disk):
        failing = False

        def sync(self, descriptor: int) -> None:
            if self.failing:
                raise OSError(5, "Input/output error")
            super().sync(descriptor)

    disk = NoSync()
    store = open_store(tmp_path / "store", disk).__enter__()
    store.append(draft(body=b"kept"))
    disk.failing = True
    assert not store.maintenance.checkpoint()
    store.close()
    assert (tmp_path / "store" / "abort").exists()
    with open_store(tmp_path / "store") as again:
        assert not again.recovery.clean
        assert again.max_offset("T", 0) == 1


def test_a_failing_queue_sync_keeps_messages_out_until_it_works(tmp_path: Path) -> None:
    class Broken(Disk):
        failing = False

        def sync(self, descriptor: int) -> None:
            if self.failing and "consumequeue" in str(path_of(descriptor)):
                raise OSError(5, "Input/output error")
            super().sync(descriptor)

    disk = Broken()
    with open_store(tmp_path / "store", disk) as store:
        store.append(draft())
        disk.failing = True
        assert not store.maintenance.checkpoint()
        for _ in range(3):
            store.maintenance.run()
            with pytest.raises(StoreUnwritable, match="consume queues"):
                store.append(draft())
        disk.failing = False
        store.maintenance.run()
        store.append(draft())


def test_removing_a_topic_does_not_wait_for_the_sync_of_all_queues(tmp_path: Path) -> None:
    class Slow(Disk):
        held = threading.Event()
        go_on = threading.Semaphore(0)

        def sync(self, descriptor: int) -> None:
            if "consumequeue" in str(path_of(descriptor)):
                self.held.set()
                assert self.go_on.acquire(timeout=60)
            super().sync(descriptor)

    disk = Slow()
    with open_store(tmp_path / "store", disk) as store:
        for queue_id in range(60):
            store.append(draft(queue_id=queue_id))
        store.append(draft("U"))
        checkpoint = threading.Thread(target=store.maintenance.checkpoint)
        checkpoint.start()
        assert disk.held.wait(60)
        detached = threading.Thread(target=store.queues.detach_topic, args=(b"U", tmp_path / "a"))
        detached.start()
        for _ in range(40):  # locks are not fair: the sync of some other queue may be faster
            disk.go_on.release()
            detached.join(0.05)
            if not detached.is_alive():
                break
        assert not detached.is_alive()
        assert checkpoint.is_alive()
        disk.go_on.release(100)
        checkpoint.join()


def test_a_checkpoint_that_takes_long_is_followed_by_a_longer_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.store.maintenance._CHECKPOINT_BYTES", 1)
    disk = SteppedDisk()
    with open_store(tmp_path / "store", disk) as store:
        maintenance = store.maintenance

        def takes_one() -> bool:
            store.append(draft())
            disk.at["mid-checkpoint"] = lambda: time.sleep(0.05)
            maintenance.run()
            return not disk.at

        assert takes_one()
        assert not takes_one()
        maintenance._last_checkpoint -= 0.3
        assert not takes_one()
        maintenance._last_checkpoint -= 60.0
        assert takes_one()


class NamingDisk(SteppedDisk):
    """Knows which directories were synced when a checkpoint is about to be written."""

    def __init__(self, queues: Path) -> None:
        super().__init__()
        self.queues = queues
        self.synced: list[Path] = []

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)
        super().sync_directory(path)

    def names(self, store: MessageStore) -> set[Path]:
        """Of a checkpoint."""
        self.synced.clear()
        found: list[Path] = []
        self.at["mid-checkpoint"] = lambda: found.extend(self.synced)
        assert store.maintenance.checkpoint()
        return {path for path in found if path.is_relative_to(self.queues)}


def test_a_checkpoint_tells_of_queue_files_whose_names_are_on_the_disk(tmp_path: Path) -> None:
    queues = tmp_path / "store" / "consumequeue"
    disk = NamingDisk(queues)
    with open_store(tmp_path / "store", disk) as store:
        store.append(draft())
        assert disk.names(store) == {queues, queues / "T", queues / "T" / "0"}
        store.append(draft())
        assert disk.names(store) == set()
        store.append(draft(queue_id=1))
        assert disk.names(store) == {queues, queues / "T", queues / "T" / "1"}
        store.append(draft("Gone"))
        store.maintenance.run()
        assert store.remove_topic("Gone") == 1
        assert disk.names(store) == set()


def test_names_that_a_killed_process_left_are_synced_by_the_next(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.append(draft())
        store.maintenance._write_queues()
        copy = root.with_name("after the crash")
        shutil.copytree(root, copy)
    queues = copy / "consumequeue"
    disk = NamingDisk(queues)
    with open_store(copy, disk) as store:
        assert disk.names(store) == {queues, queues / "T", queues / "T" / "0"}


def test_names_that_could_not_be_synced_are_tried_again(tmp_path: Path) -> None:
    queues = tmp_path / "store" / "consumequeue"
    disk = NamingDisk(queues)
    with open_store(tmp_path / "store", disk) as store:
        store.append(draft())
        disk.sync_directory = fail  # type: ignore[method-assign]
        assert not store.maintenance.checkpoint()
        del disk.sync_directory
        assert disk.names(store) == {queues, queues / "T", queues / "T" / "0"}


def fail(path: Path) -> None:
    raise OSError(5, "Input/output error", str(path))


def test_queues_that_take_long_to_write_are_written_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "store") as store:
        maintenance = store.maintenance
        write = store.queues.write

        def slowly(queues: Iterable[ConsumeQueue], physical_offset: int) -> None:
            time.sleep(0.1)
            write(queues, physical_offset)

        def is_written() -> bool:
            appended = store.append(draft())
            maintenance.run()
            queue = store.queues.find(b"T", 0)
            return queue is not None and queue.written > appended.queue_offset

        assert is_written()
        monkeypatch.setattr(store.queues, "write", slowly)
        assert is_written()
        assert not is_written()
        maintenance._next_writing -= 60.0
        assert is_written()
