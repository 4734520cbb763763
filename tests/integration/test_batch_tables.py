"""Topics with batch queues as Arrow tables and JSON lines: a row for each message of a batch."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bolide.arrow import read_commit_log, read_topic
from bolide.arrow.commit_log import LogOptions, LogReader, plan_splits
from bolide.store.dump import BodyForm, Bound, Selection, describe, dump
from tests.support.batches import create_batch_topic, items, send_batch
from tests.support.broker import BrokerClient
from tests.support.cluster_process import ClusterProcess, cluster_process

COUNT = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process(tmp_path_factory.mktemp("cluster")) as served:
        asyncio.run(fill(f"127.0.0.1:{served.brokers['broker-a'].port}"))
        yield served


async def fill(address: str) -> None:
    """Offsets 0 to 39 of one queue: batches of seven, with a message alone between two."""
    async with BrokerClient(address) as client:
        await create_batch_topic(client)
        for first in range(0, COUNT, 8):
            await send_batch(client, items(first, 7, TAGS="A"), properties={"TAGS": "A"})
            await client.send("Bulk", b"%d" % (first + 7), properties={"UNIQ_KEY": "alone"})


def store_of(cluster: ClusterProcess) -> Path:
    return cluster.directory / "broker-a" / "store"


def facts(table: Any) -> list[tuple[int, bytes]]:
    columns = table.select(["queue_offset", "body"]).to_pylist()
    return [(row["queue_offset"], row["body"]) for row in columns]


def numbers(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(first, end)]


def test_a_topic_has_a_row_for_each_message(cluster: ClusterProcess) -> None:
    table = read_topic("Bulk", name_server=cluster.address).to_table()
    assert facts(table) == numbers(0, COUNT)
    assert table["message_id"].to_pylist()[:9] == [
        *[f"ID{number}" for number in range(7)], "alone", "ID8",
    ]  # fmt: skip
    assert set(table["tags"].to_pylist()) == {"A", None}


def test_a_range_begins_and_ends_inside_batches(cluster: ClusterProcess) -> None:
    start, end = (json.dumps({"Bulk": {"broker-a": {0: offset}}}) for offset in (3, 21))
    table = read_topic("Bulk", name_server=cluster.address, start=start, end=end).to_table()
    assert facts(table) == numbers(3, 21)


@pytest.mark.parametrize("split_size", [0, 512])
def test_a_commit_log_has_a_row_for_each_message(cluster: ClusterProcess, split_size: int) -> None:
    options = LogOptions(topics=("Bulk",), split_size=split_size)
    table = LogReader(plan_splits(str(store_of(cluster)), options), options).to_table()
    assert facts(table) == numbers(0, COUNT)


def test_a_commit_log_is_read_by_path(cluster: ClusterProcess) -> None:
    table = read_commit_log(store_of(cluster)).to_table()
    assert facts(table) == numbers(0, COUNT)


def test_a_dump_has_a_line_for_each_message(cluster: ClusterProcess) -> None:
    def lines(**given: Any) -> list[tuple[Any, Any]]:
        found = dump(store_of(cluster), Selection(**given), pytest.fail)
        texts = [describe(record, BodyForm.TEXT) for record in found]
        return [(text["queueOffset"], str(text["body"]).encode()) for text in texts]

    assert lines(topic="Bulk") == numbers(0, COUNT)
    assert lines(topic="Bulk", queue_id=0) == numbers(0, COUNT)
    bounds = {"first": Bound(3, is_time=False), "last": Bound(10, is_time=False)}
    assert lines(topic="Bulk", queue_id=0, **bounds) == numbers(3, 10)
    assert lines(topic="Bulk", key="ID9") == numbers(9, 10)
