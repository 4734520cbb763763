"""Every damage to a store is found and told with its place, and repair mends what is derived."""

import errno
import os
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bolide.kernel import put_keys
from bolide.kernel.index_entries import HEADER_SIZE, SLOT_SIZE
from bolide.kernel.units import UNIT, UNIT_SIZE
from bolide.protocol.record import Blank, read_record
from bolide.protocol.tags import index_hash
from bolide.store.checkpoint import Checkpoint
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.errors import StoreInUse
from bolide.store.index_file import index_file_size
from bolide.store.key_index import KeyIndex
from bolide.store.layout import Layout
from bolide.store.message_store import MessageStore
from bolide.store.verify import Finding, Part, Report, verify
from tests.support.filled_store import SETTINGS, draft, filled, flip, log_file, queue_file

SEALED = replace(SETTINGS, append_record_crc=True, verify_record_crc=True)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "store"
    filled(root)
    return root


@pytest.fixture
def config(pristine: Path, tmp_path: Path) -> StoreConfig:
    """Settings of a store of 300 messages that the test may damage."""
    shutil.copytree(pristine, tmp_path / "store")
    return replace(SETTINGS, root=tmp_path / "store")


def look(config: StoreConfig, *, repair: bool = False) -> Report:
    return verify(Layout.of(config), repair=repair)


def records(path: Path) -> Iterator[tuple[int, int]]:
    """Positions and sizes of the records in a log file."""
    data, at = path.read_bytes(), 0
    while data[at : at + 4] != bytes(4):
        record = read_record(data, at)
        if isinstance(record, Blank):
            return
        yield at, record.size
        at += record.size


def only(report: Report, part: Part) -> Finding:
    """The one finding there is; it is of this part."""
    assert report.damages == {part: 1}, report.findings
    return report.findings[0]


def marked_end(config: StoreConfig) -> int:
    point = Checkpoint.decode((config.root / "checkpoint").read_bytes()).recovery_point
    assert point
    return point.position


# A sound store


def test_a_store_that_was_closed_is_sound(config: StoreConfig) -> None:
    report = look(config)

    assert report.sound and not report.notes, report
    assert (report.records, report.units, report.queues) == (300, 300, 4)
    assert report.index_entries == 4 * 300  # unique id, two keys and tags each
    assert report.log_end == marked_end(config)


def test_sizes_are_read_off_the_files_where_no_settings_are_given(config: StoreConfig) -> None:
    layout = Layout.read_off(config.root)

    assert layout.log_file_size == config.commit_log_file_size
    assert layout.queue_file_size == config.consume_queue_file_size
    assert layout.index == (config.max_hash_slots, config.max_index_entries)
    assert verify(layout).sound


def test_a_shape_that_passes_by_chance_is_not_taken_for_that_of_the_index(tmp_path: Path) -> None:
    slots, capacity, offset = 40, 100, 4711
    with_room = index_file_size(slots, capacity)
    path = tmp_path / "index" / "20260101000000000"
    path.parent.mkdir()
    (tmp_path / "commitlog").mkdir()
    data = bytearray(with_room)
    # Entries 9 and 10 are of one message; were there 5 slots fewer, 9 would lie where 10 must.
    hashes = [*range(8), 9, 11]
    items = b"".join(
        struct.pack(">Iqq", each, offset - (n < 8), 0) for n, each in enumerate(hashes)
    )
    added, used = put_keys(memoryview(data), slots, capacity, 1, 0, items)
    struct.pack_into(">qqqqii", data, 0, 0, 0, 0, offset, used, 1 + added)
    wrong_slot = HEADER_SIZE + hashes[-2] % (slots - 5) * SLOT_SIZE
    struct.pack_into(">i", data, wrong_slot, added)
    path.write_bytes(data)

    assert Layout.read_off(tmp_path).index == (slots, capacity)


def test_a_store_in_use_is_refused(config: StoreConfig) -> None:
    with MessageStore(config, background=False), pytest.raises(StoreInUse):
        look(config)


def test_verifying_changes_nothing(config: StoreConfig) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in config.root.rglob("*") if path.is_file()}

    flip(log_file(config.root), 200)
    before = contents()
    look(config)
    assert contents() == before


def test_progress_ends_with_all_bytes_of_the_log(config: StoreConfig) -> None:
    told: list[tuple[int, int]] = []
    verify(Layout.of(config), progress=lambda done, total: told.append((done, total)))

    total = sum(path.stat().st_size for path in (config.root / "commitlog").iterdir())
    assert told[-1] == (total, total)
    assert told == sorted(told)


# Any bit


@pytest.mark.parametrize("seed", range(25))
def test_any_flipped_bit_of_a_sealed_log_is_found_at_its_record(tmp_path: Path, seed: int) -> None:
    config = filled(tmp_path / "store", 60, SEALED)
    chance = random.Random(seed)
    path = chance.choice(sorted((config.root / "commitlog").iterdir()))
    at, size = chance.choice(list(records(path)))
    flip(path, at + chance.randrange(size), chance.randrange(8))

    report = look(config)

    place = int(path.name) + at
    assert any(f.physical_offset == place for f in report.findings), report.findings
    assert report.records == 59


@pytest.mark.parametrize("seed", range(25))
def test_any_flipped_bit_of_a_consume_queue_is_found_at_its_unit(
    config: StoreConfig, seed: int
) -> None:
    chance = random.Random(seed)
    path = chance.choice(
        sorted(p for p in (config.root / "consumequeue").rglob("0*") if p.is_file())
    )
    position = chance.randrange(path.stat().st_size)
    flip(path, position, chance.randrange(8))

    report = look(config)

    unit = position - position % UNIT_SIZE
    assert (path, unit) in {(f.file, f.offset) for f in report.findings}, report.findings
    assert set(report.damages) == {Part.QUEUES}


@pytest.mark.parametrize("seed", range(25))
def test_any_flipped_bit_of_the_index_is_found_close_by(config: StoreConfig, seed: int) -> None:
    chance = random.Random(seed)
    path = chance.choice(sorted((config.root / "index").iterdir()))
    position = chance.randrange(path.stat().st_size)
    flip(path, position, chance.randrange(8))

    report = look(config)

    assert set(report.damages) == {Part.INDEX}
    assert any(f.file == path and abs(f.offset - position) < 40 for f in report.findings)


# The log


@pytest.mark.parametrize("field", [0, 4, 8, 28, 84, 95])  # size, magic, CRC, place, length, body
def test_a_damaged_record_does_not_hide_those_behind_it(config: StoreConfig, field: int) -> None:
    path = log_file(config.root, 1)
    places = list(records(path))
    at, _ = places[3]
    flip(path, at + field, 3)

    report = look(config)

    found = [f for f in report.findings if f.part is Part.LOG]
    assert [(f.file, f.offset, f.physical_offset) for f in found] == [
        (path, at, int(path.name) + at)
    ]
    assert report.records == 299


def test_units_and_keys_of_a_damaged_record_are_named(config: StoreConfig) -> None:
    path = log_file(config.root, 1)
    at, _ = list(records(path))[3]
    flip(path, at + 95)

    report = look(config)

    lost = [f for f in report.findings if f.part is not Part.LOG]
    assert {f.physical_offset for f in lost} == {int(path.name) + at}
    assert all("is damaged" in f.reason for f in lost)
    assert {f.part for f in lost} == {Part.QUEUES, Part.INDEX}


def test_a_hole_of_several_pages_is_one_damage(config: StoreConfig) -> None:
    path = log_file(config.root)
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(bytes(8192))

    report = look(config)

    (found,) = [f for f in report.findings if f.part is Part.LOG]
    assert found.offset <= 1000
    assert report.log_end == marked_end(config)


def test_a_damaged_last_record_is_damage_because_the_rest_knows_of_it(config: StoreConfig) -> None:
    path = log_file(config.root, -1)
    at, _ = list(records(path))[-1]
    flip(path, at + 5)

    found = [f for f in look(config).findings if f.part is Part.LOG]

    assert [f.offset for f in found] == [at]


def test_bytes_behind_the_end_that_nobody_points_to_are_only_noted(config: StoreConfig) -> None:
    path = log_file(config.root, -1)
    at, size = list(records(path))[-1]
    flip(path, at + size + 3)

    report = look(config)

    assert report.sound
    assert f"the log ends at {int(path.name) + at + size}" in report.notes[0]


def test_a_wrong_or_missing_blank_record_is_damage(config: StoreConfig) -> None:
    path = log_file(config.root)
    at, size = list(records(path))[-1]
    flip(path, at + size + 3)
    assert only(look(config), Part.LOG).offset == at + size
    with path.open("r+b") as file:
        file.seek(at + size)
        file.write(bytes(path.stat().st_size - at - size))
    found = only(look(config), Part.LOG)
    assert (found.offset, found.reason) == (at + size, "no blank record closes the file")


def test_a_missing_log_file_is_told_with_what_is_lost(config: StoreConfig) -> None:
    missing = log_file(config.root, 1)
    count = len(list(records(missing)))
    missing.unlink()

    report = look(config)

    (found,) = [f for f in report.findings if f.part is Part.LOG]
    assert found.physical_offset == int(missing.name)
    assert report.damages[Part.QUEUES] == count


def test_a_log_file_that_was_cut_is_told_and_gets_its_length_back(config: StoreConfig) -> None:
    path = log_file(config.root, -1)
    at, size = list(records(path))[-1]
    with path.open("r+b") as file:
        file.truncate(at + size + 100)
    assert (
        only(look(config), Part.LOG).reason == f"is {at + size + 100} bytes long instead of 16384"
    )

    report = look(config, repair=True)

    assert report.sound and str(path) in report.repairs[0]
    with MessageStore(config, background=False) as store:
        assert store.units == 300


def test_a_part_that_the_disk_cannot_read_is_damage(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = log_file(config.root), os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], at: int, *flags: int) -> int:
        end = at + sum(map(len, buffers))
        if os.fstat(descriptor).st_ino == path.stat().st_ino and at < 8192 and end > 4096:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, buffers, at, *flags)

    monkeypatch.setattr(os, "preadv", preadv)
    report = look(config)

    (found,) = [f for f in report.findings if f.part is Part.LOG]
    assert found.reason == "cannot be read: Input/output error"
    assert found.offset <= 4096
    assert report.records < 300


# The queues


def test_queue_files_that_were_removed_are_written_again(config: StoreConfig) -> None:
    shutil.rmtree(config.root / "consumequeue" / "Orders" / "1")
    first = look(config).findings[0]
    assert "not there, but the log has records" in first.reason
    assert first.physical_offset is not None

    report = look(config, repair=True)

    assert report.sound, report.findings
    with MessageStore(config, background=False) as store:
        assert not store.recovery.rebuilt
        assert store.max_offset("Orders", 1) == 100


def test_repair_writes_what_was_there(config: StoreConfig) -> None:
    path = queue_file(config.root)
    before = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(random.Random(1).randbytes(200))

    assert look(config, repair=True).sound
    assert path.read_bytes() == before


def test_units_of_records_that_never_were_are_taken_away(config: StoreConfig) -> None:
    path = max((config.root / "consumequeue" / "Bills" / "0").iterdir())
    end = len(path.read_bytes().rstrip(b"\0"))
    end += -end % UNIT_SIZE
    with path.open("r+b") as file:
        file.seek(end)
        file.write(UNIT.pack(10**9, 200, 0))
    assert "behind the end of the log" in only(look(config), Part.QUEUES).reason

    assert look(config, repair=True).sound
    with MessageStore(config, background=False) as store:
        assert store.max_offset("Bills", 0) == 50


def test_a_record_whose_queue_offset_is_damaged_fills_no_disk(config: StoreConfig) -> None:
    path = log_file(config.root)
    at, _ = list(records(path))[5]
    flip(path, at + 20, 6)  # the highest byte of the queue offset

    report = look(config, repair=True)

    assert int(path.name) + at in {f.physical_offset for f in report.findings}
    sizes = [file.stat().st_size for file in (config.root / "consumequeue").rglob("0*")]
    assert sum(sizes) < 10**6


@pytest.mark.parametrize("field", [15, 27])  # the last bytes of queue id and queue offset
def test_a_record_that_says_another_place_keeps_its_only_unit(
    config: StoreConfig, field: int
) -> None:
    path = log_file(config.root)
    at, _ = list(records(path))[4]
    flip(path, at + field, 7)
    before = [file.read_bytes() for file in sorted(config.root.glob("consumequeue/*/*/*"))]

    report = look(config, repair=True)

    assert only(report, Part.QUEUES).physical_offset == int(path.name) + at
    after = [file.read_bytes() for file in sorted(config.root.glob("consumequeue/*/*/*"))]
    assert after == before


def test_offsets_of_expired_messages_are_kept_by_a_repair(config: StoreConfig) -> None:
    log_file(config.root).unlink()
    log_file(config.root).unlink()
    assert look(config).sound
    shutil.rmtree(config.root / "consumequeue" / "Orders")

    assert look(config, repair=True).sound
    with MessageStore(config, background=False) as store:
        assert store.max_offset("Orders", 1) == 100
        assert store.min_offset("Orders", 1) > 0


def test_a_topic_that_was_removed_is_no_damage(config: StoreConfig) -> None:
    (config.root / "config").mkdir()
    (config.root / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"Bills":{"topicName":"Bills"}}}'
    )
    shutil.rmtree(config.root / "consumequeue" / "Orders")

    report = look(config)

    assert report.sound, report.findings
    assert any("of before it was removed" in note for note in report.notes)


def test_a_topic_that_was_made_again_is_no_damage(config: StoreConfig) -> None:
    with MessageStore(config, background=False) as store:
        store.remove_topic("Orders")
        for number in range(10):
            store.append(draft(1000 + number, "Orders", number % 2))

    report = look(config)

    assert report.sound, report.findings
    assert report.units == 110


def test_queues_that_lag_behind_after_a_crash_are_only_noted(
    config: StoreConfig, tmp_path: Path
) -> None:
    with MessageStore(config, background=False) as store:
        for number in range(300, 320):
            store.append(draft(number))
        shutil.copytree(config.root, tmp_path / "crashed")

    report = look(replace(config, root=tmp_path / "crashed"))

    assert report.sound, report.findings
    assert report.records == 320
    assert any("the next start writes them" in note for note in report.notes)
    assert any("not closed cleanly" in note for note in report.notes)


# The index


def test_an_index_that_was_removed_is_written_again(config: StoreConfig) -> None:
    shutil.rmtree(config.root / "index")
    assert "keys of 300 records are missing" in only(look(config), Part.INDEX).reason

    assert look(config, repair=True).sound
    with MessageStore(config, background=False) as store:
        (record,) = store.find("Orders", "k7")
        assert b"body 7 " in bytes(record)


def test_an_index_without_tags_as_rocketmq_4_9_writes_it_is_no_damage(config: StoreConfig) -> None:
    shutil.rmtree(config.root / "index")
    index = KeyIndex(
        config.root / "index",
        slots=config.max_hash_slots,
        capacity=config.max_index_entries,
        disk=Disk(),
    )
    index.load()
    found = [
        read_record(path.read_bytes(), at)
        for path in sorted((config.root / "commitlog").iterdir())
        for at, _ in records(path)
    ]
    for record in found:
        assert not isinstance(record, Blank)
        properties = record.decode_properties()
        for key in (properties["UNIQ_KEY"], *properties["KEYS"].split()):
            place = index_hash(record.topic, key), record.physical_offset, record.store_timestamp
            index.put(struct.pack(">Iqq", *place))
    assert look(config).sound
    index.put(struct.pack(">Iqq", 12345, *place[1:]))
    index.close()
    assert "has no key of this hash" in only(look(config), Part.INDEX).reason


def test_a_store_without_an_index_has_none_to_look_at(tmp_path: Path) -> None:
    config = filled(tmp_path / "store", 20, replace(SETTINGS, index_enabled=False))

    assert look(config).sound
    assert verify(Layout.read_off(config.root)).sound


# The rest


def test_a_checkpoint_that_the_log_does_not_reach_is_damage(config: StoreConfig) -> None:
    path = log_file(config.root, -1)
    at, size = list(records(path))[-1]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))

    assert Part.CHECKPOINT in look(config).damages
    (config.root / "checkpoint").write_bytes(b"short")
    assert Part.CHECKPOINT in look(config).damages


def test_a_table_that_cannot_be_read_is_damage(config: StoreConfig) -> None:
    (config.root / "config").mkdir()
    path = config.root / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"Orders@group":{0:5,1:7}}}')
    assert look(config).sound and look(config).tables == 1
    path.write_text('{"offsetTable":{"Orders@group"')

    assert only(look(config), Part.TABLES).file == path


def test_leftovers_are_noted(config: StoreConfig) -> None:
    (config.root / ".commitlog-00000000000000081920").write_bytes(b"")
    (config.root / "commitlog" / "notes.txt").write_text("x")
    last = log_file(config.root, -2)
    ahead = last.with_name(f"{int(last.name) + 16384:020d}")
    ahead.write_bytes(bytes(16384))

    report = look(config)

    assert report.sound, report.findings
    assert {note.split(":")[0].rsplit("/", 1)[-1] for note in report.notes} >= {
        ".commitlog-00000000000000081920", "notes.txt", ahead.name,
    }  # fmt: skip


def test_a_repaired_store_with_a_damaged_record_opens_with_all_others(config: StoreConfig) -> None:
    path = log_file(config.root, 1)
    at, _ = list(records(path))[3]
    flip(path, at + 95)
    shutil.rmtree(config.root / "consumequeue")

    report = look(config, repair=True)

    assert Part.LOG in report.damages
    with MessageStore(config, background=False) as store:
        assert store.log.end == report.log_end
        found = store.find("Orders", "all", limit=300)
        assert len(found) == 64
    assert look(config).damages == report.damages
