"""A store directory goes back and forth between a Java broker and our store.

Whoever opens it finds all that the other left, to the byte and the millisecond, and goes on from
there. Each story is told once for a release, all three at the same time: a Java broker spends most
of its clean stop asleep.
"""

import os
import pickle
import sys
from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bolide.arrow.commit_log import LogOptions, LogReader, plan_splits
from bolide.model.message import Host, StoredMessage
from bolide.store.layout import Layout
from bolide.store.verify import Report, verify
from tests.interop.bench import BROKER_NEIGHBOURS, Bench
from tests.interop.processes import ChildProcess
from tests.interop.store_facts import KEY_LIMIT, SOME_TAGS, Facts, Queue, told_by_java
from tests.interop.store_load import (
    DELAY_LEVELS,
    DELAYED,
    QUEUES_OF_TOPICS,
    SIZES,
    WRITTEN,
    Turn,
    write_topics,
)
from tests.support.ports import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
BROKER = "broker-a"

# Until the first of these intervals is over, 5.x keeps a core busy.
SETTINGS: dict[str, str | int | bool] = {**SIZES, "transactionMetricFlushInterval": 500}
UNMAPPING = "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED"  # without it 4.9 cannot drop files


Row = tuple[Any, ...]
TIMES = ("born_timestamp", "store_timestamp")
COLUMNS = (
    *("physical_offset", "queue_offset", "topic", "queue_id", "message_id", "offset_message_id"),
    *("tags", "body", "born_host", "store_host", "reconsume_times", "sys_flag", "flag"),
)


@dataclass(frozen=True)
class Story:
    """At each handover: what the one who left knew, and what the other then told."""

    to_ours: list[tuple[Facts, Facts]]
    to_java: list[tuple[Facts, Facts]]
    reports: list[Report]
    """What `bolide store verify` says of the directory each time that Java has left it."""
    tables: list[tuple[Facts, list[Row]]]
    """What Java told each time, and the rows of the log files that it left."""


class Directory:
    """A store directory, and turns with it. Who does not close the store is killed."""

    def __init__(self, bench: Bench, version: str, path: Path) -> None:
        self._bench = bench
        self._version = version
        self._path = path
        self._root = path / "store"
        self._namesrv = bench.namesrv(version).address
        self._port = free_port(BROKER_NEIGHBOURS)
        self._turns = count(1)
        self.reports: list[Report] = []
        self.tables: list[tuple[Facts, list[Row]]] = []
        write_topics(self._root)

    def java(self, *, close: bool) -> Facts:
        """A broker takes a load; what it then tells is the state in which it leaves the store."""
        server = self._bench.broker(
            self._version, self._namesrv, jvm=[UNMAPPING], brokerName=BROKER,
            listenPort=self._port, storePathRootDir=str(self._root), **SETTINGS,
        )  # fmt: skip
        topics = {f"-{DELAYED}": DELAY_LEVELS} | QUEUES_OF_TOPICS
        client = self._bench.client(
            self._version, "StoreLoad", self._namesrv, BROKER, f"java-{next(self._turns)}",
            *[f"{topic}:{queues}" for topic, queues in topics.items()],
        )  # fmt: skip
        told = told_by_java(client.wait())
        if close:
            server.stop()
        else:
            server.kill()
        self.reports.append(verify(Layout.read_off(self._root)))
        self.tables.append((told, rows_of_log(self._root)))
        return told

    def ours(self, left: Facts | None = None, *, close: bool) -> tuple[Facts, Facts]:
        """What our store holds before and after it has taken a load."""
        name = f"ours-{next(self._turns)}"
        order, readings = self._path / f"{name}.turn", self._path / f"{name}.readings"
        times = list(left.times) if left else []
        broker = Host("127.0.0.1", self._port)
        order.write_bytes(pickle.dumps(Turn(self._root, name, broker, times, readings, close)))
        command = [sys.executable, "-m", "tests.interop.store_load", str(order)]
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(REPOSITORY)])
        environment = os.environ | {"PYTHONPATH": path}
        with ChildProcess(name, command, environment) as process:
            process.wait_for_line("appended")
            if close:
                process.wait()
        before, after = pickle.loads(readings.read_bytes())
        return before, after


def java_first(directory: Directory, *, close: bool) -> Story:
    java = directory.java(close=close)
    found, ours = directory.ours(java, close=close)
    java_again = directory.java(close=False)
    found_again, _ = directory.ours(java_again, close=True)
    to_ours = [(java, found), (java_again, found_again)]
    return Story(to_ours, [(ours, java_again)], directory.reports, directory.tables)


def ours_first(directory: Directory) -> Story:
    _, ours = directory.ours(close=True)
    java = directory.java(close=False)
    found, _ = directory.ours(java, close=True)
    return Story([(java, found)], [(ours, java)], directory.reports, directory.tables)


STORIES = {
    "java-first-closed": lambda directory: java_first(directory, close=True),
    "java-first-killed": lambda directory: java_first(directory, close=False),
    "ours-first": ours_first,
}


@pytest.fixture(scope="module")
def stories(
    rocketmq: str, java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Story]]]:
    with ThreadPoolExecutor(len(STORIES)) as pool:

        def begin(name: str) -> Future[Story]:
            path = tmp_path_factory.mktemp(name)
            tell = STORIES[name]
            return pool.submit(lambda: tell(Directory(java_module_bench, rocketmq, path)))

        yield {name: begin(name) for name in STORIES}


@pytest.fixture(params=STORIES)
def story(request: pytest.FixtureRequest, stories: dict[str, Future[Story]]) -> Story:
    return stories[request.param].result()


def test_ours_finds_every_message_that_java_left(story: Story) -> None:
    for java, ours in story.to_ours:
        assert ours.bounds == java.bounds
        assert ours.messages == java.messages
        assert last_place(java) > 2 * SIZES["mappedFileSizeCommitLog"]
        assert 20 * java.bounds[WRITTEN[0]][1] > SIZES["mappedFileSizeConsumeQueue"]


def test_verify_finds_nothing_wrong_with_what_java_left(story: Story) -> None:
    for report in story.reports:
        assert report.sound, report.findings
        assert report.records


def test_the_log_files_that_java_left_have_a_row_for_each_message(story: Story) -> None:
    for java, table in story.tables:
        ends = {queue: high for queue, (_, high) in java.bounds.items()}
        found = [row for row in table if row[1] < ends[Queue(row[2], row[3])]]
        told = [as_row(message) for message in chain.from_iterable(java.messages.values())]
        assert found == sorted(told)
        assert len({row[0] // SIZES["mappedFileSizeCommitLog"] for row in found}) > 2


def test_ours_finds_by_key_what_java_finds(story: Story) -> None:
    for java, ours in story.to_ours:
        assert ours.keys == java.keys
        assert ours.unique_keys == java.unique_keys
        assert len(java.keys["Orders", "popular"]) == KEY_LIMIT


def test_ours_finds_by_tags_what_java_finds(story: Story) -> None:
    for java, ours in story.to_ours:
        assert written(ours.tagged) == written(java.tagged) == tagged(java)


def test_ours_finds_by_time_what_java_finds(story: Story, rocketmq: str) -> None:
    for java, ours in story.to_ours:
        assert ours.times == {asked: first_since(*asked, java) for asked in java.times}
        if rocketmq != "4.9":  # which answers with the nearest message of one queue file
            assert ours.times == java.times


def test_ours_reads_the_offsets_that_java_committed(stories: dict[str, Future[Story]]) -> None:
    java, ours = stories["java-first-closed"].result().to_ours[0]

    assert ours.committed == {queue: java.committed[queue] for queue in WRITTEN}
    assert any(ours.committed.values())


def test_java_reads_every_message_that_ours_left(story: Story) -> None:
    for ours, java in story.to_java:
        assert {
            queue: java.messages[queue][: len(messages)]
            for queue, messages in ours.messages.items()
        } == ours.messages
        assert {queue: low for queue, (low, _) in java.bounds.items()} == {
            queue: low for queue, (low, _) in ours.bounds.items()
        }


def test_java_goes_on_where_ours_ended(story: Story) -> None:
    for ours, java in story.to_java:
        for queue, (low, high) in java.bounds.items():
            messages = java.messages[queue]
            added = messages[len(ours.messages[queue]) :]
            assert [message.queue_offset for message in messages] == list(range(low, high))
            assert all(message.physical_offset > last_place(ours) for message in added)
            assert added or queue not in WRITTEN


def test_java_finds_by_key_what_ours_left(story: Story) -> None:
    for ours, java in story.to_java:
        assert java.keys == newest_by_key(java)
        assert java.unique_keys == first_by_unique_key(java)
        assert ours.keys.keys() <= java.keys.keys()


def test_java_finds_by_tags_what_ours_left(story: Story) -> None:
    for ours, java in story.to_java:
        assert written(java.tagged) == tagged(java)
        assert any(ours.tagged.values())


def test_java_finds_by_id_what_ours_left(story: Story) -> None:
    for ours, java in story.to_java:
        bodies = {
            message.physical_offset: message.body
            for message in chain.from_iterable(ours.messages.values())
        }
        asked = bodies.keys() & java.by_id.keys()
        assert {place: java.by_id[place] for place in asked} == {
            place: bodies[place] for place in asked
        }
        assert len(asked) >= len(WRITTEN)


def test_java_delivers_the_delayed_messages_that_ours_left(story: Story) -> None:
    for ours, java in story.to_java:
        due = [message for message in ours.messages[Queue(DELAYED, 0)] if is_ours(message.keys)]
        delivered = [
            message.body
            for queue in WRITTEN
            for message in java.messages[queue]
            if message.properties.get("REAL_TOPIC") and is_ours(message.keys)
        ]
        assert sorted(delivered) == sorted(message.body for message in due)
        assert len(due) == 2


def rows_of_log(root: Path) -> list[Row]:
    """All rows of topics that Java tells of, read in many small parts."""
    topics = (DELAYED, *QUEUES_OF_TOPICS)
    options = LogOptions(topics=topics, split_size=SIZES["mappedFileSizeCommitLog"] // 7)
    table = LogReader(plan_splits(str(root), options), options).to_table()
    times = [table[name].cast(pa.int64()) for name in TIMES]
    columns = [table[name] for name in COLUMNS]
    return [
        (*plain, born // 1000, stored // 1000, dict(properties))
        for *plain, born, stored, properties in zip(
            *map(pa.ChunkedArray.to_pylist, [*columns, *times, table["properties"]]), strict=True
        )
    ]


def as_row(message: StoredMessage) -> Row:
    return (
        message.physical_offset, message.queue_offset, message.topic, message.queue_id,
        message.message_id, message.offset_message_id, message.tags, message.body,
        str(message.born_host), str(message.store_host), message.reconsume_times,
        message.sys_flag, message.flag, message.born_timestamp, message.store_timestamp,
        message.properties,
    )  # fmt: skip


def is_ours(keys: tuple[str, ...]) -> bool:
    return any("-ours-" in key for key in keys)


def last_place(facts: Facts) -> int:
    return max(message.physical_offset for message in chain.from_iterable(facts.messages.values()))


def newest_by_key(facts: Facts) -> dict[tuple[str, str], list[int]]:
    """What look-ups by key must find, from the messages themselves."""
    found: dict[tuple[str, str], set[int]] = {}
    for message in chain.from_iterable(facts.messages.values()):
        for key in message.keys:
            found.setdefault((message.topic, key), set()).add(message.physical_offset)
    return {key: sorted(places)[-KEY_LIMIT:] for key, places in found.items()}


def first_by_unique_key(facts: Facts) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for message in chain.from_iterable(facts.messages.values()):
        if message.unique_id:
            key = message.topic, message.unique_id
            found[key] = min(message.physical_offset, found.get(key, message.physical_offset))
    return found


def tagged(facts: Facts) -> dict[Queue, list[int]]:
    """What a pull by tags must find, from the messages themselves."""
    return {
        queue: [
            message.queue_offset
            for message in facts.messages[queue]
            if SOME_TAGS.matches(message.tags)
        ]
        for queue in WRITTEN
    }


def written(tagged: dict[Queue, list[int]]) -> dict[Queue, list[int]]:
    """Without the delayed ones: in place of tags they have their time, but 4.9 forgets that when
    it dispatches them again after a crash."""
    return {queue: tagged[queue] for queue in WRITTEN}


def first_since(queue: Queue, time: int, facts: Facts) -> int:
    """The offset of the first message stored at that time or later, or the end of the queue."""
    messages = facts.messages[queue]
    low, _ = facts.bounds[queue]
    return low + bisect_left(messages, time, key=lambda message: message.store_timestamp)
