import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bolide.store.appending import Appended
from bolide.store.config import FlushMode
from bolide.store.disk import Disk
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed
from bolide.store.health import COMMIT_LOG
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadStatus
from tests.support.store import body_of, draft, small_config

EIO = OSError(5, "Input/output error")


class WatchedDisk(Disk):
    """Counts what is done to log files, and fails when it is told to."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.syncs = 0
        self.writes: list[tuple[int, int]] = []
        self.failing = False
        self.gate: threading.Event | None = None
        self.waiting = threading.Event()

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        if self.is_log(descriptor):
            if self.failing:
                raise EIO
            self.writes.append((at, len(data)))
        super().write(descriptor, data, at)

    def sync(self, descriptor: int) -> None:
        if self.is_log(descriptor):
            if self.gate:
                self.waiting.set()
                assert self.gate.wait(60)
            if self.failing:
                raise EIO
            self.syncs += 1
        super().sync(descriptor)

    def is_log(self, descriptor: int) -> bool:
        number = os.fstat(descriptor).st_ino
        return any(path.stat().st_ino == number for path in self.logs.iterdir())


OpenStore = Callable[..., MessageStore]


@pytest.fixture
def disk(tmp_path: Path) -> WatchedDisk:
    return WatchedDisk(tmp_path / "store" / "commitlog")


@pytest.fixture
def open_store(tmp_path: Path, disk: WatchedDisk) -> Iterator[OpenStore]:
    opened = []

    def make(
        mode: FlushMode = FlushMode.SYNC, *, background: bool = False, **changes: object
    ) -> MessageStore:
        config = small_config(tmp_path / "store", mode=mode, **changes)  # type: ignore[arg-type]
        store = MessageStore(config, disk=disk, background=background).__enter__()
        opened.append(store)
        return store

    yield make
    disk.failing = False
    for store in opened:
        store.close()


def test_a_group_is_written_and_synced_at_once(open_store: OpenStore, disk: WatchedDisk) -> None:
    store = open_store()
    sent = [store.append(draft(body=bytes([number]))) for number in range(10)]
    assert store.max_offset("T", 0) == 0
    assert store.wait_flushed(sent[-1])
    assert (disk.writes, disk.syncs) == ([(0, sent[-1].end)], 1)
    assert (store.flushed, store.max_offset("T", 0)) == (sent[-1].end, 10)
    assert store.flush()
    assert disk.syncs == 1


def test_a_group_over_the_seam_of_two_files_syncs_both(
    open_store: OpenStore, disk: WatchedDisk
) -> None:
    store = open_store()
    sent = [store.append(draft(body=bytes(1500))) for _ in range(3)]
    assert store.wait_flushed(sent[-1])
    assert disk.syncs == 2
    assert [at for at, _ in disk.writes] == [0, 0]
    assert len(store.read("T", 0, 0).records) == 3


def test_what_is_flushed_in_the_mapping_is_only_synced(
    open_store: OpenStore, disk: WatchedDisk
) -> None:
    store = open_store(FlushMode.ASYNC)
    sent = store.append(draft())
    assert store.flushed == 0
    assert store.flush()
    assert (store.flushed, disk.syncs, disk.writes) == (sent.end, 1, [])


def test_a_failed_group_is_refused_and_taken_back(open_store: OpenStore, disk: WatchedDisk) -> None:
    store = open_store()
    kept = store.append(draft(body=b"kept"))
    assert store.wait_flushed(kept)
    lost = [store.append(draft(body=b"lost")) for _ in range(3)]
    disk.failing = True
    for each in lost:
        with pytest.raises(StoreUnwritable, match="Input/output error"):
            store.wait_flushed(each)
    with pytest.raises(StoreUnwritable, match="Input/output error"):
        store.append(draft())
    assert (store.max_offset("T", 0), store.log.end) == (1, kept.end)
    assert store.read("T", 0, 1).status is ReadStatus.OFFSET_OVERFLOW_ONE


def test_a_message_that_was_flushed_is_not_refused_for_a_later_group(
    open_store: OpenStore, disk: WatchedDisk
) -> None:
    store = open_store()
    kept = store.append(draft())
    assert store.flush()
    lost = store.append(draft())
    disk.failing = True
    assert not store.flush()
    assert store.wait_flushed(kept)
    with pytest.raises(StoreUnwritable):
        store.wait_flushed(lost)


def test_a_refused_message_stays_refused_when_another_has_taken_its_place(
    open_store: OpenStore, disk: WatchedDisk
) -> None:
    store = open_store()
    lost = store.append(draft(body=b"lost"))
    disk.failing = True
    assert not store.flush()
    disk.failing = False
    store.maintenance.run()
    new = store.append(draft(body=b"new!"))
    assert new[:3] == lost[:3]
    assert store.wait_flushed(new)
    with pytest.raises(StoreUnwritable):
        store.wait_flushed(lost)
    assert [body_of(record) for record in store.read("T", 0, 0).records] == [b"new!"]


def test_flushing_resumes_when_the_disk_works_again(
    open_store: OpenStore, disk: WatchedDisk
) -> None:
    store = open_store(FlushMode.ASYNC)
    store.append(draft(body=b"one"))
    disk.failing = True
    assert not store.flush()
    assert COMMIT_LOG in store.health.causes
    disk.failing = False
    assert not store.flush(), "pages may count as clean that never reached the disk"
    store.maintenance.run()
    assert store.health.writable
    assert disk.writes, "what the disk may lack was written again"
    sent = store.append(draft(body=b"two"))
    assert store.wait_flushed(sent)
    assert [body_of(record) for record in store.read("T", 0, 0).records] == [b"one", b"two"]


def test_listeners_hear_of_every_group_and_of_failures(
    open_store: OpenStore, disk: WatchedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    store, told = open_store(), list[Flushed]()

    def complain(flushed: Flushed) -> None:
        raise RuntimeError("a bad listener")

    store.on_flushed(complain)
    store.on_flushed(told.append)
    first = store.append(draft())
    store.flush()
    store.append(draft())
    disk.failing = True
    store.flush()
    assert told[0] == Flushed(first.end)
    assert told[1].position == first.end
    assert isinstance(told[1].failure, StoreUnwritable)
    assert "a bad listener" in caplog.text


def test_senders_on_many_threads_share_groups(open_store: OpenStore, disk: WatchedDisk) -> None:
    store = open_store(background=True)
    flushed: list[bool] = []

    def send(queue_id: int) -> None:
        for _ in range(20):
            appended = store.append(draft(queue_id=queue_id))
            flushed.append(store.wait_flushed(appended, 60))

    senders = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert flushed == [True] * 80
    assert [store.max_offset("T", number) for number in range(4)] == [20] * 4
    assert store.flushed == store.log.end


def test_waiting_longer_than_the_limit_is_no_failure(
    open_store: OpenStore, disk: WatchedDisk
) -> None:
    store = open_store(background=True)
    disk.gate = threading.Event()
    sent = store.append(draft())
    assert disk.waiting.wait(60)
    assert not store.wait_flushed(sent, timeout=0)
    disk.gate.set()
    assert store.wait_flushed(sent, timeout=60)


def test_appends_go_on_while_a_group_is_synced(open_store: OpenStore, disk: WatchedDisk) -> None:
    store = open_store(background=True)
    disk.gate = threading.Event()
    first = store.append(draft(body=b"first"))
    assert disk.waiting.wait(60)
    second = store.append(draft(body=b"second"))
    assert store.flushed == 0
    disk.gate.set()
    assert store.wait_flushed(first, 60)
    assert store.wait_flushed(second, 60)


def test_the_thread_flushes_by_itself_now_and_then(open_store: OpenStore) -> None:
    store = open_store(FlushMode.ASYNC, background=True, flush_interval=0.001, flush_least_pages=0)
    reached = threading.Event()
    store.on_flushed(lambda flushed: reached.set() if flushed.position == sent.end else None)
    sent: Appended = store.append(draft())
    assert reached.wait(60) or store.flushed == sent.end


def test_closing_flushes_what_is_left(open_store: OpenStore) -> None:
    store = open_store(background=True)
    sent = store.append(draft(body=b"last"))
    store.close()
    assert store.log.flushed == sent.end
    assert open_store().max_offset("T", 0) == 1


@pytest.mark.parametrize("background", [False, True], ids=["here", "on the thread"])
def test_a_group_that_meets_an_unexpected_error_is_refused_too(
    tmp_path: Path, *, background: bool
) -> None:
    class OutOfMemory(Disk):
        failing = False

        def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
            if self.failing:
                raise MemoryError
            super().write(descriptor, data, at)

    disk = OutOfMemory()
    config = small_config(tmp_path, mode=FlushMode.SYNC, queue_flush_interval=0.05)
    with MessageStore(config, disk=disk, background=background) as store:
        store.wait_flushed(store.append(draft(body=b"one")))
        disk.failing = True
        lost = store.append(draft(body=b"two"))
        with pytest.raises((StoreUnwritable, MemoryError)):
            store.wait_flushed(lost)
        disk.failing = False
        end = time.monotonic() + 60
        while not _resumed(store, background=background):
            assert time.monotonic() < end
        assert store.wait_flushed(store.append(draft(body=b"three")))
        records = store.read("T", 0, 0).records
        assert [body_of(record) for record in records] == [b"one", b"three"]


def _resumed(store: MessageStore, *, background: bool) -> bool:
    if not background:
        store.maintenance.run()
    return store.health.writable


def test_a_group_is_taken_back_whole_even_if_no_file_can_be_removed(tmp_path: Path) -> None:
    class ReadOnly(Disk):
        failing = False

        def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
            if self.failing:
                raise OSError(30, "Read-only file system")
            super().write(descriptor, data, at)

        def remove(self, path: Path) -> None:
            if self.failing:
                raise OSError(30, "Read-only file system")
            super().remove(path)

    disk = ReadOnly()
    config = small_config(tmp_path, mode=FlushMode.SYNC)
    with MessageStore(config, disk=disk, background=False) as store:
        store.wait_flushed(store.append(draft(body=b"one")))
        store.log.make_spare()
        disk.failing = True
        lost = [store.append(draft(body=bytes(1500))) for _ in range(4)]  # into the next file
        with pytest.raises(StoreUnwritable, match="Read-only"):
            store.wait_flushed(lost[-1])
        assert store.max_offset("T", 0) == 1
        disk.failing = False
        store.maintenance.run()
        for number in range(4):
            body = bytes([number]) * 1500
            assert store.wait_flushed(store.append(draft(body=body)))
        bodies = [body_of(record) for record in store.read("T", 0, 0).records]
        assert bodies == [b"one", *(bytes([number]) * 1500 for number in range(4))]
    with MessageStore(config) as store:
        assert store.max_offset("T", 0) == 5


def test_a_close_that_meets_an_unexpected_error_lets_go_of_the_store(tmp_path: Path) -> None:
    class OutOfMemory(Disk):
        failing = False

        def sync(self, descriptor: int) -> None:
            if self.failing:
                raise MemoryError
            super().sync(descriptor)

    disk = OutOfMemory()
    store = MessageStore(small_config(tmp_path), disk=disk, background=False)
    with pytest.raises(MemoryError), store:
        store.append(draft())
        disk.failing = True
    with MessageStore(small_config(tmp_path)) as again:
        assert not again.recovery.clean
        assert again.max_offset("T", 0) == 1


def test_another_flush_mode_takes_effect_with_the_next_start(tmp_path: Path) -> None:
    disk = WatchedDisk(tmp_path / "commitlog")
    config = small_config(tmp_path, mode=FlushMode.SYNC)
    with MessageStore(config, disk=disk, background=False) as store:
        assert store.wait_flushed(store.append(draft()))
        store.config.apply({"flushDiskType": "ASYNC_FLUSH"})
        lost = store.append(draft())
        disk.failing = True
        with pytest.raises(StoreUnwritable, match="Input/output"):
            store.wait_flushed(lost)
        assert store.max_offset("T", 0) == 1
        disk.failing = False
