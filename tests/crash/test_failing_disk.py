"""A disk that is full or fails: who waits is told why, what was acknowledged stays, and when the
disk works again the store goes on by itself.
"""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.store.config import FlushMode
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed
from bolide.store.message_store import MessageStore
from bolide.store.tables import CONSUMER_OFFSETS, Table
from tests.crash.ledger import Entry, Ledger, small_config
from tests.crash.letters import Name, batch, is_queued
from tests.support.faults import FaultyDisk, copy_store

FULL = (errno.ENOSPC, "No space left on device")
BROKEN = (errno.EIO, "Input/output error")


class Bench:
    """A store on a disk that fails when told to, and what it acknowledged."""

    def __init__(self, root: Path, mode: FlushMode) -> None:
        self.mode = mode
        self.root = root
        self.disk = FaultyDisk()
        self.ledger = Ledger()
        self.config = small_config(root, mode)
        self._numbers = iter(range(10_000))
        self._life = 1

    def __enter__(self) -> "Bench":
        self.store = MessageStore(self.config, disk=self.disk, background=False).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def append(self) -> list[Entry]:
        number = next(self._numbers)
        drafts = batch(self._life, number)
        places = self.store.append_batch(drafts)
        return [
            Entry(
                Name(self._life, number, at), str(draft.topic, "utf-8"), draft.queue_id,
                is_queued(draft), place,
            )
            for at, (draft, place) in enumerate(zip(drafts, places, strict=True))
        ]  # fmt: skip

    def acknowledge(self, entries: list[Entry]) -> None:
        """As a broker does: with SYNC_FLUSH not before it is on the disk."""
        if self.mode is FlushMode.SYNC:
            assert self.store.wait_flushed(entries[-1].place)
        for entry in entries:
            self.ledger.add(entry)

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            self.acknowledge(self.append())

    def check(self) -> None:
        """All that was acknowledged is there, and nothing that was refused."""
        self.only(self.ledger.check(self.store).keys())

    def check_after_a_kill(self, scratch: Path) -> None:
        copy = copy_store(self.root, scratch)
        with MessageStore(small_config(copy, self.mode), background=False) as store:
            self.only(self.ledger.check(store).keys())

    def only(self, names: object) -> None:
        assert names == {name for name, entry in self.ledger.entries.items() if entry.queued}


@pytest.fixture(params=FlushMode)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path / "store", request.param) as made:
        made.send(30)
        yield made


@pytest.fixture
def sync_bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path / "store", FlushMode.SYNC) as made:
        made.send(30)
        yield made


@pytest.fixture
def async_bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path / "store", FlushMode.ASYNC) as made:
        made.send(30)
        yield made


def append_until_refused(bench: Bench) -> str:
    with pytest.raises(StoreUnwritable) as caught:
        bench.send(1000)
    return caught.value.reason


@pytest.mark.parametrize(("error", "text"), [FULL, BROKEN])
def test_without_room_for_a_log_file_messages_are_refused_until_there_is(
    bench: Bench, tmp_path: Path, error: int, text: str
) -> None:
    with bench.disk.failing("allocate", error, "commitlog"):
        assert text in append_until_refused(bench)
        bench.check()
        bench.store.maintenance.run()
        assert text in append_until_refused(bench)
    bench.check_after_a_kill(tmp_path / "copy")
    bench.store.maintenance.run()
    bench.send(30)
    bench.check()
    bench.check_after_a_kill(tmp_path / "copy")


@pytest.mark.parametrize(("error", "text"), [FULL, BROKEN])
@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("call", ["write", "create_sparse"])
def test_without_room_for_queues_messages_are_refused_until_there_is(
    bench: Bench, tmp_path: Path, call: str, partly: bool, error: int, text: str
) -> None:
    bench.store.maintenance.run()
    bench.send(60)
    with bench.disk.failing(call, error, "consumequeue", partly=partly):
        while bench.store.health.writable:  # a slow round holds back the queues of the next ones
            bench.store.maintenance.run()
        assert text in append_until_refused(bench)
        bench.check()
        assert not bench.store.maintenance.checkpoint()
        bench.check_after_a_kill(tmp_path / "copy")
    bench.store.maintenance.run()
    bench.send(30)
    bench.check()
    bench.store.maintenance.run()
    bench.check_after_a_kill(tmp_path / "copy")


@pytest.mark.parametrize(("error", "text"), [FULL, BROKEN])
def test_without_room_for_the_index_messages_are_refused_until_there_is(
    bench: Bench, tmp_path: Path, error: int, text: str
) -> None:
    bench.store.end_burst()
    with bench.disk.failing("allocate", error, "index"):
        bench.send(150)
        assert not bench.store.end_burst()
        assert text in append_until_refused(bench)
        bench.check_after_a_kill(tmp_path / "copy")
    bench.store.maintenance.run()
    bench.send(30)
    bench.check()
    bench.check_after_a_kill(tmp_path / "copy")


@pytest.mark.parametrize("where", ["consumequeue", "index", "checkpoint"])
def test_no_checkpoint_is_written_that_is_not_true(
    bench: Bench, tmp_path: Path, where: str
) -> None:
    assert bench.store.maintenance.checkpoint()
    before = (tmp_path / "store" / "checkpoint").read_bytes()
    bench.send(10)
    with bench.disk.failing("sync", errno.EIO, where):
        assert not bench.store.maintenance.checkpoint()
        if where != "checkpoint":
            assert (tmp_path / "store" / "checkpoint").read_bytes() == before
        bench.check_after_a_kill(tmp_path / "copy")
    bench.store.maintenance.run()
    bench.send(10)
    assert bench.store.maintenance.checkpoint()
    bench.check_after_a_kill(tmp_path / "copy")


@pytest.mark.parametrize("where", ["consumequeue", "index"])
def test_after_a_failed_sync_the_same_is_written_again(async_bench: Bench, where: str) -> None:
    """The system forgets that pages are dirty when it could not write them."""
    bench = async_bench
    bench.store.maintenance.run()
    bench.store.end_burst()
    with bench.disk.failing("sync", errno.EIO, where):
        bench.store.maintenance.checkpoint()
    with bench.disk.failing("write", errno.EIO, where):
        assert not bench.store.maintenance.checkpoint()


def test_a_close_that_could_not_write_all_is_no_clean_one(bench: Bench, tmp_path: Path) -> None:
    with bench.disk.failing("sync", errno.EIO, "consumequeue"):
        bench.store.close()
    assert (tmp_path / "store" / "abort").exists()
    bench.check_after_a_kill(tmp_path / "copy")


# ---- SYNC_FLUSH


@pytest.mark.parametrize(("error", "text"), [FULL, BROKEN])
@pytest.mark.parametrize(("call", "partly"), [("write", False), ("write", True), ("sync", False)])
def test_a_group_that_cannot_be_flushed_is_refused_and_never_seen(
    sync_bench: Bench, tmp_path: Path, call: str, partly: bool, error: int, text: str
) -> None:
    bench = sync_bench
    told: list[Flushed] = []
    bench.store.on_flushed(told.append)
    groups = [bench.append() for _ in range(20)]  # more than one file of them
    assert groups[-1][0].place.physical_offset > bench.store.log.files[-2].start
    with bench.disk.failing(call, error, "commitlog", partly=partly):
        for group in groups:
            with pytest.raises(StoreUnwritable, match=text):
                bench.store.wait_flushed(group[-1].place)
        with pytest.raises(StoreUnwritable, match=text):
            bench.append()
        bench.store.maintenance.run()
        bench.check()
    assert told[-1].failure
    if call == "sync":  # what could be written can be taken back
        bench.check_after_a_kill(tmp_path / "copy")
    bench.store.maintenance.run()
    bench.check_after_a_kill(tmp_path / "copy")
    bench.send(30)
    bench.check()
    bench.check_after_a_kill(tmp_path / "copy")


def test_what_was_flushed_before_a_failure_is_not_refused_by_it(sync_bench: Bench) -> None:
    bench = sync_bench
    safe = bench.append()
    assert bench.store.flush()
    lost = bench.append()
    with bench.disk.failing("sync", errno.EIO, "commitlog"):
        assert not bench.store.flush()
    assert bench.store.wait_flushed(safe[-1].place)
    with pytest.raises(StoreUnwritable, match="Input/output error"):
        bench.store.wait_flushed(lost[-1].place)


def test_a_place_that_was_taken_back_stays_refused_when_another_message_has_it(
    sync_bench: Bench,
) -> None:
    bench = sync_bench
    lost = bench.append()
    with bench.disk.failing("sync", errno.EIO, "commitlog"):
        assert not bench.store.flush()
    bench.store.maintenance.run()
    bench.send(5)
    assert bench.store.flushed > lost[-1].place.end
    with pytest.raises(StoreUnwritable, match="Input/output error"):
        bench.store.wait_flushed(lost[-1].place)


def test_queue_offsets_go_on_where_the_refused_ones_were(sync_bench: Bench) -> None:
    bench = sync_bench
    units = bench.store.units
    bench.append()
    with bench.disk.failing("sync", errno.EIO, "commitlog"):
        assert not bench.store.flush()
    assert bench.store.units == units
    bench.store.maintenance.run()
    bench.send(40)
    bench.check()


def test_a_file_made_while_another_of_its_name_is_dropped_is_not_removed(
    sync_bench: Bench, tmp_path: Path
) -> None:
    """A group is taken back with the file it began; the next file is being made meanwhile."""
    bench = sync_bench
    maker = threading.Thread(target=bench.store.log.make_spare)

    def make_one(path: Path) -> None:
        if path.parent.name == "commitlog" and not maker.ident:
            maker.start()
            maker.join(0.2)  # it waits for us, or is done
        Path.unlink(path)

    files = len(bench.store.log.files)
    while len(bench.store.log.files) == files:
        bench.append()
    with (
        bench.disk.failing("sync", errno.EIO, "/commitlog/0"),  # not the one without a name yet
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(bench.disk, "remove", make_one)
        assert not bench.store.flush()
        maker.join()
    bench.store.maintenance.run()
    bench.send(60)
    bench.check_after_a_kill(tmp_path / "copy")


# ---- ASYNC_FLUSH


def test_what_a_failed_flush_left_behind_is_written_again(async_bench: Bench) -> None:
    bench = async_bench
    with bench.disk.failing("sync", errno.EIO, "commitlog"):
        assert not bench.store.flush()
        with pytest.raises(StoreUnwritable, match="Input/output error"):
            bench.append()
        bench.store.maintenance.run()
        assert not bench.store.health.writable
    with bench.disk.failing("write", errno.EIO, "commitlog"):
        bench.store.maintenance.run()
        assert not bench.store.flush()  # a second sync alone would say yes to nothing
    bench.store.maintenance.run()
    assert bench.store.flush()
    bench.send(10)
    bench.check()


def test_one_failure_does_not_keep_another_from_being_mended(async_bench: Bench) -> None:
    bench = async_bench
    with bench.disk.failing("allocate", errno.ENOSPC, "commitlog"):
        append_until_refused(bench)
        with bench.disk.failing("sync", errno.EIO, "commitlog"):
            assert not bench.store.flush()
        bench.store.maintenance.run()
        assert "the commit log" not in bench.store.health.causes
        assert bench.store.flush()


# ---- tables


@pytest.mark.parametrize(("error", "text"), [FULL, BROKEN])
def test_a_table_that_cannot_be_saved_is_saved_later(tmp_path: Path, error: int, text: str) -> None:
    disk = FaultyDisk()
    table = Table(tmp_path, CONSUMER_OFFSETS, disk=disk)
    table.value.offset_table["Orders@readers"] = {0: 1}
    table.changed()
    assert table.save()
    table.value.offset_table["Orders@readers"] = {0: 2}
    table.changed()
    with disk.failing("replace", error), pytest.raises(OSError, match=text):
        table.save()
    again = Table(tmp_path, CONSUMER_OFFSETS)
    again.load()
    assert again.value.offset_table["Orders@readers"] == {0: 1}
    assert table.save()
    again.load()
    assert again.value.offset_table["Orders@readers"] == {0: 2}
