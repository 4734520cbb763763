"""When the power goes, what was flushed is there, and nothing else that was not sent.

The store works on a disk that knows what would be left (`PowerCutDisk`); at random moments that is
written down as a directory, which is then opened as after the next boot. Several lives follow each
other: each goes on in what the last cut left.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bolide.store import checkpoint
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.message_store import MessageStore
from tests.crash.ledger import Entry, Ledger, read_all, small_config
from tests.crash.letters import Name, batch, is_queued, was_sent
from tests.support.faults import PowerCutDisk, copy_store

LIVES = 4
APPENDS = 40
CUTS = 3
"""In each life; the next one goes on in the last of them."""


@pytest.fixture(autouse=True)
def boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_BOOT_ID", tmp_path / "boot_id")


@dataclass
class Cut:
    """What is left, and what was promised by then."""

    root: Path
    ledger: Ledger
    moment: str


@dataclass
class Life:
    """Appends and maintenance in a directory, with the power cut now and then."""

    root: Path
    mode: FlushMode
    number: int
    chance: random.Random
    seal: bool
    ledger: Ledger
    """What was promised before."""
    cuts: list[Cut] = field(default_factory=list)
    _appended: list[Entry] = field(default_factory=list)

    def lead(self) -> None:
        disk = PowerCutDisk(self.root, journal=self.chance.random() < 0.5)
        config = config_of(self.root, self.mode, seal=self.seal)
        self._store = MessageStore(config, disk=disk, background=False, clock=self._clock)
        with self._store:
            self._look()
            disk.on_moment = lambda moment: self._maybe_cut(disk, moment)
            for number in range(APPENDS):
                self._append(number)
                self._work()
            if not self.cuts:
                self._cut(disk, "the end")

    def _look(self) -> None:
        """What recovery found is promised as soon as it is flushed; the rest is gone for good."""
        seen = self.ledger.check(self._store, may_be_torn=not self.seal)
        for name, record in seen.items():
            if name not in self.ledger.entries and was_sent(record):
                place = Appended(
                    record.physical_offset, record.size, record.queue_offset,
                    record.store_timestamp, 0,
                )  # fmt: skip
                self._appended.append(Entry(name, record.topic, record.queue_id, True, place))
        queued = {
            Name(life, number, place)
            for life in range(self.number)
            for number in range(APPENDS)
            for place, draft in enumerate(batch(life, number))
            if is_queued(draft)
        }
        self.ledger.gone = queued - seen.keys()

    def _clock(self) -> float:
        return 1_700_000_000.0 + self.number * 1000

    def _append(self, number: int) -> None:
        drafts = batch(self.number, number)
        places = self._store.append_batch(drafts)
        entries = [
            Entry(
                Name(self.number, number, at), str(draft.topic, "utf-8"), draft.queue_id,
                is_queued(draft), place,
            )
            for at, (draft, place) in enumerate(zip(drafts, places, strict=True))
        ]  # fmt: skip
        self._appended += entries
        if self.mode is FlushMode.SYNC and self.chance.random() < 0.3:
            assert self._store.wait_flushed(places[-1])

    def _work(self) -> None:
        works = {
            self._store.flush: 0.2, self._store.end_burst: 0.3, self._store.maintenance.run: 0.3,
            self._store.maintenance.checkpoint: 0.08,
        }  # fmt: skip
        for work, likely in works.items():
            if self.chance.random() < likely:
                work()

    def _maybe_cut(self, disk: PowerCutDisk, moment: str) -> None:
        if len(self.cuts) < CUTS and self.chance.random() < 0.01:
            self._cut(disk, moment)

    def _cut(self, disk: PowerCutDisk, moment: str) -> None:
        root = self.root.with_name(f"cut-{self.number}-{len(self.cuts)}")
        disk.cut(root, self.chance)
        ledger = Ledger(dict(self.ledger.entries), self.ledger.gone)
        for entry in self._appended:
            if entry.place.end <= self._store.flushed:
                ledger.add(entry)
        self.cuts.append(Cut(root, ledger, moment))


def lead_lives(root: Path, mode: FlushMode, seed: int, *, seal: bool) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    root.mkdir(parents=True)
    for number in range(LIVES):
        (root.parent / "boot_id").write_text(f"boot {number}")
        life = Life(root, mode, number, chance, seal, ledger)
        life.lead()
        (root.parent / "boot_id").write_text(f"boot {number} and a half")
        for cut in life.cuts[:-1]:
            with MessageStore(config_of(cut.root, mode, seal=seal), background=False) as store:
                cut.ledger.check(store, may_be_torn=not seal)
        root, ledger = life.cuts[-1].root, life.cuts[-1].ledger


def config_of(root: Path, mode: FlushMode, *, seal: bool) -> StoreConfig:
    return small_config(root, mode, append_record_crc=seal, verify_record_crc=seal)


def test_a_removed_file_that_comes_back_is_not_the_next_one_with_its_inode(tmp_path: Path) -> None:
    root, spare = tmp_path / "root", tmp_path / "spare"
    root.mkdir()
    (root / "removed").write_bytes(b"as it was")
    disk = PowerCutDisk(root)
    spare.hardlink_to(root / "removed")  # keeps the inode, for a file of another name
    disk.remove(root / "removed")
    spare.rename(root / "next").write_bytes(b"another content")
    found = []
    for seed in range(20):
        disk.cut(tmp_path / f"cut-{seed}", random.Random(seed))
        found += [path.read_bytes() for path in (tmp_path / f"cut-{seed}").glob("removed")]
    assert set(found) == {b"as it was"}


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(10))
def test_what_was_flushed_survives_power_cuts(tmp_path: Path, mode: FlushMode, seed: int) -> None:
    lead_lives(tmp_path / "store", mode, seed, seal=False)


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(5))
def test_of_sealed_records_none_is_ever_torn(tmp_path: Path, mode: FlushMode, seed: int) -> None:
    lead_lives(tmp_path / "store", mode, seed, seal=True)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seal", [False, True])
def test_hundreds_of_power_cuts_lose_nothing(tmp_path: Path, mode: FlushMode, seal: bool) -> None:
    for seed in range(1000, 1100):
        lead_lives(tmp_path / str(seed) / "store", mode, seed, seal=seal)


def test_units_behind_a_hole_in_a_queue_are_not_trusted(tmp_path: Path) -> None:
    """Of a queue that was never synced the second sector got lost, the third did not."""
    root = tmp_path / "store"
    config = small_config(root, consume_queue_file_size=4000)
    with MessageStore(config, background=False) as store:
        for number in range(150):
            draft = batch(0, number)[0]._replace(topic=b"Orders", queue_id=0, sys_flag=0)
            store.append(draft)
        store.maintenance.run()
        copy = copy_store(root, tmp_path / "copy")
    path = copy / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[512:1024] = bytes(512)
    path.write_bytes(data)
    with MessageStore(small_config(copy, consume_queue_file_size=4000), background=False) as store:
        assert len(read_all(store, "Orders", 0)) == 150
