"""Commit log files as tables."""

import logging
import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bolide.arrow.commit_log import LogOptions, LogReader, plan_splits, read_commit_log
from bolide.arrow.errors import BadPosition, LogDamaged, LogFileGone, NoCommitLog
from bolide.arrow.log_files import OpenLog
from bolide.arrow.log_splits import Split
from bolide.arrow.schema import message_schema
from bolide.client.consumer.received import read_stored
from bolide.model.message import StoredMessage
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits
from tests.golden.test_record_golden import Case, cases
from tests.support.clock import FakeClock
from tests.support.filled_store import SETTINGS, draft, filled, flip, log_file
from tests.support.store import V6
from tests.unit.kernel.drafts import DRAFT, record

FILE_SIZE = SETTINGS.commit_log_file_size
QUEUES = [(topic, queue) for topic in ("Bills", "Orders") for queue in (0, 1)]


def consumed(config: StoreConfig, queues: list[tuple[str, int]] = QUEUES) -> list[StoredMessage]:
    """The messages that a consumer of these queues receives, in log order."""
    found = []
    with MessageStore(config, background=False) as store:
        for topic, queue_id in queues:
            offset = 0
            while records := (
                reply := store.read(topic, queue_id, offset, ReadLimits(max_count=1000))
            ).records:
                found += read_stored(b"".join(records))
                offset = reply.next_offset
    return sorted(found, key=lambda message: message.physical_offset)


def as_row(message: StoredMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "broker": None,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "keys": " ".join(message.keys) or None,
        "tags": message.tags,
        "body": message.body,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "properties": [*message.properties.items()],
    }


def rows(reader: LogReader) -> list[dict[str, Any]]:
    table = reader.to_table()
    for name in ("born_timestamp", "store_timestamp"):
        ms = table[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, ms)
    return table.to_pylist()  # type: ignore[no-any-return]


def places(reader: LogReader) -> list[int]:
    return reader.to_table()["physical_offset"].to_pylist()  # type: ignore[no-any-return]


def in_splits(path: Path, split_size: int, **changes: Any) -> tuple[list[Split], list[int]]:
    options = LogOptions(split_size=split_size, **changes)
    splits = plan_splits(str(path), options)
    return splits, places(LogReader(splits, options))


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> StoreConfig:
    return filled(tmp_path_factory.mktemp("untouched"))


@pytest.fixture
def config(untouched: StoreConfig, tmp_path: Path) -> StoreConfig:
    """A store with 300 messages in several files, not shared between tests."""
    shutil.copytree(untouched.root, tmp_path / "store")
    return replace(untouched, root=tmp_path / "store")


# What is read


def test_rows_are_what_a_consumer_gets(config: StoreConfig) -> None:
    reader = read_commit_log(config.root)
    assert reader.schema.equals(message_schema())
    assert len(list((config.root / "commitlog").iterdir())) > 3
    assert rows(reader) == [as_row(message) for message in consumed(config)]


def test_records_of_every_kind_are_read(tmp_path: Path) -> None:
    config = replace(SETTINGS, root=tmp_path)
    long = "t" * 200
    with MessageStore(config, background=False) as store:
        store.append(draft(0, long))
        store.append(draft(1)._replace(born_host=V6, store_host=V6))
        store.append(draft(2, body=b"\xff\x00"))
        store.append(draft(3)._replace(properties=b""))
    found = rows(read_commit_log(tmp_path))
    assert found == [as_row(message) for message in consumed(config, [(long, 0), ("Orders", 0)])]
    assert [row["topic"] for row in found] == [long, *["Orders"] * 3]
    assert found[1]["born_host"] == "[2001:db8::1]:10911"
    assert found[3]["keys"] is None


@pytest.mark.parametrize("case", cases("record"))
def test_log_files_of_java_are_read(tmp_path: Path, case: Case) -> None:
    path = tmp_path / f"{case['physical_offset']:020d}"
    path.write_bytes(bytes.fromhex(case["hex"]) + bytes(1000))
    (row,) = rows(read_commit_log(path))
    assert (row["topic"], dict(row["properties"])) == (case["topic"], case["properties"])
    assert row["body"] == bytes.fromhex(str(case.get("plain", case["body"])))


@pytest.mark.parametrize("shape", ["store", "commitlog", "uri", "copies"])
def test_a_log_is_found_in_whatever_is_named(
    config: StoreConfig, tmp_path: Path, shape: str
) -> None:
    shutil.copytree(config.root / "commitlog", tmp_path / "a copy")
    path = {
        "store": str(config.root),
        "commitlog": str(config.root / "commitlog"),
        "uri": (tmp_path / "a copy").as_uri(),
        "copies": str(tmp_path / "a copy"),
    }[shape]
    assert len(places(read_commit_log(path))) == 300


@pytest.mark.parametrize("name", ["00000000000000016384", "saved.log", "7"])
def test_one_file_is_read_whatever_its_name(config: StoreConfig, tmp_path: Path, name: str) -> None:
    shutil.copy(log_file(config.root, 1), tmp_path / name)
    expected = [
        at for at in places(read_commit_log(config.root)) if FILE_SIZE <= at < 2 * FILE_SIZE
    ]
    assert places(read_commit_log(tmp_path / name)) == expected


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere", "no such file or directory"),
        (".", "has the name of a log file"),
        ("text", "does not begin with a record"),
        ("s3://bucket/store", "only files that the system itself can open"),
    ],
)
def test_what_is_no_log_is_named(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "text").write_text("hello" * 100)
    with pytest.raises(NoCommitLog, match=reason):
        read_commit_log(path if ":" in path else tmp_path / path)


def test_topics_are_chosen_by_name(config: StoreConfig) -> None:
    found = read_commit_log(config.root, topics="Bills").to_table()
    assert set(found["topic"].to_pylist()) == {"Bills"}
    assert found.num_rows == 100
    assert read_commit_log(config.root, topics=["Bills", "Orders"]).to_table().num_rows == 300


def test_times_are_chosen_to_the_millisecond_and_files_by_their_first(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    config = replace(SETTINGS, root=tmp_path)
    with MessageStore(config, background=False, clock=clock) as store:
        for number in range(300):
            store.append(draft(number))
            clock.advance(60.0)
    start, end = 1_700_000_000_000 + 150 * 60_000, 1_700_000_000_000 + 180 * 60_000
    reader = read_commit_log(tmp_path, start=start, end="2023-11-15T01:13:20Z")
    table = reader.to_table()
    assert table["queue_offset"].to_pylist() == [*range(150, 180)]
    assert 0 < sum(split.end - split.start for split in reader.splits) <= 2 * FILE_SIZE
    assert places(read_commit_log(tmp_path, start=end + 120 * 60_000)) == []


def test_a_time_that_is_none_is_named(config: StoreConfig) -> None:
    with pytest.raises(BadPosition, match="start='latest': must be a time"):
        read_commit_log(config.root, start="latest")


def test_what_no_consumer_gets_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    config = replace(SETTINGS, root=tmp_path)
    with MessageStore(config, background=False) as store:
        for topic in ("Orders", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%DLQ%group"):
            store.append(draft(0, topic))
        for kind in (4, 8, 12):
            store.append(draft(1)._replace(sys_flag=kind))

    def found(**how: Any) -> list[tuple[str, int]]:
        table = read_commit_log(tmp_path, **how).to_table()
        return [*zip(*(table[name].to_pylist() for name in ("topic", "sys_flag")), strict=True)]

    assert found() == [("Orders", 0), ("%DLQ%group", 0), ("Orders", 8)]
    assert found(topics="SCHEDULE_TOPIC_XXXX") == [("SCHEDULE_TOPIC_XXXX", 0)]
    assert len(found(include_internal=True)) == 7


def test_columns_can_be_chosen(config: StoreConfig) -> None:
    reader = read_commit_log(
        config.root, broker="broker-a", include_properties=False, value_schema="id bigint"
    )
    table = reader.to_table()
    assert reader.schema.equals(
        message_schema(include_properties=False, value=pa.struct([("id", pa.int64())]))
    )
    assert set(table["broker"].to_pylist()) == {"broker-a"}
    assert table["value"].null_count == 300


# Splits


@pytest.mark.parametrize("split_size", [0, 700, 1024, 4096, FILE_SIZE // 7, FILE_SIZE, 1 << 27])
@pytest.mark.parametrize("with_queues", [True, False])
def test_every_row_is_in_one_split(config: StoreConfig, split_size: int, with_queues: bool) -> None:
    expected = places(read_commit_log(config.root))
    if not with_queues:
        shutil.rmtree(config.root / "consumequeue")
    splits, found = in_splits(config.root, split_size)
    assert found == expected
    files = len(list((config.root / "commitlog").iterdir()))
    if split_size in {0, FILE_SIZE, 1 << 27}:
        assert len(splits) == files
    else:
        assert len(splits) > files
    assert all(before.end <= after.start for before, after in pairwise(splits))
    assert all(split.start in expected for split in splits)


def test_splits_are_about_as_large_as_asked_for(config: StoreConfig) -> None:
    splits, _ = in_splits(config.root, 2048)
    assert max(split.end - split.start for split in splits) < 3 * 2048


@pytest.mark.parametrize("with_queues", [True, False])
def test_a_copied_record_inside_of_a_body_fools_nobody(tmp_path: Path, with_queues: bool) -> None:
    config = replace(SETTINGS, root=tmp_path, commit_log_file_size=64 * 1024)
    with MessageStore(config, background=False) as store:
        store.append(draft(0))
        (copied,) = map(bytes, store.read("Orders", 0, 0).records)
        for number in range(1, 20):
            store.append(draft(number, body=5 * copied))
    if not with_queues:
        shutil.rmtree(tmp_path / "consumequeue")
    expected = places(read_commit_log(tmp_path))
    assert len(expected) == 20
    for split_size in (97, 500, 2000):
        assert in_splits(tmp_path, split_size)[1] == expected


def test_a_record_larger_than_a_split_and_a_chunk(tmp_path: Path) -> None:
    config = replace(SETTINGS, root=tmp_path, commit_log_file_size=16 * 1024 * 1024)
    with MessageStore(config, background=False) as store:
        store.append(draft(0))
        store.append(draft(1, body=os.urandom(4 * 1024 * 1024)))
        store.append(draft(2))
    splits, found = in_splits(tmp_path, 64 * 1024)
    assert len(found) == 3
    assert len(splits) == 2


def test_batches_hold_ten_thousand_rows_at_most(tmp_path: Path) -> None:
    size = len(record(DRAFT, 0, 0))
    log = b"".join(record(DRAFT, number, number * size) for number in range(10_001))
    (tmp_path / "log").write_bytes(log)
    assert [batch.num_rows for batch in read_commit_log(tmp_path / "log")] == [10_000, 1]


# A log that is written to, damaged or deleted


def test_what_is_appended_after_the_plan_is_not_read(tmp_path: Path) -> None:
    config = replace(SETTINGS, root=tmp_path)
    with MessageStore(config, background=False) as store:
        for number in range(30):
            store.append(draft(number))
        reader = read_commit_log(tmp_path)
        batches = iter(reader)
        for number in range(30, 100):
            store.append(draft(number))
        assert [batch.num_rows for batch in batches] == [30]
        assert len(places(reader)) == 30
        assert len(places(read_commit_log(tmp_path))) == 100


def test_a_record_that_is_just_being_written_is_not_there_yet(config: StoreConfig) -> None:
    last = log_file(config.root, -1)
    expected = places(read_commit_log(config.root))
    with last.open("r+b") as file:
        file.seek(expected[-1] - int(last.name) + 4)
        file.write(bytes(200))
    assert places(read_commit_log(config.root)) == expected[:-1]


def test_a_store_without_a_message_has_no_rows(tmp_path: Path) -> None:
    with MessageStore(replace(SETTINGS, root=tmp_path), background=False):
        pass
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(FILE_SIZE))
    assert places(read_commit_log(tmp_path)) == []


@pytest.mark.parametrize("split_size", [0, 2048])
def test_a_damaged_record_is_named_or_passed_over(
    config: StoreConfig, caplog: pytest.LogCaptureFixture, split_size: int
) -> None:
    expected = places(read_commit_log(config.root))
    path, broken = log_file(config.root), expected[10]
    flip(path, broken + 90)
    with pytest.raises(LogDamaged, match=f"offset {broken}: the body's CRC") as caught:
        in_splits(config.root, split_size)
    assert caught.value.path == str(path)
    with caplog.at_level(logging.WARNING):
        _, found = in_splits(config.root, split_size, fail_on_data_loss=False)
    assert found == [place for place in expected if place != broken]
    assert [line.getMessage().split(":")[0] for line in caplog.records] == [
        f"{path}, physical offset {broken}"
    ]
    assert in_splits(config.root, split_size, verify_crc=False)[1] == expected


@pytest.mark.parametrize("field", [0, 3, 4, 20, 30, 39, 84, 91])
def test_any_damage_ends_at_the_next_sound_record(config: StoreConfig, field: int) -> None:
    expected = places(read_commit_log(config.root))
    flip(log_file(config.root, 1), expected[expected.index(FILE_SIZE) + 5] - FILE_SIZE + field, 2)
    found = places(read_commit_log(config.root, fail_on_data_loss=False))
    assert set(found) <= set(expected)
    assert len(expected) - len(found) <= 1


def test_two_damaged_records_with_a_sound_one_between(config: StoreConfig) -> None:
    expected = places(read_commit_log(config.root))
    for number in (4, 6):
        flip(log_file(config.root), expected[number] + 90)
    found = places(read_commit_log(config.root, fail_on_data_loss=False))
    assert found == [place for n, place in enumerate(expected) if n not in {4, 6}]


def test_a_file_deleted_after_the_plan_is_named_or_passed_over(config: StoreConfig) -> None:
    strict = read_commit_log(config.root)
    lenient = read_commit_log(config.root, fail_on_data_loss=False)
    expected = [place for place in places(strict) if place >= FILE_SIZE]
    log_file(config.root).unlink()
    with pytest.raises(LogFileGone, match="was deleted before it was read"):
        places(strict)
    assert places(lenient) == expected
    assert places(read_commit_log(config.root)) == expected


def test_a_file_missing_between_others_is_named_or_passed_over(config: StoreConfig) -> None:
    expected = places(read_commit_log(config.root))
    log_file(config.root, 1).unlink()
    with pytest.raises(LogFileGone, match=f"physical offset {FILE_SIZE}: the next file is missing"):
        read_commit_log(config.root)
    found = places(read_commit_log(config.root, fail_on_data_loss=False))
    assert found == [place for place in expected if not FILE_SIZE <= place < 2 * FILE_SIZE]


def test_a_file_missing_between_the_only_two_is_named_or_passed_over(config: StoreConfig) -> None:
    expected = places(read_commit_log(config.root))
    _, *others = sorted((config.root / "commitlog").iterdir())
    for path in others:
        if int(path.name) != 2 * FILE_SIZE:
            path.unlink()
    with pytest.raises(LogFileGone, match=f"physical offset {FILE_SIZE}: the next file is missing"):
        places(read_commit_log(config.root))
    found = places(read_commit_log(config.root, fail_on_data_loss=False))
    assert found == [place for place in expected if place // FILE_SIZE in {0, 2}]


def test_nothing_is_searched_for_behind_the_end_of_a_file(config: StoreConfig) -> None:
    path = log_file(config.root)
    os.truncate(path, FILE_SIZE // 2)
    with OpenLog(path, 0) as opened:
        assert opened.search(FILE_SIZE // 2, 1 << 50) is None


def test_a_copy_that_was_cut_off_is_named(config: StoreConfig) -> None:
    os.truncate(log_file(config.root), FILE_SIZE // 2)
    with pytest.raises(LogDamaged):
        places(read_commit_log(config.root))
