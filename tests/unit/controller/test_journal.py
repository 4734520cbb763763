"""The journal of a Raft node: what a crash leaves behind, and what damage does."""

import os
from pathlib import Path

import pytest

from bolide.controller.errors import ControllerStoreDamaged, ControllerStoreInUse
from bolide.controller.journal import SyncedJournal, read_snapshot, snapshot_path, write_snapshot

ENTRIES = [(f"command {n}".encode() * (n % 5 + 1), n, 1 + n // 4) for n in range(1, 11)]


def filled(path: Path) -> SyncedJournal:
    journal = SyncedJournal(path)
    journal.setCurrentTerm(3, "n1")
    for entry in ENTRIES:
        journal.add(*entry)
    return journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "n0" / "journal"


def test_entries_term_and_vote_survive(path: Path) -> None:
    filled(path).close()
    journal = SyncedJournal(path)
    assert journal[:] == ENTRIES and len(journal) == 10
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (3, "n1")
    journal.close()


def test_a_torn_record_at_the_end_is_cut_at_every_byte(path: Path) -> None:
    journal = filled(path)
    journal.close()
    whole, before = path.stat().st_size, SyncedJournal(path)
    start = before._ends[-2]
    before.close()
    data = path.read_bytes()
    for cut in range(start, whole):
        path.write_bytes(data[:cut])
        journal = SyncedJournal(path)
        assert journal[:] == ENTRIES[:-1]
        journal.add(*ENTRIES[-1])
        journal.close()
        assert path.read_bytes() == data


def test_what_is_cut_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(path).close()
    with path.open("ab") as file:
        file.write(b"torn")
    SyncedJournal(path).close()
    assert "cut 4 bytes behind entry 10" in caplog.text


def test_zeros_in_the_place_of_a_record_are_cut(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(path).close()
    with path.open("ab") as file:
        file.write(bytes(4096))
    journal = SyncedJournal(path)
    assert journal[:] == ENTRIES
    journal.close()
    assert "cut 4096 bytes behind entry 10, zeros" in caplog.text


def test_more_zeros_than_a_record_has_stop_the_node(path: Path) -> None:
    filled(path).close()
    with path.open("ab") as file:
        file.write(bytes(128 * 1024))
    with pytest.raises(ControllerStoreDamaged, match="131072 bytes are more than one record"):
        SyncedJournal(path)


@pytest.mark.parametrize("block", [range(24), range(20, 60), range(60, 200)])
def test_a_record_of_which_some_blocks_are_missing_is_cut(path: Path, block: range) -> None:
    journal = filled(path)
    start = journal._end
    journal.add(b"y" * 200, 11, 3)
    journal.close()
    data = bytearray(path.read_bytes())
    for each in block:
        data[start + each] = 0
    path.write_bytes(data)
    journal = SyncedJournal(path)
    assert journal[:] == ENTRIES
    journal.close()


@pytest.mark.parametrize("damaged", [(8, 9), (3, 4, 5, 6, 7, 8, 9)])
def test_two_damaged_records_at_the_end_stop_the_node(path: Path, damaged: tuple[int, ...]) -> None:
    journal = filled(path)
    ends = journal._ends[:]
    journal.close()
    data = bytearray(path.read_bytes())
    for number in damaged:
        data[ends[number] - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ControllerStoreDamaged, match="others follow"):
        SyncedJournal(path)
    assert path.read_bytes() == data


def test_damage_with_good_records_behind_it_stops_the_node(path: Path) -> None:
    journal = filled(path)
    middle = journal._ends[4] + 30
    journal.close()
    data = bytearray(path.read_bytes())
    data[middle] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(ControllerStoreDamaged, match=r"damaged.*another id"):
        SyncedJournal(path)
    assert path.read_bytes() == data


def test_a_missing_record_in_the_middle_stops_the_node(path: Path) -> None:
    journal = filled(path)
    start, end = journal._ends[3], journal._ends[4]
    journal.close()
    data = path.read_bytes()
    path.write_bytes(data[:start] + data[end:])
    with pytest.raises(ControllerStoreDamaged, match="out of order"):
        SyncedJournal(path)


@pytest.mark.parametrize("text", [b"", b"00000000\n{}", b"nonsense"])
def test_a_damaged_vote_stops_the_node(path: Path, text: bytes) -> None:
    filled(path).close()
    (path.parent / "journal.term").write_bytes(text)
    with pytest.raises(ControllerStoreDamaged, match="term"):
        SyncedJournal(path)


def test_a_missing_vote_stops_the_node(path: Path) -> None:
    filled(path).close()
    (path.parent / "journal.term").unlink()
    with pytest.raises(ControllerStoreDamaged, match="missing"):
        SyncedJournal(path)


def test_a_missing_journal_beside_a_vote_stops_the_node(path: Path) -> None:
    filled(path).close()
    path.unlink()
    with pytest.raises(ControllerStoreDamaged, match="missing"):
        SyncedJournal(path)


def test_a_file_of_somebody_else_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"something else")
    with pytest.raises(ControllerStoreDamaged, match="not a journal"):
        SyncedJournal(path)


def test_a_second_process_cannot_open_it(path: Path) -> None:
    journal = filled(path)
    with pytest.raises(ControllerStoreInUse):
        SyncedJournal(path)
    journal.close()


def test_a_tail_that_another_leader_replaced_is_gone(path: Path) -> None:
    journal = filled(path)
    journal.deleteEntriesFrom(6)
    journal.add(b"other", 7, 9)
    journal.close()
    again = SyncedJournal(path)
    assert again[:] == [*ENTRIES[:6], (b"other", 7, 9)]
    again.close()


def test_entries_of_a_snapshot_are_dropped(path: Path) -> None:
    journal = filled(path)
    journal.deleteEntriesTo(4)
    journal.add(b"more", 11, 3)
    journal.close()
    again = SyncedJournal(path)
    assert again[:] == [*ENTRIES[4:], (b"more", 11, 3)]
    again.clear()
    assert len(again) == 0
    again.close()


def test_after_a_kill_between_snapshot_and_cut_the_tail_is_kept(path: Path) -> None:
    journal = filled(path)
    write_snapshot(snapshot_path(path), b"state", [ENTRIES[5], ENTRIES[6]])
    journal.close()
    journal = SyncedJournal(path)
    state, (first, second) = read_snapshot(snapshot_path(path))
    journal.cut_to(first, second)
    assert state == b"state"
    assert journal[:] == ENTRIES[5:]
    journal.close()


def test_a_journal_that_does_not_have_the_entries_of_the_snapshot_is_not_cut(path: Path) -> None:
    journal = filled(path)
    journal.cut_to((b"x", 6, 2), (b"y", 7, 2))
    assert journal[:] == ENTRIES
    journal.close()


def test_a_damaged_snapshot_is_refused(path: Path) -> None:
    path.parent.mkdir()
    place = snapshot_path(path)
    write_snapshot(place, b"state", [ENTRIES[0], ENTRIES[1]])
    data = bytearray(place.read_bytes())
    data[20] ^= 1
    place.write_bytes(data)
    with pytest.raises(ControllerStoreDamaged, match="checksum"):
        read_snapshot(place)


def test_after_a_failed_write_nothing_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[BaseException] = []
    journal = SyncedJournal(path, failures.append)
    journal.add(*ENTRIES[0])

    def fail(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="full"):
        journal.add(*ENTRIES[1])
    monkeypatch.undo()
    with pytest.raises(OSError, match="failed before"):
        journal.add(*ENTRIES[1])
    assert len(failures) == 1 and len(journal) == 1
    journal.close()


def test_a_snapshot_whose_name_may_be_lost_ends_the_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[BaseException] = []
    journal = SyncedJournal(path, failures.append)
    journal.add(b"a", 1, 1)

    def fail(_: int) -> None:
        raise OSError("the disk is broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        journal.deleteEntriesTo(1)
    assert len(failures) == 1 and len(journal) == 1
    journal.close()
