"""The source `rocketmq-commitlog` as Spark uses it, without Spark."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from bolide.arrow.errors import NoCommitLog
from bolide.errors import ConfigError
from bolide.spark.commit_log import CommitLogOptions, CommitLogSource
from tests.support.filled_store import filled


def source(path: Path | str | None, **options: str) -> CommitLogSource:
    given = {"path": str(path)} if path is not None else {}
    return CommitLogSource(given | {name.lower(): text for name, text in options.items()})


def rows(path: Path, **options: str) -> list[int]:
    """Plan, and read each partition with a pickled copy of the reader."""
    chosen = source(path, **options)
    reader = chosen.reader(chosen.schema())
    found: list[int] = []
    for partition in reader.partitions():
        copy, part = pickle.loads(pickle.dumps((reader, partition)))
        found += [n for batch in copy.read(part) for n in batch["physical_offset"].to_pylist()]
    return found


def test_partitions_of_any_size_hold_every_row_once(tmp_path: Path) -> None:
    config = filled(tmp_path)
    expected = rows(config.root)
    assert len(expected) == 300
    for size in ("0", "1500", "4096"):
        assert rows(config.root, splitSize=size) == expected
    assert len(rows(config.root, topic="Bills, Nothing", startingTimestamp="-1d")) == 100


def test_nothing_is_read_of_no_plan(tmp_path: Path) -> None:
    config = filled(tmp_path)
    chosen = source(config.root, endingTimestamp="1000")
    reader = chosen.reader(chosen.schema())
    assert list(reader.partitions()) == []
    assert list(reader.read(InputPartition(None))) == []


def test_the_schema_follows_the_options(tmp_path: Path) -> None:
    names = source(tmp_path).schema().names
    assert names[:2] + names[-1:] == ["topic", "broker", "properties"]
    chosen = source(tmp_path, includeProperties="false", valueSchema="id bigint")
    assert chosen.schema().names[-2:] == ["flag", "value"]
    with pytest.raises(ConfigError, match="the columns of a message cannot be chosen"):
        chosen.reader(StructType().add("body", "binary"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "a"}, "unknown option topics; did you mean topic?"),
        ({"splitSize": "-1"}, "splitSize=-1: must be a whole number of at least 0"),
        ({"startingTimestamp": "latest"}, "startingTimestamp='latest': must be a time"),
        ({"endingTimestamp": "soon"}, "endingTimestamp='soon': must be"),
        ({"verifyCrc": "perhaps"}, "verifyCrc='perhaps': must be true or false"),
        ({"valueSchema": "id bigin"}, "valueSchema"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source(tmp_path, **options).schema()
    assert message in str(caught.value)


def test_a_path_is_needed_and_must_be_a_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="path is missing"):
        source(None).schema()
    chosen = source(tmp_path)
    with pytest.raises(NoCommitLog, match="name a store directory"):
        chosen.reader(chosen.schema()).partitions()


def test_times_are_of_many_forms() -> None:
    chosen = CommitLogOptions.of(
        {"path": "/x", "startingTimestamp": "1700000000000", "endingTimestamp": "2023-11-14T23:00"}
    ).reading()
    assert (chosen.since, chosen.until) == (1_700_000_000_000, 1_700_002_800_000)
