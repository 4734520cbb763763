"""Our tables against files that the Java classes wrote; see the README beside this file."""

import json
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol import json_dialect
from bolide.protocol.bodies.data_version import DataVersion
from bolide.store.tables import (
    CONSUMER_FILTERS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    GROUPS,
    TOPICS,
    Table,
    TableKind,
)

HERE = Path(__file__).parent
KINDS: dict[str, TableKind[Any]] = {
    kind.file_name: kind
    for kind in (TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS, CONSUMER_FILTERS)
}
VERSION = DataVersion(counter=5, timestamp=1_700_000_000_000)
each_kind = pytest.mark.parametrize("name", KINDS)


def java_file(release: str, name: str, directory: Path) -> str:
    """Put a golden file where a broker has it; returns its text."""
    lines = (HERE / f"tables-{release}.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {golden["file"]: golden["text"] for golden in map(json.loads, lines)}
    (directory / name).write_text(texts[name], encoding="utf-8")
    return str(texts[name])


def loaded(name: str, directory: Path) -> Table[Any]:
    table = Table(directory, KINDS[name])
    table.load()
    return table


def saved(table: Table[Any]) -> Any:
    table.changed()
    table.save()
    return normal(json_dialect.parse(table.path.read_bytes()))


def normal(value: Any) -> Any:
    """To Java a null is a member that is not there, and its sets have no order."""
    if isinstance(value, dict):
        return {key: normal(item) for key, item in value.items() if item is not None}
    return sorted(value) if isinstance(value, list) else value


@each_kind
def test_a_file_of_5_is_written_as_it_was_read(name: str, tmp_path: Path) -> None:
    java = normal(json_dialect.parse(java_file("5.x", name, tmp_path)))
    if name == CONSUMER_OFFSETS.file_name:
        del java["pullOffsetTable"]  # Java writes it and never reads it
    assert saved(loaded(name, tmp_path)) == java


@each_kind
def test_a_file_of_4_9_keeps_all_it_holds(name: str, tmp_path: Path) -> None:
    java = normal(json_dialect.parse(java_file("4.9", name, tmp_path)))
    ours = saved(loaded(name, tmp_path))
    assert reduced(ours, java) == java


def reduced(value: Any, like: Any) -> Any:
    """Of our value what the other one has members for."""
    if isinstance(like, dict):
        return {key: reduced(value[key], item) for key, item in like.items()}
    return value


def test_topics_are_read(tmp_path: Path) -> None:
    java_file("5.x", "topics.json", tmp_path)
    topics = loaded("topics.json", tmp_path).value
    retry = topics.topic_config_table["%RETRY%G"]
    assert (retry.read_queue_nums, retry.perm, retry.order, retry.topic_sys_flag) == (1, 4, True, 1)
    assert retry.attributes == {"message.type": "FIFO"}
    assert topics.data_version == VERSION


def test_groups_and_forbidden_topics_are_read(tmp_path: Path) -> None:
    java_file("5.x", "subscriptionGroup.json", tmp_path)
    groups = loaded("subscriptionGroup.json", tmp_path).value
    assert groups.subscription_group_table["G"].retry_max_times == 3
    assert groups.forbidden_table == {"G": {"Orders": 4}}


@pytest.mark.parametrize(("release", "version"), [("5.x", VERSION), ("4.9", DataVersion())])
def test_consumer_offsets_are_read(release: str, version: DataVersion, tmp_path: Path) -> None:
    java_file(release, "consumerOffset.json", tmp_path)
    offsets = loaded("consumerOffset.json", tmp_path).value
    assert offsets.offset_table == {
        "Orders@G": {0: 10, 1: 20},
        "%RETRY%G@G": {0: 9_007_199_254_740_993},
    }
    assert offsets.data_version == version


@pytest.mark.parametrize(("release", "version"), [("5.x", VERSION), ("4.9", DataVersion())])
def test_delay_offsets_are_read(release: str, version: DataVersion, tmp_path: Path) -> None:
    java_file(release, "delayOffset.json", tmp_path)
    offsets = loaded("delayOffset.json", tmp_path).value
    assert offsets.offset_table == {1: 0, 2: 15, 18: 7}
    assert offsets.data_version == version


@pytest.mark.parametrize("release", ["5.x", "4.9"])
def test_filters_are_read(release: str, tmp_path: Path) -> None:
    java_file(release, "consumerFilter.json", tmp_path)
    filters = loaded("consumerFilter.json", tmp_path).value
    groups = filters.filter_data_by_topic["Orders"].group_filter_data
    assert groups["G"].expression == "a > 3 AND b = 'x,1:y{\"'"
    assert groups["G"].bloom_filter_data.bit_pos == [24, 26, 83]
    assert (groups["G"].is_dead(), groups["Left"].is_dead()) == (False, True)
