import threading
from pathlib import Path

import pytest

from bolide.protocol.tags import index_hash
from bolide.store.commit_log import CommitLog
from bolide.store.disk import Disk
from bolide.store.health import Health
from bolide.store.key_index import KeyIndex, PendingKeys


class FullDisk(Disk):
    full = False

    def allocate(self, path: Path, size: int) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().allocate(path, size)


class Bench:
    """The parts around the keys; `written` says how far records are readable."""

    def __init__(self, directory: Path) -> None:
        self.disk = FullDisk()
        self.health = Health()
        self.log = CommitLog([directory / "commitlog"], 4096, disk=self.disk)
        self.log.written = 10**9
        self.index = KeyIndex(directory / "index", slots=7, capacity=5, disk=self.disk)
        self.keys = PendingKeys(
            self.log, self.index, lock=threading.Lock(), health=self.health, disk=self.disk
        )

    def add(self, place: int, *keys: str) -> None:
        self.keys.add([index_hash("T", key) for key in keys], place, 1000)

    def find(self, key: str) -> list[int]:
        return self.index.find("T", key, limit=99, begin=0, end=2**62)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_keys_are_in_the_index_once_they_are_settled(bench: Bench) -> None:
    bench.add(0, "a", "b")
    bench.add(100, "a")
    assert bench.find("a") == []
    assert bench.keys.drain()
    assert (bench.find("a"), bench.find("b")) == ([100, 0], [0])
    assert bench.keys.drain()
    assert bench.find("a") == [100, 0]


def test_only_keys_of_readable_messages_are_settled(bench: Bench) -> None:
    bench.log.written = 100
    bench.add(0, "a")
    bench.add(100, "a")
    assert bench.keys.drain()
    assert bench.find("a") == [0]
    bench.log.written = 200
    assert bench.keys.drain()
    assert bench.find("a") == [100, 0]


def test_keys_of_messages_that_were_taken_back_are_forgotten(bench: Bench) -> None:
    bench.log.written = 100
    bench.add(0, "a")
    bench.add(100, "a", "b")
    bench.add(200, "b")
    bench.keys.rewind(100)
    bench.log.written = 1000
    bench.add(100, "c")
    assert bench.keys.drain()
    assert (bench.find("a"), bench.find("b"), bench.find("c")) == ([0], [], [100])


def test_a_full_disk_is_a_reason_to_refuse_until_the_keys_are_written(bench: Bench) -> None:
    for place in range(0, 1000, 100):
        bench.add(place, "a")
    bench.disk.full = True
    assert not bench.keys.drain()
    assert not bench.health.writable
    bench.disk.full = False
    assert bench.keys.drain()
    assert bench.health.writable
    assert bench.find("a") == list(range(900, -1, -100))


def test_without_an_index_there_is_nothing_to_settle(tmp_path: Path) -> None:
    disk = Disk()
    log = CommitLog([tmp_path], 4096, disk=disk)
    keys = PendingKeys(log, None, lock=threading.Lock(), health=Health(), disk=disk)
    keys.add([1, 2], 0, 0)
    assert keys.drain()
