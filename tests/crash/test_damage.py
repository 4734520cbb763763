"""Damaged files: the store opens and gives what is sound, or refuses and names the file.

What RocketMQ's format cannot tell, and so neither can a start of the store:

- A record has a checksum of its body only, and only the part of the log behind the last checkpoint
  is walked at a start. Damage before it is found when the record is read: what is no record any
  more is passed over, a damaged body or property is the consumer's to notice, by the checksum.
- A queue unit and an index entry have none. A start counts the units of all queues; a unit that
  points to the wrong place is passed over when it is read, and only `bolide store verify` finds it,
  as it finds that the first file of a queue is missing.
- A file of a table that is still JSON is taken as it is.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bolide.kernel import scan
from bolide.protocol.record import Record, read_record
from bolide.protocol.record_errors import BadRecord
from bolide.store import checkpoint
from bolide.store.config import StoreConfig
from bolide.store.errors import DamagedFile
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits
from bolide.store.tables import CONSUMER_OFFSETS, Table
from tests.crash.ledger import Entry, Ledger, check_keys, read_all, small_config
from tests.crash.letters import Name, batch, is_queued, name_of, was_sent
from tests.support.faults import PowerCutDisk, copy_store

APPENDS = 200
QUEUE_UNITS = 20
QUEUE_OFFSET_AT = 20
MAGIC = b"\xda\xa3\x20\xa7"
LIFE = 1


@dataclass(frozen=True)
class Sample:
    """A directory to copy and damage, and what is in it."""

    root: Path
    ledger: Ledger
    mark: int
    """Position of the last checkpoint."""
    clean: bool

    def copy(self, target: Path) -> Path:
        return copy_store(self.root, target)


def build(root: Path, *, clean: bool) -> Sample:
    ledger = Ledger()
    store = opened(root).__enter__()
    for number in range(APPENDS):
        drafts = batch(LIFE, number)
        for at, (draft, place) in enumerate(zip(drafts, store.append_batch(drafts), strict=True)):
            ledger.add(
                Entry(
                    Name(LIFE, number, at), str(draft.topic, "utf-8"), draft.queue_id,
                    is_queued(draft), place,
                )
            )  # fmt: skip
        if number % 30 == 20:
            assert store.maintenance.checkpoint()
            mark = store.log.end
        elif number % 5 == 0:
            store.maintenance.run()
    table = Table(root / "config", CONSUMER_OFFSETS)
    for value in (1, 2):
        table.value.offset_table["Orders@readers"] = {0: value}
        table.changed()
        table.save()
    if clean:
        store.close()
        return Sample(root, ledger, store.log.end, clean=True)
    crashed = copy_store(root, root.with_name("crashed"))
    store.close()
    return Sample(crashed, ledger, mark, clean=False)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return build(tmp_path_factory.mktemp("clean") / "store", clean=True)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return build(tmp_path_factory.mktemp("crashed") / "store", clean=False)


@pytest.fixture(params=["clean", "crashed"])
def sample(request: pytest.FixtureRequest) -> Sample:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Sample)
    return found


def opened(root: Path) -> MessageStore:
    return MessageStore(config_of(root), background=False)


def config_of(root: Path) -> StoreConfig:
    return small_config(root, consume_queue_file_size=QUEUE_UNITS * 20)


# ---- anywhere

Damage = Callable[[Path, random.Random], range]
"""Damages a file; returns the positions that are not what they were."""


def flip(path: Path, chance: random.Random) -> range:
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data.rstrip(b"\0")) + 1) % len(data)
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return range(at, at + 1)


def blot(path: Path, chance: random.Random) -> range:
    data = bytearray(path.read_bytes())
    size = min(chance.choice((20, 512)), len(data))
    at = chance.randrange(len(data) - size + 1)
    data[at : at + size] = chance.choice((bytes(size), chance.randbytes(size)))
    path.write_bytes(data)
    return range(at, at + size)


def truncate(path: Path, chance: random.Random) -> range:
    data = path.read_bytes()
    at = chance.choice((1, chance.randrange(1, len(data))))
    path.write_bytes(data[:at])
    return range(at, len(data))


KINDS = ["commitlog", "consumequeue", "index", "checkpoint", "config"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_damage_anywhere_hides_no_more_than_what_it_hit(
    sample: Sample, tmp_path: Path, kind: str, seed: int
) -> None:
    damage_somewhere(sample, tmp_path, kind, seed)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_much_damage_hides_no_more_than_what_it_hit(
    sample: Sample, tmp_path: Path, kind: str
) -> None:
    for seed in range(1000, 1300):
        damage_somewhere(sample, tmp_path, kind, seed)


def damage_somewhere(sample: Sample, tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(f"{kind} {seed}")
    root = sample.copy(tmp_path / "store")
    shutil.rmtree(tmp_path / "again", ignore_errors=True)
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    path = chance.choice([path for path in paths if path.relative_to(root).parts[0] == kind])
    hit = chance.choice((flip, blot, truncate))(path, chance)
    try:
        with opened(root) as store:
            look(sample, store, path, hit)
            store.append_batch(batch(LIFE + 1, 0))
            Table(root / "config", CONSUMER_OFFSETS).load()
    except DamagedFile as exc:
        assert exc.path == path
        return
    with opened(root) as store:
        assert store.recovery.clean
        look(sample, store, path, hit)


def look(sample: Sample, store: MessageStore, path: Path, hit: range) -> None:
    """Assert that what is not readable was hit, or is kept aside."""
    seen = {}
    for topic, queue_id in store.queues.keys:
        for record in consume(store, topic.decode(), queue_id):
            seen[name_of(record)] = record
    kept = kept_aside(store.config.value.root)
    start = int(path.name) if path.parent.name == "commitlog" else None
    units = len(hit) // 20 + 2 if path.parent.parent.parent.name == "consumequeue" else 0
    for entry in sample.ledger.entries.values():
        if not entry.queued or entry.name in seen or entry.name in kept:
            continue
        if start is not None:
            place = range(entry.place.physical_offset - start, entry.place.end - start)
            assert place.start < hit.stop and hit.start < place.stop, f"{entry} is gone"
        else:
            units -= 1
            assert units >= 0, f"{entry} is gone"
    for name, record in seen.items():
        assert name.life > LIFE or was_sent(record) or start is not None


def consume(store: MessageStore, topic: str, queue_id: int) -> list[Record]:
    """Read as a consumer does: on from where the answer says. It never stands still."""
    records = []
    offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while offset < end:
        found = store.read(topic, queue_id, offset, ReadLimits(max_count=100))
        assert found.next_offset > offset
        offset = found.next_offset
        for data in found.records:
            try:
                record = read_record(bytes(data), check_crc=True)
            except BadRecord:
                continue  # the consumer sees that it is damaged
            if isinstance(record, Record) and (record.topic, record.queue_id) == (topic, queue_id):
                records.append(record)
    return records


def kept_aside(root: Path) -> set[Name]:
    """Messages in the files below `cut`, which are named by their first byte's place."""
    names = set()
    for path in (root / "cut").rglob("0*"):
        data = path.read_bytes()
        magic = data.find(MAGIC)
        while magic >= 4:
            start = at = magic - 4
            end = scan(data, start, len(data), int(path.name)).end
            while at < end:
                record = read_record(data, at)
                assert isinstance(record, Record)
                names.add(name_of(record))
                at += record.size
            magic = data.find(MAGIC, max(end, start + 5))
    return names


# ---- where it matters


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def spoil(root: Path, sample: Sample, name: Name) -> Entry:
    """Flip a bit in the body of a message."""
    entry = sample.ledger.entries[name]
    at = entry.place.physical_offset
    path = max(path for path in log_files(root) if int(path.name) <= at)
    data = bytearray(path.read_bytes())
    data[data.index(b"%d/%d/%d|" % name, at - int(path.name))] ^= 1
    path.write_bytes(data)
    return entry


def first_queued(sample: Sample, low: int, high: int) -> Name:
    return next(
        name
        for name, entry in sample.ledger.entries.items()
        if entry.queued and low <= entry.place.physical_offset < high
    )


def queue_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())


def test_a_log_file_that_was_cut_is_named(sample: Sample, tmp_path: Path) -> None:
    root = sample.copy(tmp_path / "store")
    path = log_files(root)[1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match="bytes long") as caught, opened(root):
        pass
    assert caught.value.path == path


def test_a_log_file_that_is_missing_is_noticed(sample: Sample, tmp_path: Path) -> None:
    root = sample.copy(tmp_path / "store")
    first, missing, behind = log_files(root)[:3]
    missing.unlink()
    with pytest.raises(DamagedFile, match="one is missing") as caught, opened(root):
        pass
    assert caught.value.path == behind
    assert first.exists()


def test_an_empty_log_file_in_the_middle_is_named(sample: Sample, tmp_path: Path) -> None:
    root = sample.copy(tmp_path / "store")
    path = log_files(root)[1]
    path.write_bytes(b"")
    with pytest.raises(DamagedFile) as caught, opened(root):
        pass
    assert caught.value.path == path


def test_behind_the_last_checkpoint_the_log_is_cut_and_the_rest_kept_aside(
    crashed: Sample, tmp_path: Path
) -> None:
    root = crashed.copy(tmp_path / "store")
    entry = spoil(root, crashed, first_queued(crashed, crashed.mark, 2**63))
    with opened(root) as store:
        assert store.recovery.end == store.log.end == entry.place.physical_offset
        behind = [
            other for other in crashed.ledger.entries.values()
            if other.place.physical_offset > entry.place.physical_offset
        ]  # fmt: skip
        assert store.recovery.kept_records == len(behind)
        assert kept_aside(root) == {other.name for other in behind}


def test_after_a_clean_stop_what_has_to_be_cut_off_is_kept_aside_too(
    clean: Sample, tmp_path: Path
) -> None:
    root = clean.copy(tmp_path / "store")
    (root / "checkpoint").unlink()
    entry = spoil(root, clean, first_queued(clean, int(log_files(root)[-1].name), 2**63))
    with opened(root) as store:
        assert store.recovery.clean
        assert store.log.end == entry.place.physical_offset
        assert kept_aside(root) == {
            other.name for other in clean.ledger.entries.values()
            if other.place.physical_offset > entry.place.physical_offset
        }  # fmt: skip


def test_keys_of_what_was_cut_off_do_not_find_what_comes_in_its_place(
    crashed: Sample, tmp_path: Path
) -> None:
    root = crashed.copy(tmp_path / "store")
    entry = spoil(root, crashed, first_queued(crashed, crashed.mark, 2**63))
    with opened(root) as store:
        (appended, *_) = store.append_batch(batch(LIFE + 1, 0))
        assert appended.physical_offset == entry.place.physical_offset
        assert store.find(entry.topic, entry.name.key) == []


@pytest.mark.parametrize("bit", [*range(12), *range(12, 64, 5)])
def test_a_damaged_queue_offset_hides_one_message_only(
    crashed: Sample, tmp_path: Path, bit: int
) -> None:
    """Nothing guards it but the order of the messages around it."""
    root = crashed.copy(tmp_path / "store")
    entry = crashed.ledger.entries[first_queued(crashed, crashed.mark, 2**63)]
    path = max(path for path in log_files(root) if int(path.name) <= entry.place.physical_offset)
    data = bytearray(path.read_bytes())
    at = entry.place.physical_offset - int(path.name) + QUEUE_OFFSET_AT
    data[at + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    with opened(root) as store:
        look(crashed, store, path, range(at, at + 8))


def test_what_was_kept_aside_is_not_overwritten(crashed: Sample, tmp_path: Path) -> None:
    root = crashed.copy(tmp_path / "store")
    spoil(root, crashed, first_queued(crashed, crashed.mark, 2**63))
    with opened(root) as store:
        kept = {path: path.read_bytes() for path in store.recovery.kept_aside}
    again = crashed.copy(tmp_path / "again")
    spoil(again, crashed, first_queued(crashed, crashed.mark, 2**63))
    shutil.copytree(root / "cut", again / "cut")
    newest = log_files(again)[-1]  # other bytes at the same place
    spoil(again, crashed, first_queued(crashed, int(newest.name), 2**63))
    with opened(again):
        pass
    for path, data in kept.items():
        assert (again / "cut" / path.name).read_bytes() == data


def test_what_was_cut_off_stays_away_after_the_next_power_cut(
    crashed: Sample, tmp_path: Path
) -> None:
    root = crashed.copy(tmp_path / "store")
    spoil(root, crashed, first_queued(crashed, crashed.mark, 2**63))
    disk = PowerCutDisk(root)
    with MessageStore(config_of(root), disk=disk, background=False) as store:
        assert store.recovery.kept_records
        disk.cut(tmp_path / "left", random.Random(1), new=0.0)
        file = store.log.find_file(store.log.end)
        assert file
        left = (tmp_path / "left" / "commitlog" / file.path.name).read_bytes()
        assert not any(left[store.log.end - file.start :])


def test_a_record_that_rots_does_not_hide_what_follows(sample: Sample, tmp_path: Path) -> None:
    """Even if queues and index are written anew from a log that has the damage in it."""
    root = sample.copy(tmp_path / "store")
    name = first_queued(sample, sample.mark // 2, sample.mark)
    spoil(root, sample, name)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    with opened(root) as store:
        assert store.recovery.rebuilt
        seen = {
            name_of(record): record
            for topic, queue_id in store.queues.keys
            for record in consume(store, topic.decode(), queue_id)
        }
        queued = {name for name, entry in sample.ledger.entries.items() if entry.queued}
        assert seen.keys() == queued - {name}
        check_keys(store, seen)


def test_queues_that_are_gone_are_written_anew(sample: Sample, tmp_path: Path) -> None:
    root = sample.copy(tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    with opened(root) as store:
        sample.ledger.check(store)


@pytest.mark.parametrize("left", [0, 20, 41])
def test_a_queue_file_that_was_cut_is_written_anew(
    sample: Sample, tmp_path: Path, left: int
) -> None:
    root = sample.copy(tmp_path / "store")
    path = queue_files(root)[-1]
    path.write_bytes(path.read_bytes()[:left])
    with opened(root) as store:
        sample.ledger.check(store)


@pytest.mark.parametrize("which", [1, -1])
def test_a_queue_file_that_is_missing_is_written_anew(
    sample: Sample, tmp_path: Path, which: int
) -> None:
    root = sample.copy(tmp_path / "store")
    directory = max((root / "consumequeue").glob("*/*"), key=lambda path: len(list(path.iterdir())))
    files = sorted(directory.iterdir())
    assert len(files) > 2
    files[which].unlink()
    with opened(root) as store:
        sample.ledger.check(store)


def test_a_missing_first_queue_file_passes_for_one_that_retention_took(
    sample: Sample, tmp_path: Path
) -> None:
    root = sample.copy(tmp_path / "store")
    path = max((root / "consumequeue").glob("*/*/*"), key=lambda path: int(path.name))
    min(path.parent.iterdir()).unlink()
    with opened(root) as store:
        topic, queue_id = path.parent.parent.name, int(path.parent.name)
        assert store.min_offset(topic, queue_id) == QUEUE_UNITS
        read_all(store, topic, queue_id)


def test_after_a_power_cut_a_lost_queue_costs_no_keys(
    crashed: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = crashed.copy(tmp_path / "store")
    shutil.rmtree(next((root / "consumequeue").glob("*/*")))
    monkeypatch.setattr(checkpoint, "_BOOT_ID", tmp_path / "boot_id")
    with opened(root) as store:
        assert store.recovery.rebuilt
        crashed.ledger.check(store)


@pytest.mark.parametrize("length", [0, 1000])
def test_an_index_file_that_was_cut_is_written_anew(
    sample: Sample, tmp_path: Path, length: int
) -> None:
    root = sample.copy(tmp_path / "store")
    path = min((root / "index").iterdir())
    path.write_bytes(path.read_bytes()[:length])
    with opened(root) as store:
        sample.ledger.check(store)


@pytest.mark.parametrize("data", [b"", b"short", bytes(4096), b"\xff" * 4096])
def test_without_a_checkpoint_all_is_found_in_the_log(
    sample: Sample, tmp_path: Path, data: bytes
) -> None:
    root = sample.copy(tmp_path / "store")
    (root / "checkpoint").write_bytes(data)
    with opened(root) as store:
        sample.ledger.check(store)


def test_a_damaged_table_is_read_from_its_backup(sample: Sample, tmp_path: Path) -> None:
    root = sample.copy(tmp_path / "store")
    (root / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable":{"Orders@re')
    table = Table(root / "config", CONSUMER_OFFSETS)
    table.load()
    assert table.value.offset_table["Orders@readers"][0] == 1


def test_a_table_without_a_sound_file_is_named(sample: Sample, tmp_path: Path) -> None:
    root = sample.copy(tmp_path / "store")
    for path in (root / "config").iterdir():
        path.write_bytes(b'{"offsetTable":{"Orders@re')
    with pytest.raises(DamagedFile) as caught:
        Table(root / "config", CONSUMER_OFFSETS).load()
    assert caught.value.path == root / "config" / "consumerOffset.json"
