"""The end of a slave's log, sent again by its master and compared."""

from pathlib import Path

import pytest

from bolide.protocol.ha import Transfer
from bolide.replication.overlap import Overlap, read_overlap
from bolide.store.message_store import MessageStore
from bolide.store.replica_log import LogMismatch
from tests.support.store import small_config
from tests.unit.store.test_replica_log import fill, log_bytes

OWN = b"0123456789"


@pytest.mark.parametrize("size", [1, 3, 10, 14])
def test_what_follows_the_overlap_is_returned(size: int) -> None:
    overlap = Overlap(100, OWN)
    sent = OWN + b"abcd"
    new = [
        overlap.compare(Transfer(100 + at, sent[at : at + size]))
        for at in range(0, len(sent), size)
    ]
    assert not overlap.data
    assert b"".join(each.data for each in new) == b"abcd"
    assert [each.offset + len(each.data) for each in new][-1] == 114
    assert all(each.offset >= 110 for each in new if each.data)


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer(100, b"0123456780"),
        Transfer(100, b"x"),
        Transfer(100, b"012345678xabcd"),
        Transfer(105, b"0"),
        Transfer(99, b"x012"),
    ],
)
def test_other_bytes_are_refused(transfer: Transfer) -> None:
    with pytest.raises(LogMismatch, match="copies the log of the master"):
        Overlap(100, OWN).compare(transfer)


def test_a_part_that_is_left_out_is_refused_once_the_master_has_begun() -> None:
    overlap = Overlap(100, OWN)
    overlap.compare(Transfer(100, b"01"))
    with pytest.raises(LogMismatch):
        overlap.compare(Transfer(104, b"x"))


@pytest.mark.parametrize("offset", [105, 110, 4096])
def test_a_master_may_begin_where_its_retention_left_off(offset: int) -> None:
    overlap = Overlap(100, OWN)
    data = OWN[offset - 100 :] + b"abcd"
    assert overlap.compare(Transfer(offset, data)).data == b"abcd"
    assert not overlap.data


def test_the_end_of_a_log_is_read_over_its_files(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path), background=False) as store:
        assert read_overlap(store.log) == Overlap(0, b"")
        fill(store, 100, size=100)

        overlap = read_overlap(store.log)
        assert overlap.position == 1, "0 would mean the newest file to RocketMQ"
        assert overlap.data == log_bytes(store)[1:]
        for _ in range(2):
            store.log.retire(store.log.files[0])
        assert read_overlap(store.log).position == store.log.min_offset
