"""Topics of a real broker as Arrow tables: exactly what was sent, through restarts and losses."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bolide import Message, MessageQueue, Producer
from bolide.arrow import DataLost, read_topic
from bolide.arrow.cluster import Connection
from bolide.arrow.offsets import QueueRange, split
from bolide.arrow.range_fetcher import ReadOptions
from bolide.arrow.topic_reader import read_range_blocking
from bolide.model.message import SysFlag
from tests.support.cluster_process import ClusterProcess, cluster_process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process(tmp_path_factory.mktemp("cluster")) as served:
        yield served


def rows(table: pa.Table) -> list[dict[str, object]]:
    return list(table.to_pylist(maps_as_pydicts="strict"))


def test_rows_are_exactly_what_was_sent(cluster: ClusterProcess) -> None:
    cluster.create_topic("exact", 1)
    large, dense = os.urandom(4 * 2**20), b"squeeze " * 10_000
    plain = [
        Message("exact", b"\xff\x00\xfe", tags="bytes", keys=["one", "two"]),
        Message("exact", b" ", properties={"color": "blü", "empty-ish": " "}),
        Message("exact", large),
        Message("exact", dense, tags="dense"),
        Message("exact", b"flagged", flag=7),
    ]
    batch = [Message("exact", b"part %d" % n, keys=[f"key-{n}"]) for n in range(3)]

    async def send() -> list[str]:
        async with (
            Producer("P", name_server=cluster.address, compress_over=2**30) as producer,
            Producer("Q", name_server=cluster.address, compress_over=4096) as compressing,
        ):
            senders = [compressing if message.body is dense else producer for message in plain]
            sends = zip(senders, plain, strict=True)
            ids = [(await sender.send(message)).message_id for sender, message in sends]
            await producer.send(batch)
            await producer.send(Message("exact", b"late", delay_level=1))
            return ids

    before = time.time()
    ids = asyncio.run(send())
    while read_topic("exact", name_server=cluster.address).ranges[0].end < 9:
        time.sleep(0.05)
    found = rows(read_topic("exact", name_server=cluster.address).to_table())

    bodies = [message.body for message in plain]
    assert [row["body"] for row in found] == [*bodies, b"part 0", b"part 1", b"part 2", b"late"]
    assert [row["queue_offset"] for row in found] == [*range(9)]
    assert [row["keys"] for row in found] == [
        "one two", *[None] * 4, "key-0", "key-1", "key-2", None,
    ]  # fmt: skip
    assert [row["tags"] for row in found] == ["bytes", None, None, "dense", *[None] * 5]
    assert [row["message_id"] for row in found[:5]] == ids
    assert found[1]["properties"].items() >= {"color": "blü", "empty-ish": " "}.items()  # type: ignore[attr-defined]
    assert {row["properties"]["UNIQ_KEY"] for row in found} == {row["message_id"] for row in found}  # type: ignore[index]
    assert [row["flag"] for row in found] == [0, 0, 0, 0, 7, 0, 0, 0, 0]
    assert not any(int(row["sys_flag"]) & SysFlag.COMPRESSED for row in found)  # type: ignore[call-overload]
    for row in found:
        born, stored = row["born_timestamp"].timestamp(), row["store_timestamp"].timestamp()  # type: ignore[attr-defined]
        assert before - 1 < born <= stored < time.time() + 1
        assert row["store_host"] == f"127.0.0.1:{cluster.brokers['broker-a'].port}"
        assert str(row["born_host"]).startswith("127.0.0.1:")
        assert (row["topic"], row["broker"], row["queue_id"]) == ("exact", "broker-a", 0)
    places = [row["physical_offset"] for row in found]
    assert places == sorted(set(places))  # type: ignore[type-var]


def test_pieces_of_a_queue_make_up_the_whole(cluster: ClusterProcess) -> None:
    cluster.create_topic("pieces", 1)
    cluster.send(Message("pieces", b"%d" % n, tags="ab"[n % 2]) for n in range(100))
    (whole,) = read_topic("pieces", name_server=cluster.address).ranges
    connection = Connection(name_server=cluster.address)
    for options, wanted in (
        (ReadOptions(pull_batch_size=7), range(100)),
        (ReadOptions(tags="b", pull_batch_size=7, include_properties=False), range(1, 100, 2)),
        (ReadOptions(sql="TAGS = 'b' OR KEYS IS NOT NULL", pull_batch_size=7), range(1, 100, 2)),
    ):
        found = [
            offset
            for part in split([whole], 9)
            for batch in read_range_blocking(connection, part, options)
            for offset in batch["queue_offset"].to_pylist()
        ]
        assert found == [*wanted]


def test_a_restart_of_the_broker_is_ridden_out(tmp_path: Path) -> None:
    with cluster_process(tmp_path) as served:
        served.create_topic("T", 1)
        bodies = [os.urandom(20_000) for _ in range(100)]  # more than is fetched ahead
        served.send(Message("T", body) for body in bodies)
        part = QueueRange(MessageQueue("T", "broker-a", 0), 0, 100)
        options = ReadOptions(pull_batch_size=3, batch_rows=3)
        batches = read_range_blocking(Connection(name_server=served.address), part, options)
        found = next(batches)["body"].to_pylist()
        served.kill_broker()
        served.start_broker()
        for batch in batches:
            found += batch["body"].to_pylist()
        assert found == bodies


def test_messages_deleted_before_they_are_read_are_a_loss(tmp_path: Path) -> None:
    with cluster_process(tmp_path, mappedFileSizeCommitLog=64 * 1024) as served:
        served.create_topic("T", 1)
        served.send(Message("T", os.urandom(8000)) for _ in range(30))
        reader = read_topic("T", name_server=served.address)
        served.stop_broker()
        files = sorted((tmp_path / "broker-a" / "store" / "commitlog").iterdir())
        assert len(files) > 2
        for file in files[:2]:
            file.unlink()
        served.start_broker()
        with pytest.raises(DataLost, match=r"topic 'T', broker 'broker-a', queue 0: offset 0 was"):
            reader.to_table()
        part = (QueueRange(*reader.ranges[0]),)
        options = ReadOptions(fail_on_data_loss=False)
        table = type(reader)(Connection(name_server=served.address), part, options).to_table()
        oldest = read_topic("T", name_server=served.address).ranges[0].start
        assert 10 < oldest < 20
        assert table["queue_offset"].to_pylist() == [*range(oldest, 30)]
