"""Topics to Parquet and back to one view: every message once, by every kind of reader."""

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bolide import Message
from bolide.spark.archive import NoArchive, OtherLog, SeamGap, TableBusy, read_archive
from bolide.spark.archive.files import HadoopFiles
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.view import UnknownTopic, topic_view, topics
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore
from tests.spark.archives import Archive, Place, places
from tests.support.clock import FakeClock
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.filled_store import draft
from tests.unit.spark.archive.contract import check_files

HOURS = 4
EACH = 30
TOPIC = "Old-Orders"
OTHER = "%RETRY%old"
FIRST = (time.time() // 3600 - HOURS) * 3600
"""When the first message was stored; the hour may end while the tests run."""


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """A cluster whose messages are from the last four hours that are over."""
    directory = tmp_path_factory.mktemp("aged")
    clock = FakeClock(FIRST)
    settings = StoreConfig(root=directory / "broker-a" / "store", commit_log_file_size=1024 * 1024)
    settings.root.mkdir(parents=True)
    with MessageStore(settings, background=False, clock=clock) as store:
        for number in range(HOURS * EACH):
            topic = OTHER if number % 5 == 4 else TOPIC
            store.append(draft(number, topic, number % 2, b'{"id": %d}' % number))
            clock.advance(3600 / EACH)
    sizes = {"mappedFileSizeCommitLog": 1024 * 1024}
    with cluster_process(directory, **sizes) as cluster:
        cluster.create_topic(TOPIC, 2)
        cluster.create_topic(OTHER, 2)
        yield cluster


def sent(*topics: str) -> Counter[Place]:
    """What `aged` has, by its place."""
    ends: Counter[tuple[str, int]] = Counter()
    found: Counter[Place] = Counter()
    for number in range(HOURS * EACH):
        queue = (OTHER if number % 5 == 4 else TOPIC), number % 2
        found[queue[0], "broker-a", queue[1], ends[queue], b'{"id": %d}' % number] += 1
        ends[queue] += 1
    return Counter({place: 1 for place in found if place[0] in topics})


def expected_hours() -> dict[tuple[str, str, int, str], tuple[int, int, int]]:
    """What the log and the table have in each hour, and the difference."""
    found: Counter[tuple[str, str, int, str]] = Counter()
    for number in range(HOURS * EACH):
        hour = time.strftime("%Y-%m-%d-%H", time.gmtime(FIRST + number * 3600 / EACH))
        found[OTHER if number % 5 == 4 else TOPIC, "broker-a", number % 2, hour] += 1
    return {key: (count, count, 0) for key, count in found.items()}


@pytest.fixture(scope="module")
def archive(
    spark: SparkSession, aged: ClusterProcess, tmp_path_factory: pytest.TempPathFactory
) -> Archive:
    """One topic in small changes, then another; in between the checkpoint was lost."""
    made = Archive(spark, aged, tmp_path_factory.mktemp("my lake"))
    made.add(TOPIC, batch_rows=40, value_schema="id bigint", compact=False)
    shutil.rmtree(made.path / "_bolide" / "checkpoint")
    made.add(f"{TOPIC},{OTHER}", value_schema="id bigint", compact=False)
    return made


def copy_of(archive: Archive, path: Path) -> Archive:
    shutil.copytree(archive.path, path)
    return archive.at(path)


def test_every_message_is_archived_once_and_the_report_proves_it(
    spark: SparkSession, archive: Archive
) -> None:
    archive.check(sent(TOPIC, OTHER))
    for deep in (False, True):
        outcome = archive.reconcile(deep=deep)
        hours, queues = outcome.tables
        assert outcome.failure is None
        assert {tuple(row[:4]): tuple(row[4:7]) for row in hours.rows} == expected_hours()
        assert [row[-1] for row in queues.rows] == [0, 0, 0, 0]  # behind
    found = read_archive(spark, str(archive.path)).select("value.id", "keys", "tags", "properties")
    for row in found.collect():
        assert (row.keys, row.tags) == (f"k{row.id} all", f"t{row.id % 3}")
        assert row.properties["UNIQ_KEY"] == f"U{row.id:06d}"


def kept_hours() -> set[str]:
    """What the archive has of the last two hours."""
    recent = time.strftime("%Y-%m-%d-%H", time.gmtime(time.time() - 2 * 3600))
    return {f"hour={hour}" for (*_, hour) in expected_hours() if hour >= recent}


def test_small_files_are_merged_and_old_hours_deleted(archive: Archive, tmp_path: Path) -> None:
    lake = copy_of(archive, tmp_path / "lake")
    lake.compact()
    assert len(lake.files()) == 2 * HOURS  # one of each topic and hour
    lake.check(sent(TOPIC, OTHER))
    before = kept_hours()
    lake.compact(keep="2h")
    assert {file.parent.name for file in lake.files()} in (before, kept_hours())
    outcome = lake.reconcile()  # which knows what was deleted on purpose
    assert outcome.failure is None
    assert 0 < outcome.rows < HOURS * EACH


def test_what_is_wrong_with_files_is_found(
    spark: SparkSession, archive: Archive, tmp_path: Path
) -> None:
    lake = copy_of(archive, tmp_path / "lake")
    lost, overwritten, *_, doubled = lake.files()
    places = place_of(lost), place_of(overwritten)  # files are named by chance
    shutil.copy(doubled, doubled.with_name("again.parquet"))
    overwritten.write_bytes(b"PAR1" * overwritten.stat().st_size)  # certainly of another size
    lost.unlink()
    outcome = lake.reconcile()
    assert outcome.failure is not None
    told = "\n".join(f"{place} {text}" for place, text in outcome.tables[2].rows)
    assert f"{lost.name} is gone" in told
    assert re.search(rf"{overwritten.name} has \d+ bytes instead of", told)
    assert "again.parquet is not in the manifest" in told
    for name, hour, offsets in places:
        queue, count = re.escape(name), len(offsets)
        assert re.search(rf"{queue} {count} of the offsets 0 to 11 are missing", told)
        assert re.search(rf"{queue} hour {hour}: the log has {count} messages, the table 0", told)


def place_of(file: Path) -> tuple[str, str, list[int]]:
    """The queue, hour and offsets of the rows of a file, which has one queue's."""
    table = pq.read_table(file, partitioning=None)
    (queue,) = set(table["queue_id"].to_pylist())
    topic, hour = (part.partition("=")[2] for part in file.parts[-3:-1])
    return f"{unquote(topic)}/broker-a/{queue}", hour, table["queue_offset"].to_pylist()


def test_a_view_joins_archive_and_log_without_gap_or_overlap(
    spark: SparkSession, aged: ClusterProcess, archive: Archive, tmp_path: Path
) -> None:
    results = aged.send(Message(TOPIC, b'{"id": -1}') for _ in range(7))
    expected = sent(TOPIC) + Counter(
        (TOPIC, "broker-a", each.queue.queue_id, each.queue_offset, b'{"id": -1}')
        for each in results
    )
    options: dict[str, Any] = {"name_server": aged.address, "archive": str(archive.path)}
    view = topic_view(spark, TOPIC, **options)
    assert places(view) == expected
    assert view.where("value.id = -1").count() == 7

    table = topics(spark, **options, pattern="Old.*|%RETRY%old")
    assert [tuple(row) for row in table.collect()] == [
        (OTHER, 2, HOURS * EACH // 5, HOURS * EACH // 5),
        (TOPIC, 2, HOURS * EACH * 4 // 5 + 7, HOURS * EACH * 4 // 5),
    ]
    (count,) = spark.sql(f"select count(*) from `{TOPIC}`").collect()
    assert count[0] == expected.total()

    with pytest.raises(UnknownTopic, match=f"did you mean {TOPIC}"):
        topic_view(spark, "Old-Order", **options)
    with pytest.raises(NoArchive, match="nowhere"):
        topic_view(spark, TOPIC, name_server=aged.address, archive=str(tmp_path / "nowhere"))


def test_a_log_that_does_not_reach_the_archive_is_told(
    spark: SparkSession, aged: ClusterProcess, cluster: ClusterProcess, archive: Archive
) -> None:
    cluster.create_topic(TOPIC, 2)  # of the same name, and empty
    with pytest.raises(SeamGap, match="the topic was recreated"):
        topic_view(spark, TOPIC, name_server=cluster.address, archive=str(archive.path))
    with pytest.raises(SeamGap, match="the topic was recreated"):
        Archive(spark, cluster, archive.path).add(TOPIC, value_schema="id bigint")


def test_a_topic_that_was_made_anew_and_has_grown_is_found_by_its_messages(
    spark: SparkSession, aged: ClusterProcess, cluster: ClusterProcess, archive: Archive
) -> None:
    cluster.create_topic(OTHER, 2)
    cluster.send(Message(OTHER, b"new") for _ in range(2 * HOURS * EACH))
    elsewhere = Archive(spark, cluster, archive.path)
    with pytest.raises(OtherLog, match="the topic was recreated"):
        elsewhere.add(OTHER, value_schema="id bigint")
    with pytest.raises(OtherLog):
        topic_view(spark, OTHER, name_server=cluster.address, archive=str(archive.path))
    outcome = elsewhere.reconcile(topic=f"{OTHER},{TOPIC}")
    told = "\n".join(f"{place} {text}" for place, text in outcome.tables[2].rows)
    assert re.search(rf"{OTHER}/broker-a/0: offset 11 is message U0001\d\d in the archive", told)
    assert f"{TOPIC}/broker-a/1: the archive ends before offset 48, but the log ends" in told


def test_a_view_has_what_the_log_has_from_before_an_archive(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("begun-late", 2)
    cluster.send(Message("begun-late", b'{"id": 1}') for _ in range(6))
    lake = Archive(spark, cluster, tmp_path / "lake")
    lake.add("begun-late", start="latest")
    cluster.send(Message("begun-late", body) for body in (b'{"id": 2}', b"no JSON"))
    lake.add("begun-late")
    cluster.send([Message("begun-late", b"no JSON either")])
    view = topic_view(
        spark, "begun-late", name_server=cluster.address, archive=str(lake.path),
        value_schema="id int",
    )  # fmt: skip
    counted = view.groupBy("value").count().collect()
    assert {row.value and row.value.id: row["count"] for row in counted} == {1: 6, 2: 1, None: 2}
    query = f"select distinct typeof(store_timestamp) from '{lake.path}/topic=*/*/*.parquet'"
    assert duckdb.connect().execute(query).fetchall() == [("TIMESTAMP WITH TIME ZONE",)]


def test_a_second_writer_is_refused(spark: SparkSession, archive: Archive) -> None:
    table = ArchiveTable.at(spark, str(archive.path))
    with table.writing(), pytest.raises(TableBusy):
        archive.add(TOPIC, value_schema="id bigint")


def test_files_reached_through_the_jvm_do_the_same(spark: SparkSession, tmp_path: Path) -> None:
    check_files(HadoopFiles(spark, str(tmp_path / "table")))
    assert not list(tmp_path.rglob("*.crc"))
