import errno
import logging
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.store.disk import Disk
from bolide.store.errors import NotInMemory
from bolide.store.message_store import MessageStore
from bolide.store.reading import EVERYTHING, MessageFilter, ReadLimits, ReadStatus
from tests.support.aio import on_loop, until
from tests.support.compaction import (
    LOG_SIZE,
    PER_FILE,
    TOPIC,
    compaction_config,
    log_of,
    newest,
    opened,
    put,
    read_all,
)
from tests.support.faults import FaultyDisk
from tests.support.store import draft

VALUES = [(f"k{number % 4}", b"v%d" % number) for number in range(3 * PER_FILE + 5)]


def test_the_newest_message_of_each_key_is_kept_with_its_offset(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, VALUES)
    assert read_all(store) == newest(VALUES, 0)
    store.compaction.compact_all()
    assert read_all(store) == newest(VALUES, 3 * PER_FILE)
    assert [offset for offset, _, _ in read_all(store)] == [26, 27, 28, 29, 30, 31, 32, 33, 34]
    store.close()


def test_a_read_in_a_gap_returns_the_next_message(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, VALUES)
    store.compaction.compact_all()
    found = store.read(TOPIC, 0, 5, ReadLimits(1))
    assert (found.status, found.next_offset) == (ReadStatus.FOUND, 27)
    assert (found.min_offset, found.max_offset) == (0, len(VALUES))
    store.close()


def test_an_empty_body_deletes_its_key(tmp_path: Path) -> None:
    values = [*VALUES[:9], ("k1", b""), *[("other", b"%d" % number) for number in range(12)]]
    store = opened(tmp_path)
    put(store, values)
    store.compaction.compact_all()
    assert "k1" not in {key for _, key, _ in read_all(store)}
    assert read_all(store) == newest(values, 2 * PER_FILE)
    store.close()


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([b"", b"x", b"long" * 60])),
        min_size=1,
        max_size=70,
    ),
    pauses=st.sets(st.integers(0, 70)),
    map_size=st.sampled_from([1, 10**6]),
)
def test_any_sequence_of_writes_keeps_exactly_the_newest_of_each_key(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[tuple[str, bytes]],
    pauses: set[int],
    map_size: int,
) -> None:
    root = tmp_path_factory.mktemp("store")
    store = opened(root, offset_map_bytes=map_size)
    for number, value in enumerate(values):
        put(store, [value])
        if number in pauses:
            store.compaction.compact_all()
    store.compaction.compact_all()
    segments = log_of(store).segments
    below = segments[-1].first
    assert read_all(store) == newest(values, below)
    store.close()
    store = opened(root)
    assert read_all(store) == newest(values, below)
    store.close()


def test_more_keys_than_the_map_holds_take_several_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = [(f"k{number % 150}", b"%d" % number) for number in range(400)]
    store = opened(tmp_path, offset_map_bytes=1)  # the smallest map has 100 entries
    put(store, values)
    with caplog.at_level(logging.INFO):
        store.compaction.compact_all()
    assert caplog.text.count("compacted Latest, queue 0") >= 2
    assert read_all(store) == newest(values, log_of(store).segments[-1].first)
    store.close()


def test_compacted_messages_survive_retention_of_the_commit_log(tmp_path: Path) -> None:
    store = opened(tmp_path, file_reserved_hours=0, commit_log_file_size=4096)
    put(store, VALUES)
    put(store, [("filler", b"x" * 1000)] * 40)
    store.compaction.finish()
    store.retention.delete_expired_soon()
    store.maintenance.run()
    store.retention.run()
    assert store.find_queue(TOPIC, 0).min_offset > len(VALUES)  # type: ignore[union-attr]
    assert read_all(store)[: len(VALUES)] == newest(VALUES, 0)
    assert store.min_offset(TOPIC, 0) == 0
    store.close()


def test_retention_waits_for_messages_that_are_not_copied(tmp_path: Path) -> None:
    store = opened(tmp_path, file_reserved_hours=0, commit_log_file_size=4096)
    for key, body in VALUES:
        store.append(draft(TOPIC, body, properties={"KEYS": key}))
    for _ in range(10):
        store.append(draft("Other", b"x" * 1000))
    store.flush()
    store.retention.delete_expired_soon()
    assert store.retention.run() == []
    store.compaction.run()
    assert store.retention.run()
    assert read_all(store) == newest(VALUES, 0)
    store.close()


def test_a_message_without_keys_is_not_copied(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, [("a", b"1"), ("", b"2"), ("b", b"3"), ("", b"4")])
    assert read_all(store) == [(0, "a", b"1"), (2, "b", b"3")]
    store.close()


def test_messages_that_are_not_copied_yet_are_read_from_the_consume_queue(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, VALUES)
    store.append(draft(TOPIC, b"new", properties={"KEYS": "k"}))
    assert read_all(store)[-1] == (len(VALUES), "k", b"new")
    found = store.read(TOPIC, 0, len(VALUES), may_block=False)
    assert len(found.records) == 1
    with pytest.raises(NotInMemory):
        store.read(TOPIC, 0, 0, may_block=False)
    store.close()


def test_a_read_of_a_copy_does_not_tell_of_messages_that_are_not_confirmed(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    put(store, VALUES)
    store.log.confirmed = store.log.end
    put(store, VALUES)
    assert read_all(store) == newest(VALUES, 0)
    assert store.read(TOPIC, 0, 3).max_offset == len(VALUES)
    assert log_of(store).max_offset == len(VALUES)
    store.close()


def test_a_filter_applies_to_compacted_messages(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(4):
        properties = {"KEYS": "k", "TAGS": "AB"[number % 2]}
        store.append(draft(TOPIC, b"%d" % number, properties=properties))
    store.flush()
    store.compaction.run()
    wanted = MessageFilter(code=lambda code: code == ord("B"))
    found = store.read(TOPIC, 0, 0, ReadLimits(), wanted)
    assert (len(found.records), found.next_offset) == (2, 4)
    found = store.read(TOPIC, 0, 0, ReadLimits(), MessageFilter(code=lambda _: False))
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 4)
    found = store.read(TOPIC, 0, 0, ReadLimits(max_size=200), EVERYTHING)
    assert len(found.records) == 1
    store.close()


def test_a_topic_that_is_removed_loses_its_log(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, VALUES)
    store.compaction.compact_all()
    store.remove_topic(TOPIC)
    assert not list(tmp_path.glob("compaction/compaction*/Latest"))
    assert b"Latest_0" not in (tmp_path / "compaction" / "position-checkpoint").read_bytes()
    put(store, [("a", b"1")])
    assert read_all(store) == [(0, "a", b"1")]
    store.close()


def test_a_topic_removed_by_a_store_that_is_killed_leaves_nothing_to_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "killed")
    put(store, VALUES)
    checkpoint = store.maintenance.checkpoint

    def checkpoint_and_die() -> None:
        checkpoint()  # the queues are gone for good
        shutil.copytree(tmp_path / "killed", tmp_path / "next")

    monkeypatch.setattr(store.maintenance, "checkpoint", checkpoint_and_die)
    store.remove_topic(TOPIC)
    store = opened(tmp_path / "next")
    put(store, [("k0", b"new")])
    assert read_all(store) == [(0, "k0", b"new")]
    store.close()


def test_the_removal_of_a_plain_topic_does_not_wait_for_a_compaction(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, VALUES)
    held, done = threading.Event(), threading.Event()

    def compact() -> None:
        with store.compaction._work_lock:
            held.set()
            assert done.wait(20)

    busy = threading.Thread(target=compact)
    busy.start()
    assert held.wait(20)
    try:
        assert store.remove_topic("Plain") == 0
    finally:
        done.set()
        busy.join()
    store.close()


def test_a_copy_that_was_written_in_part_goes_on_behind_that_part(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = opened(tmp_path, disk=disk)
    put(store, VALUES[:5])
    with disk.failing("create_sparse", errno.ENOSPC, "compactionLog"):
        put(store, VALUES[5:])
    store.compaction.run()
    store.close()
    store = opened(tmp_path)
    assert read_all(store) == newest(VALUES, 0)
    store.close()


def test_a_deleted_key_does_not_come_back_after_a_full_disk(tmp_path: Path) -> None:
    values = [("A", b"1"), *((f"k{n}", b"v") for n in range(7)), ("A", b"2"), ("A", b"")]
    disk = FaultyDisk()
    store = opened(tmp_path / "killed", disk=disk)
    put(store, values)
    last_file = f"{LOG_SIZE:020d}"
    with disk.failing("write", errno.ENOSPC, f"compactionLog/{TOPIC}/0/{last_file}"):
        put(store, [("z", b"1")])
        store.compaction.compact_all()
    shutil.copytree(tmp_path / "killed", tmp_path / "next")
    store = opened(tmp_path / "next")
    put(store, [(f"y{n}", b"v") for n in range(3 * PER_FILE)])
    store.compaction.compact_all()
    assert "A" not in {key for _, key, _ in read_all(store)}
    store.close()


def test_a_copy_ahead_of_its_queue_is_cut(tmp_path: Path) -> None:
    """As RocketMQ leaves it when a topic is deleted and made again."""
    store = opened(tmp_path / "old")
    put(store, VALUES)
    store.compaction.compact_all()
    store.close()
    store = opened(tmp_path / "new")
    put(store, VALUES[:5])
    store.close()
    shutil.rmtree(tmp_path / "new" / "compaction")
    shutil.copytree(tmp_path / "old" / "compaction", tmp_path / "new" / "compaction")
    store = opened(tmp_path / "new")
    put(store, VALUES[5:] + VALUES)
    store.compaction.compact_all()
    both = VALUES + VALUES
    assert read_all(store, begin=10) == newest(both, log_of(store).segments[-1].first)
    store.close()


def test_without_the_setting_the_topic_is_plain(tmp_path: Path) -> None:
    store = opened(tmp_path, compaction_enabled=False)
    put(store, VALUES)
    store.compaction.compact_all()
    assert read_all(store) == newest(VALUES, 0)
    assert not (tmp_path / "compaction").exists()
    store.close()


@pytest.mark.parametrize(
    ("call", "where", "partly"),
    [
        ("create_sparse", "compacting", False),
        ("write", "compactionLog/Latest/0/compacting", True),
        ("write", "compactionCq/Latest/0/compacting", True),
        ("sync", "compacting", False),
    ],
)
def test_a_full_or_failing_disk_leaves_the_old_files(
    tmp_path: Path, call: str, where: str, partly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    store = opened(tmp_path, disk=disk)
    put(store, VALUES)
    with disk.failing(call, errno.ENOSPC, where, partly=partly):
        store.compaction.compact_all()
    assert "stays as it is" in caplog.text
    assert "No space left" in caplog.text
    assert read_all(store) == newest(VALUES, 0)
    store.compaction.compact_all()
    assert read_all(store) == newest(VALUES, 3 * PER_FILE)
    store.close()


@pytest.mark.parametrize("where", ["compactionLog", "compactionCq"])
@pytest.mark.parametrize("call", ["write", "create_sparse"])
def test_a_copy_that_fails_is_repeated(tmp_path: Path, call: str, where: str) -> None:
    disk = FaultyDisk()
    store = opened(tmp_path, disk=disk)
    with disk.failing(call, errno.EIO, where, partly=True):
        put(store, VALUES)
        assert read_all(store) == newest(VALUES, 0)
    store.compaction.run()
    assert log_of(store).max_offset == len(VALUES)
    store.close()
    store = opened(tmp_path)
    assert read_all(store) == newest(VALUES, 0)
    store.close()


class BrokenRename(Disk):
    """Fails once in the middle of the replacement of segments."""

    def __init__(self, moment: str) -> None:
        self.moment = moment

    def step(self, name: str) -> None:
        if name == self.moment:
            self.moment = ""
            raise OSError(errno.EIO, "broken")


@pytest.mark.parametrize("moment", ["committed", "replace-segment", "remove-segment", "replaced"])
def test_a_replacement_that_fails_half_way_is_finished(tmp_path: Path, moment: str) -> None:
    store = opened(tmp_path, disk=BrokenRename(moment))
    put(store, VALUES)
    store.compaction.compact_all()
    assert read_all(store) == newest(VALUES, 3 * PER_FILE)
    store.compaction.compact_all()
    assert read_all(store) == newest(VALUES, 3 * PER_FILE)
    store.close()


@on_loop
async def test_the_thread_copies_and_compacts(tmp_path: Path) -> None:
    with MessageStore(compaction_config(tmp_path, compaction_interval=0.01)) as store:
        store.compaction.add(TOPIC)
        for key, body in VALUES:
            store.append(draft(TOPIC, body, properties={"KEYS": key}))
        store.flush()
        await until(lambda: read_all(store) == newest(VALUES, 3 * PER_FILE))
