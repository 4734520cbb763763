import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.errors import StoreUnwritable
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadStatus
from bolide.store.retention import Grounds, due, grounds
from tests.support.clock import FakeClock
from tests.support.store import body_of, draft, small_config

HOUR = 3600.0
CONFIG = StoreConfig(root=Path("unused"), file_reserved_hours=72)
EXPIRED, FORCED, NEITHER = Grounds(True, False), Grounds(False, True), Grounds(False, False)


# ---- the decisions


@pytest.mark.parametrize(
    ("hour", "used", "by_hand", "expected"),
    [
        (4, 0.0, False, EXPIRED),
        (5, 0.0, False, NEITHER),
        (5, 0.75, False, NEITHER),
        (5, 0.76, False, EXPIRED),
        (5, 0.0, True, EXPIRED),
        (5, 0.85, False, EXPIRED),
        (5, 0.86, False, Grounds(expired=True, forced=True)),
    ],
)
def test_files_may_go_by_the_hour_the_disk_or_by_hand(
    hour: int, used: float, by_hand: bool, expected: Grounds
) -> None:
    assert grounds(CONFIG, hour=hour, used=used, by_hand=by_hand) == expected


def test_nothing_is_forced_where_the_settings_forbid_it() -> None:
    config = replace(CONFIG, clean_forcibly=False)
    assert grounds(config, hour=5, used=0.99, by_hand=False) == EXPIRED


def test_files_go_when_their_last_message_has_been_kept_long_enough() -> None:
    now = 1000 * HOUR
    last = [now - hours * HOUR for hours in (100, 72, 71.9, 80)]
    assert due(last, now, CONFIG, EXPIRED) == 2, "it stops at the first that is not due"
    assert due(last, now, CONFIG, FORCED) == 4
    assert due(last, now, CONFIG, NEITHER) == 0


def test_only_so_many_files_go_at_a_time() -> None:
    config = replace(CONFIG, delete_batch_max=3)
    assert due([0.0] * 10, 1000 * HOUR, config, EXPIRED) == 3


# ---- a store that shrinks


class GaugedDisk(Disk):
    used = 0.0

    def used_ratio(self, path: Path) -> float:
        return self.used


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 3, 2, 12).astimezone().timestamp())


@pytest.fixture
def disk() -> GaugedDisk:
    return GaugedDisk()


OpenStore = Callable[..., MessageStore]


@pytest.fixture
def open_store(tmp_path: Path, clock: FakeClock, disk: GaugedDisk) -> Iterator[OpenStore]:
    opened = []

    def make(**changes: object) -> MessageStore:
        config = small_config(
            tmp_path,
            disk_warning_ratio=0.90,
            disk_clean_forcibly_ratio=0.85,
            disk_max_used_ratio=0.75,
            **changes,  # type: ignore[arg-type]
        )
        store = MessageStore(config, clock=clock, disk=disk, background=False).__enter__()
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


def fill(store: MessageStore, clock: FakeClock, *, files: int, topic: str = "T") -> None:
    """A message a file, an hour apart, with a key each."""
    for number in range(files):
        store.append(draft(topic, bytes([number]) * 3000, properties={"KEYS": f"k{number}"}))
        clock.advance(HOUR)
    store.maintenance.checkpoint()


def test_expired_files_go_at_their_hour_and_not_before(
    open_store: OpenStore, clock: FakeClock
) -> None:
    store = open_store(delete_batch_max=100)
    fill(store, clock, files=5)
    clock.advance(73 * HOUR)
    while datetime.fromtimestamp(clock()).astimezone().hour != 4:
        assert store.retention.run() == []
        clock.advance(HOUR)
    assert len(store.retention.run()) == 4, "never the last"
    assert store.log.min_offset == 4 * 4096


def test_files_that_are_not_expired_stay(open_store: OpenStore, clock: FakeClock) -> None:
    store = open_store(delete_when=tuple(f"{hour:02d}" for hour in range(24)))
    fill(store, clock, files=5)
    clock.advance(68.5 * HOUR)
    # A file is as old as the first message of the next one: 72.5, 71.5, … hours.
    assert [path.name for path in store.retention.run()] == [f"{0:020d}"]
    assert store.retention.run() == []


def test_a_request_by_hand_holds_for_some_rounds(open_store: OpenStore, clock: FakeClock) -> None:
    store = open_store(delete_batch_max=2)
    fill(store, clock, files=9)
    clock.advance(100 * HOUR)
    assert store.retention.run() == []
    store.retention.delete_expired_soon()
    assert [len(store.retention.run()) for _ in range(5)] == [2, 2, 2, 2, 0]
    for _ in range(15):
        store.retention.run()
    fill(store, clock, files=3)
    clock.advance(100 * HOUR)
    assert store.retention.run() == []


def test_a_full_disk_takes_the_oldest_files_whatever_their_age(
    open_store: OpenStore, clock: FakeClock, disk: GaugedDisk
) -> None:
    store = open_store(delete_batch_max=2)
    fill(store, clock, files=5)
    disk.used = 0.80
    assert store.retention.run() == []
    disk.used = 0.86
    assert len(store.retention.run()) == 2


def test_above_the_warning_level_no_messages_are_taken(
    open_store: OpenStore, disk: GaugedDisk
) -> None:
    store = open_store()
    disk.used = 0.91
    store.retention.run()
    with pytest.raises(StoreUnwritable, match=r"91% full, diskSpaceWarningLevelRatio is 90%"):
        store.append(draft())
    disk.used = 0.90
    store.retention.run()
    store.append(draft())


def test_queues_and_index_follow_the_log(open_store: OpenStore, clock: FakeClock) -> None:
    store = open_store(queue_units=2, max_index_entries=3)
    fill(store, clock, files=3, topic="gone")
    fill(store, clock, files=6)
    clock.advance(100 * HOUR)
    store.retention.delete_expired_soon()
    assert len(store.retention.run()) == 8
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (5, 6)
    assert (store.min_offset("gone", 0), store.max_offset("gone", 0)) == (3, 3)
    assert store.read("T", 0, 0).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.read("T", 0, 0).next_offset == 5
    assert body_of(store.read("T", 0, 5).records[0]) == bytes([5]) * 3000
    assert store.find("T", "k0") == []
    assert len(store.find("T", "k5")) == 1
    assert len(store.index.sizes if store.index else ()) < 5
    queues = store.config.value.root / "consumequeue"
    assert len(list((queues / "T" / "0").iterdir())) == 1


def test_queue_offsets_go_on_after_all_messages_of_a_queue_are_gone(
    open_store: OpenStore, clock: FakeClock
) -> None:
    store = open_store(queue_units=2)
    fill(store, clock, files=4, topic="gone")
    fill(store, clock, files=1)
    clock.advance(100 * HOUR)
    store.retention.delete_expired_soon()
    store.retention.run()
    store.close()
    again = open_store(queue_units=2)
    assert (again.min_offset("gone", 0), again.max_offset("gone", 0)) == (4, 4)
    assert again.append(draft("gone")).queue_offset == 4


def test_a_file_that_is_read_goes_when_the_reader_is_done(
    open_store: OpenStore, clock: FakeClock, tmp_path: Path
) -> None:
    store = open_store()
    fill(store, clock, files=3)
    record = store.read("T", 0, 0).records[0]
    clock.advance(100 * HOUR)
    store.retention.delete_expired_soon()
    assert store.retention.run() == []
    assert store.log.min_offset == 2 * 4096
    assert body_of(record) == bytes(3000)
    assert len(list((tmp_path / "commitlog").iterdir())) == 3
    record.release()
    assert len(store.retention.run()) == 2


def test_who_reads_too_long_does_not_keep_the_file(
    open_store: OpenStore, clock: FakeClock, tmp_path: Path
) -> None:
    store = open_store(destroy_forcibly_after=120.0)
    fill(store, clock, files=2)
    record, descriptor = store.read("T", 0, 0).records[0], store.log.files[0].descriptor
    clock.advance(100 * HOUR)
    store.retention.delete_expired_soon()
    assert store.retention.run() == []
    clock.advance(119)
    assert store.retention.run() == []
    clock.advance(1)
    assert len(store.retention.run()) == 1
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{4096:020d}"]
    assert body_of(record) == bytes(3000)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    record.release()


def test_what_is_not_on_the_disk_yet_is_not_removed(
    open_store: OpenStore, clock: FakeClock
) -> None:
    store = open_store()
    for _ in range(3):
        store.append(draft(body=bytes(3000)))
    clock.advance(100 * HOUR)
    store.retention.delete_expired_soon()
    assert store.retention.run() == []
    assert store.flush()
    assert len(store.retention.run()) == 2
