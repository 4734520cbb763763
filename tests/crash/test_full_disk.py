"""A small disk that really is full: a tmpfs."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bolide.store.config import FlushMode, StoreConfig
from bolide.store.errors import StoreUnwritable
from bolide.store.message_store import MessageStore
from bolide.store.tables import CONSUMER_OFFSETS, Table
from tests.crash.ledger import Entry, Ledger, small_config
from tests.crash.letters import Name, batch, is_queued

BALLAST = 384 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1.5 MiB, half of it taken by two files."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as exc:
        pytest.skip(f"a tmpfs cannot be mounted: {exc}")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted: {done.stderr.strip()}")
    try:
        for name in ("ballast-1", "ballast-2"):
            (path / name).write_bytes(bytes(BALLAST))
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def config_of(root: Path, mode: FlushMode, ratio: float) -> StoreConfig:
    return small_config(
        root, mode,
        commit_log_file_size=64 * 1024, flush_interval=0.01, queue_flush_interval=0.01,
        clean_interval=0.0, clean_forcibly=False, disk_max_used_ratio=ratio,
        disk_clean_forcibly_ratio=ratio, disk_warning_ratio=ratio,
    )  # fmt: skip


def ballasts(disk: Path) -> list[Path]:
    return sorted(disk.glob("ballast-*"))


def send_until_refused(
    store: MessageStore,
    ledger: Ledger,
    life: int,
    between: Callable[[], object] = lambda: None,
) -> str:
    sync = store.config.value.flush_mode is FlushMode.SYNC
    try:
        for number in range(100_000):
            drafts = batch(life, number)
            places = store.append_batch(drafts)
            if sync:
                assert store.wait_flushed(places[-1], 30.0)
            for at, (draft, place) in enumerate(zip(drafts, places, strict=True)):
                name = Name(life, number, at)
                topic = str(draft.topic, "utf-8")
                ledger.add(Entry(name, topic, draft.queue_id, is_queued(draft), place))
            between()
    except StoreUnwritable as exc:
        return exc.reason
    raise AssertionError("the disk is not full")


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    end, pause = time.monotonic() + seconds, threading.Event()
    while not true():
        assert time.monotonic() < end
        pause.wait(0.01)


@pytest.mark.parametrize("mode", FlushMode)
def test_a_full_disk_refuses_messages_until_there_is_room(disk: Path, mode: FlushMode) -> None:
    ledger = Ledger()
    config = config_of(disk / "store", mode, 1.0)
    with MessageStore(config) as store:
        for life, ballast in enumerate(ballasts(disk)):
            assert "No space left" in send_until_refused(store, ledger, life)
            ledger.check(store, keys=False)  # there may be no room for them
            ballast.unlink()
            wait_until(lambda: store.health.writable)
        ledger.check(store)
    with MessageStore(config) as store:
        assert store.recovery.clean
        ledger.check(store)
    assert {name.life for name in ledger.entries} == {0, 1}


def test_a_nearly_full_disk_refuses_messages_until_there_is_room(disk: Path) -> None:
    ledger = Ledger()
    config = config_of(disk / "store", FlushMode.ASYNC, 0.8)
    with MessageStore(config, background=False) as store:
        for life, ballast in enumerate(ballasts(disk)):
            reason = send_until_refused(store, ledger, life, between=store.maintenance.run)
            assert "full, diskSpaceWarningLevelRatio is 80%" in reason
            ledger.check(store)
            ballast.unlink()
            store.maintenance.run()
            assert store.health.writable
        ledger.check(store)


def test_a_store_is_not_opened_without_room_for_what_a_crash_left_to_write(disk: Path) -> None:
    ledger = Ledger()
    config = config_of(disk / "store", FlushMode.ASYNC, 1.0)
    with MessageStore(config, background=False) as store:  # its thread might write the queues yet
        send_until_refused(store, ledger, 1)
        fill(disk)
    assert (disk / "store" / "abort").exists()
    fill(disk)
    with pytest.raises(OSError, match="No space left"), MessageStore(config):
        pass
    (disk / "filler").unlink()
    for ballast in ballasts(disk):
        ballast.unlink()
    with MessageStore(config) as store:
        ledger.check(store)


def test_a_table_on_a_full_disk_keeps_its_old_value(disk: Path) -> None:
    table = Table(disk / "config", CONSUMER_OFFSETS)
    table.value.offset_table["Orders@readers"] = dict.fromkeys(range(1000), 1)
    table.changed()
    table.save()
    fill(disk)
    table.value.offset_table["Orders@readers"] = dict.fromkeys(range(1000), 2)
    table.changed()
    with pytest.raises(OSError, match="No space left"):
        table.save()
    again = Table(disk / "config", CONSUMER_OFFSETS)
    again.load()
    assert again.value.offset_table["Orders@readers"][0] == 1
    ballasts(disk)[0].unlink()
    table.save()
    again.load()
    assert again.value.offset_table["Orders@readers"][0] == 2


def fill(disk: Path) -> None:
    """Take what is left, to the last page."""
    with (disk / "filler").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return
