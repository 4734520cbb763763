"""A log whose last write was cut short ends before the record that is not whole."""

from dataclasses import replace
from pathlib import Path

import pytest

from bolide.kernel import Check, scan, write_record
from bolide.model.message import SysFlag
from bolide.protocol.record import MAX_PROPERTIES_SIZE, RecordDraft
from bolide.protocol.record_errors import RecordTooLarge
from bolide.store import recovery
from bolide.store.appending import with_end
from bolide.store.checkpoint import CheckpointFile
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.torn_tail import find_torn
from tests.support.faults import copy_store
from tests.support.store import V6, draft, record_of, small_config

KEYS = {"KEYS": "k"}
BEFORE = draft(body=b"before")
PLAIN = draft(properties=KEYS)
UNENDED = PLAIN._replace(properties=b"KEYS\x01k\x02TAGS\x01TagA")
NUL_AT_END = PLAIN._replace(properties=b"KEYS\x01k\x02note\x01x\0")

DRAFTS = {
    "plain": PLAIN,
    "the last pair without its end": UNENDED,
    "zeros at its end": NUL_AT_END,
    "no properties": draft(),
    "no body": draft(body=b"", properties=KEYS),
    "a body of zeros": draft(body=bytes(9), properties=KEYS),
    "a low byte of zero in a length": draft(body=b"", properties={"KEYS": "k" * 250}),
    "a long topic": draft("t" * 0x80),
    "hosts of IPv6": draft(properties=KEYS, born_host=V6, store_host=V6),
    "not queued": draft(properties=KEYS, sys_flag=int(SysFlag.PREPARED)),
}


class NoWaiting(Disk):
    """Hundreds of stores are opened here, and none of them loses power."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


def store_of(root: Path, log_size: int = 4096) -> MessageStore:
    config = small_config(root, log_size=log_size)
    return MessageStore(config, background=False, disk=NoWaiting())


class Crashed:
    """The files of a store that was not closed; its last record can be torn."""

    def __init__(self, directory: Path, *drafts: RecordDraft, marked: int = 0) -> None:
        """`marked`: number of drafts after which a checkpoint is written."""
        self.root = directory / "crashed"
        self._scratch = directory / "copy"
        with store_of(directory / "living") as store:
            for number, each in enumerate(drafts, 1):
                self.last = store.append(each)
                if number == marked:
                    assert store.maintenance.checkpoint()
            store.maintenance.run()  # the queues' units are in their files
            copy_store(store.config.value.root, self.root)
        self._log = self.root / "commitlog" / f"{0:020d}"
        self._whole = self._log.read_bytes()

    def tear(self, size: int = -1) -> bool:
        """Leave so many bytes of the last record; says whether any but zeros are missing."""
        kept = self._whole[: self.last.physical_offset + size % self.last.size]
        self._log.write_bytes(kept.ljust(len(self._whole), b"\0"))
        return self._log.read_bytes() != self._whole

    def open(self) -> MessageStore:
        return store_of(copy_store(self.root, self._scratch))

    def end(self) -> int:
        """Where the log ends for who opens it."""
        with self.open() as store:
            return store.log.end


@pytest.mark.parametrize("check", [Check.NONE, Check.BODY])
@pytest.mark.parametrize("kind", DRAFTS)
def test_wherever_it_is_torn_the_last_record_is_whole_or_gone(kind: str, check: Check) -> None:
    whole = bytearray(2048)
    first = write_record(whole, 0, BEFORE, 0, 0, 1)
    end = first + write_record(whole, first, with_end(DRAFTS[kind]), 0, first, 1)
    for size in range(end - first):
        torn = memoryview(whole[: first + size].ljust(len(whole), b"\0"))
        found = scan(torn, 0, len(torn), 0, check=check)
        place = find_torn(torn, 0, found)
        assert (found.end if place is None else place) == (end if torn == whole else first), size


@pytest.mark.parametrize("marked", [0, 1])
def test_a_store_ends_before_a_torn_record(tmp_path: Path, marked: int) -> None:
    crashed = Crashed(tmp_path, BEFORE, PLAIN, marked=marked)
    for size in range(crashed.last.size):
        assert crashed.tear(size)
        assert crashed.end() == crashed.last.physical_offset, size


@pytest.mark.parametrize("drafts", [(PLAIN,), (PLAIN, PLAIN)])
@pytest.mark.parametrize("stride", [1, 1 << 24])
def test_nothing_is_left_of_a_torn_record(
    tmp_path: Path, drafts: tuple[RecordDraft, ...], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "_STRIDE", stride)
    crashed = Crashed(tmp_path, *drafts)
    crashed.tear()
    with crashed.open() as store:
        left = len(drafts) - 1
        assert "torn" in store.recovery.cut
        assert (store.recovery.records, store.recovery.kept_records) == (left, 0)
        assert store.max_offset("T", 0) == store.units == len(store.find("T", "k")) == left
        # What comes next takes its place.
        appended = store.append(PLAIN)
        assert appended[:3] == crashed.last[:3]
        assert len(store.find("T", "k")) == left + 1


def test_what_was_acknowledged_stays_even_if_it_ends_in_zeros(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, NUL_AT_END)
    with crashed.open() as store:
        found = record_of(bytes(store.record_at(0) or b""))
        assert found.decode_properties() == {"KEYS": "k", "note": "x\0"}


def test_properties_without_room_for_their_end_are_refused(tmp_path: Path) -> None:
    full = PLAIN._replace(properties=b"KEYS\x01".ljust(MAX_PROPERTIES_SIZE, b"\0"))
    with store_of(tmp_path, 1 << 16) as store, pytest.raises(RecordTooLarge, match="properties"):
        store.append(full)


# ---- what may not be cut, though it looks like it


def test_below_the_checkpoint_nothing_is_torn(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, BEFORE, PLAIN, marked=2)
    crashed.tear()
    assert crashed.end() == crashed.last.end


def test_after_a_clean_stop_nothing_is_torn(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, BEFORE, PLAIN)
    crashed.tear()
    (crashed.root / "abort").unlink()
    assert crashed.end() == crashed.last.end


def test_a_record_that_rocketmq_wrote_may_end_in_zeros(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, BEFORE, PLAIN, marked=1)
    crashed.tear()
    file = CheckpointFile(crashed.root / "checkpoint", Disk())
    file.save(replace(file.load(), recovery_point=None))
    assert crashed.end() == crashed.last.end


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_rocketmq_has_in_part_has_no_unit(tmp_path: Path, *, is_clean: bool) -> None:
    crashed = Crashed(tmp_path, BEFORE, PLAIN, marked=1)
    crashed.tear()
    file = CheckpointFile(crashed.root / "checkpoint", Disk())
    file.save(replace(file.load(), recovery_point=None))
    queue = crashed.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    units = queue.read_bytes()
    queue.write_bytes(units[:20].ljust(len(units), b"\0"))
    if is_clean:
        (crashed.root / "abort").unlink()
    assert crashed.end() == crashed.last.physical_offset


def test_what_others_follow_was_whole(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, BEFORE, PLAIN)
    crashed.tear()
    log = crashed.root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[crashed.last.end + 7] = 1  # the first sign of something
    log.write_bytes(data)
    assert crashed.end() == crashed.last.end
