"""Tables on disk: loading, backups, saving when due, failures and crashes half-way."""

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from bolide.protocol import json_dialect
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.topics import TopicConfig, TopicConfigTable
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.tables import (
    CONSUMER_FILTERS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    GROUPS,
    TOPICS,
    ConsumerFilter,
    DelayOffsets,
    Table,
    TopicFilters,
)
from tests.support.struct_strategies import instances

GOOD = b'{"offsetTable":{"T@G":{0:10}}}'
OTHER = b'{"offsetTable":{"T@G":{0:5}}}'


class Crash(BaseException):
    pass


class CrashingDisk(Disk):
    def __init__(self, at: str) -> None:
        self._at = at

    def step(self, name: str) -> None:
        if name == self._at:
            raise Crash


class FullDisk(Disk):
    full = True

    def replace(self, path: Path, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(path, data)


def offsets(directory: Path, disk: Disk | None = None) -> Table[ConsumerOffsets]:
    return Table(directory, CONSUMER_OFFSETS, disk=disk)


def loaded(directory: Path) -> dict[str, dict[int, int]]:
    table = offsets(directory)
    table.load()
    return table.value.offset_table


def put(directory: Path, file: bytes | None, backup: bytes | None) -> None:
    for name, data in (("consumerOffset.json", file), ("consumerOffset.json.bak", backup)):
        if data is not None:
            (directory / name).write_bytes(data)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    table = Table(tmp_path, TOPICS)
    table.value.topic_config_table["T"] = TopicConfig(topic_name="T", read_queue_nums=3)
    table.value.data_version = DataVersion(counter=2, timestamp=7)
    table.changed()
    assert table.save()
    again = Table(tmp_path, TOPICS)
    again.load()
    assert again.value == table.value


def test_a_store_without_tables_has_empty_ones(tmp_path: Path) -> None:
    table = Table(tmp_path / "config", TOPICS)
    table.load()
    assert table.value == TopicConfigTable()
    assert not table.save()
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (None, "missing"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{]", "key"),
        (bytes(64), "zero bytes"),
    ],
    ids=["missing", "empty", "blank", "broken", "zeros"],
)
def test_the_backup_is_read_where_the_file_cannot_be(
    file: bytes | None, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, file, GOOD)
    assert loaded(tmp_path) == {"T@G": {0: 10}}
    (warning,) = caplog.messages
    assert "consumerOffset.json.bak is read in place of consumerOffset.json" in warning
    assert why in warning


def test_a_file_with_a_zeroed_block_is_damaged_though_java_would_read_it(tmp_path: Path) -> None:
    zeroed = GOOD.replace(b"{", b"{" + bytes(16), 1)
    put(tmp_path, zeroed, None)
    with pytest.raises(DamagedFile):
        loaded(tmp_path)
    put(tmp_path, zeroed, GOOD)
    assert loaded(tmp_path) == {"T@G": {0: 10}}


def test_a_good_file_is_read_without_a_word_and_without_its_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, GOOD, OTHER)
    with caplog.at_level(logging.INFO):
        assert loaded(tmp_path) == {"T@G": {0: 10}}
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("file", "backup", "named"),
    [
        (b"{]", None, "consumerOffset.json"),
        (b"{]", b"", "consumerOffset.json"),
        (b'{"offsetTable":[]}', b"{]", "consumerOffset.json"),
        (None, b"{]", "consumerOffset.json.bak"),
    ],
)
def test_a_table_that_cannot_be_read_is_not_taken_to_be_empty(
    file: bytes | None, backup: bytes | None, named: str, tmp_path: Path
) -> None:
    put(tmp_path, file, backup)
    with pytest.raises(DamagedFile) as caught:
        loaded(tmp_path)
    assert caught.value.path == tmp_path / named


@pytest.mark.parametrize("step", ["replace-aside", "replace-backup", "replace-renamed"])
def test_a_crash_while_a_damaged_file_is_replaced_loses_nothing(step: str, tmp_path: Path) -> None:
    put(tmp_path, b"{]", GOOD)
    table = offsets(tmp_path, CrashingDisk(step))
    table.load()
    with pytest.raises(Crash):
        table.save()
    assert loaded(tmp_path) == {"T@G": {0: 10}}


def test_a_damaged_file_is_kept_and_the_good_one_is_back_in_its_place(tmp_path: Path) -> None:
    put(tmp_path, b"{]", GOOD)
    table = offsets(tmp_path)
    table.load()
    assert table.save()
    assert (tmp_path / "consumerOffset.json.damaged").read_bytes() == b"{]"
    assert (tmp_path / "consumerOffset.json.bak").read_bytes() == GOOD
    (tmp_path / "consumerOffset.json.bak").unlink()
    assert loaded(tmp_path) == {"T@G": {0: 10}}


@pytest.mark.parametrize(
    ("step", "offset"), [("replace-aside", 10), ("replace-backup", 10), ("replace-renamed", 11)]
)
def test_a_crash_while_saving_leaves_the_old_table_or_the_new_one(
    step: str, offset: int, tmp_path: Path
) -> None:
    put(tmp_path, GOOD, OTHER)
    table = offsets(tmp_path, CrashingDisk(step))
    table.load()
    table.value.offset_table["T@G"][0] = 11
    table.changed()
    with pytest.raises(Crash):
        table.save()
    assert loaded(tmp_path) == {"T@G": {0: offset}}


def test_a_full_disk_leaves_the_old_file_and_the_next_save_tries_again(tmp_path: Path) -> None:
    put(tmp_path, GOOD, None)
    disk = FullDisk()
    table = offsets(tmp_path, disk)
    table.load()
    table.value.offset_table["T@G"][0] = 11
    table.changed()
    with pytest.raises(OSError, match="No space left"):
        table.save()
    assert loaded(tmp_path) == {"T@G": {0: 10}}
    disk.full = False
    assert table.save()
    assert loaded(tmp_path) == {"T@G": {0: 11}}


def test_a_file_that_the_disk_had_no_room_for_is_not_left_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    table = offsets(tmp_path)
    table.changed()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        table.save()
    assert list(tmp_path.iterdir()) == []


def test_only_a_changed_table_is_written(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    assert not table.save()
    table.changed()
    assert table.save()
    assert not table.save()


def test_a_change_made_during_a_save_is_saved_the_next_time(tmp_path: Path) -> None:
    class ChangingDisk(Disk):
        def step(self, name: str) -> None:
            if name == "replace-aside":
                table.changed()

    table = offsets(tmp_path, ChangingDisk())
    table.changed()
    table.save()
    assert table.save()


def test_a_table_is_saved_when_its_interval_is_over(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    assert not table.save_due(100.0)
    table.changed()
    assert table.save_due(100.0)
    table.changed()
    assert not table.save_due(104.9)
    assert table.save_due(105.0)


def test_a_failed_save_is_tried_again_after_the_interval(tmp_path: Path) -> None:
    table = offsets(tmp_path, FullDisk())
    table.changed()
    with pytest.raises(OSError, match="No space left"):
        table.save_due(100.0)
    assert not table.save_due(104.9)
    with pytest.raises(OSError, match="No space left"):
        table.save_due(105.0)


def test_the_interval_can_be_set(tmp_path: Path) -> None:
    table = Table(tmp_path, CONSUMER_OFFSETS, interval=1.0)
    table.changed()
    table.save_due(100.0)
    table.changed()
    assert table.save_due(101.0)


def test_topics_and_groups_are_saved_at_once() -> None:
    kinds = (TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS, CONSUMER_FILTERS)
    assert [kind.interval for kind in kinds] == [0, 0, 5, 10, 10]


def test_consumer_offsets_have_bare_keys_and_the_topics_of_each_group(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    table.value.offset_table = {"T@G": {0: 10, 1: 2**53 + 1}, "U@G": {}, "T@1": {3: -1}}
    table.changed()
    table.save()
    text = table.path.read_text()
    assert f'"T@G":{{0:10,1:{2**53 + 1}}}' in text
    assert json_dialect.parse(text)["groupTopicMap"] == {"G": ["T", "U"], "1": ["T"]}
    assert loaded(tmp_path) == table.value.offset_table


def test_delay_offsets_have_bare_keys(tmp_path: Path) -> None:
    table = Table(tmp_path, DELAY_OFFSETS)
    table.value = DelayOffsets(offset_table={1: 0, 18: 7})
    table.changed()
    table.save()
    assert '"offsetTable":{1:0,18:7}' in table.path.read_text()


def test_quoted_numbers_are_read_too(tmp_path: Path) -> None:
    put(tmp_path, b'{"offsetTable":{"T@G":{"0":10}}}', None)
    assert loaded(tmp_path) == {"T@G": {0: 10}}


def test_what_looks_like_a_bare_key_inside_a_text_stays_as_it_is(tmp_path: Path) -> None:
    expression = r'{1:2, 3:"\4:" ,5 :'
    group = {"consumerGroup": "G", "topic": "T", "expression": expression}
    text = json.dumps({"filterDataByTopic": {"T": {"topic": "T", "groupFilterData": {"G": group}}}})
    (tmp_path / "consumerFilter.json").write_text(text.replace("{", "{9:0,", 1))
    table = Table(tmp_path, CONSUMER_FILTERS)
    table.load()
    found = table.value.filter_data_by_topic["T"].group_filter_data["G"]
    assert found.expression == expression


def test_a_table_longer_than_any_frame_may_be_is_read(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    many = {f"{'t' * 1000}-{number}@group": {0: number} for number in range(4500)}
    table.value.offset_table = many
    table.changed()
    table.save()
    assert table.path.stat().st_size > json_dialect.MAX_SIZE
    assert loaded(tmp_path) == many


def test_a_filter_is_dead_in_the_file_as_its_times_say(tmp_path: Path) -> None:
    table = Table(tmp_path, CONSUMER_FILTERS)
    filters = {
        group: ConsumerFilter(consumer_group=group, topic="T", born_time=5, dead_time=dead)
        for group, dead in (("left", 5), ("here", 4))
    }
    table.value.filter_data_by_topic["T"] = TopicFilters(topic="T", group_filter_data=filters)
    table.changed()
    table.save()
    written = json.loads(table.path.read_bytes())["filterDataByTopic"]["T"]["groupFilterData"]
    assert (written["left"]["dead"], written["here"]["dead"]) == (True, False)


def test_members_nobody_knows_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, b'{"offsetTable":{"T@G":{0:1}},"pullOffsetTable":{},"new":[1,{"a":2}]}', None)
    assert loaded(tmp_path) == {"T@G": {0: 1}}


def test_null_members_are_read_as_absent_ones(tmp_path: Path) -> None:
    put(tmp_path, b'{"dataVersion":null,"offsetTable":{"T@G":{0:1}}}', None)
    assert loaded(tmp_path) == {"T@G": {0: 1}}


# ---- large tables


@given(instances(GroupConfigTable))
def test_a_table_is_encoded_in_slices_as_in_one_go(table: GroupConfigTable) -> None:
    try:
        at_once = msgspec.json.format(msgspec.json.encode(table, order="sorted"), indent=1)
    except UnicodeEncodeError:
        return
    assert GROUPS.encode(table) == at_once


def test_a_large_table_is_encoded_in_slices_whose_keys_are_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["z", *(f"T{at:04}" for at in range(1000)), "a"]
    table = TopicConfigTable(
        topic_config_table={name: TopicConfig(topic_name=name) for name in names}
    )
    at_once = msgspec.json.format(msgspec.json.encode(table, order="sorted"), indent=1)
    slices: list[list[str]] = []
    encode = msgspec.json.encode

    def note(value: Any, **how: Any) -> bytes:
        if isinstance(value, dict):
            slices.append(list(value))
        return encode(value, **how)

    monkeypatch.setattr(msgspec.json, "encode", note)
    assert TOPICS.encode(table) == at_once
    assert [name for each in slices for name in each] == sorted(names)
    assert max(map(len, slices)) < 500


def test_offsets_of_any_size_are_read_as_rocketmq_sends_them(tmp_path: Path) -> None:
    queues = {queue_id: 10**9 + queue_id for queue_id in range(20_000)}
    value = ConsumerOffsets(offset_table={f"T{at}@g": queues for at in range(15)})
    sent = CONSUMER_OFFSETS.encode(value)
    assert len(sent) > json_dialect.MAX_SIZE
    assert Table(tmp_path, CONSUMER_OFFSETS).decode(sent) == value
