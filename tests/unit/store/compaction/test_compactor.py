import zlib
from pathlib import Path

import pytest

from bolide.model.message import SysFlag
from bolide.protocol.record import encode_record
from bolide.store.compaction.compactor import Keyed, NewestOffsets, compact, read_keyed
from bolide.store.compaction.segments import SparseUnit
from tests.support.compaction import PER_FILE, log_of, opened, put, read_all
from tests.support.store import draft

TAG_A = 2598919  # "TagA".hashCode()


def unit(queue_offset: int) -> SparseUnit:
    return SparseUnit(0, 100, 0, 0, queue_offset)


@pytest.mark.parametrize(
    ("body", "sys_flag", "has_body"),
    [
        (b"x", 0, True),
        (b"", 0, False),
        (zlib.compress(b""), SysFlag.COMPRESSED, False),
        (zlib.compress(b"x"), SysFlag.COMPRESSED, True),
        (b"not compressed", SysFlag.COMPRESSED, True),
    ],
)
def test_a_body_is_empty_if_nothing_is_left_when_it_is_decompressed(
    body: bytes, sys_flag: int, has_body: bool
) -> None:
    properties = {"KEYS": "a b", "TAGS": "TagA"}
    record = encode_record(draft(body=body, properties=properties, sys_flag=sys_flag))
    assert read_keyed(record) == Keyed("a b", TAG_A, has_body)


def test_blank_keys_are_none() -> None:
    assert read_keyed(encode_record(draft(properties={"KEYS": " \t"}))).keys == ""


def test_only_the_newest_of_a_key_and_what_the_map_does_not_cover_is_retained() -> None:
    newest = NewestOffsets(2)
    assert newest.add("a", 3)
    assert newest.add("b", 4)
    assert not newest.add("c", 5), "the map is full"
    assert newest.add("a", 6)
    kept = [
        offset
        for offset, key in [(3, "a"), (4, "b"), (5, "c"), (6, "a"), (7, "b")]
        if newest.retains(unit(offset), Keyed(key, 0, has_body=True))
    ]
    assert kept == [4, 5, 6, 7]
    assert not newest.retains(unit(2), Keyed("", 0, has_body=True))
    assert not newest.retains(unit(6), Keyed("a", 0, has_body=False))
    assert newest.retains(unit(7), Keyed("a", 0, has_body=False)), "it has not been considered"


def test_a_pass_without_new_full_files_does_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, [("a", b"1")] * (PER_FILE + 1))
    log = log_of(store)
    done = compact(log, -1, 10_000, lambda: None)
    assert done is not None
    assert (done.position, done.kept, done.removed, done.is_complete) == (9, 1, 9, True)
    assert compact(log, done.position, 10_000, lambda: None) is None
    assert [offset for offset, _, _ in read_all(store)] == [9, 10]
    store.close()


def test_a_compaction_that_is_stopped_leaves_the_files(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    store = opened(tmp_path)
    put(store, [("a", b"1")] * (2 * PER_FILE + 1))
    with pytest.raises(Stopped):
        compact(log_of(store), -1, 10_000, stop)
    assert len(read_all(store)) == 2 * PER_FILE + 1
    store.close()


def test_all_messages_of_the_full_files_may_go(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, [("a", b"")] * (PER_FILE + 1))
    store.compaction.compact_all()
    assert [offset for offset, _, _ in read_all(store)] == [PER_FILE]
    store.close()
    store = opened(tmp_path)
    put(store, [("a", b"new")])
    assert [offset for offset, _, _ in read_all(store)] == [PER_FILE, PER_FILE + 1]
    store.close()
