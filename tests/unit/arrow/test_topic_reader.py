"""Topics as tables for pandas, DuckDB and consumers of Arrow streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from bolide.arrow import BadPosition, TopicReader, message_schema, read_topic
from bolide.arrow.cluster import Cluster, Connection
from bolide.arrow.offsets import QueueRange
from bolide.client.blocking import LoopThread
from bolide.client.errors import RouteNotFound
from bolide.client.producer.producer import Producer
from bolide.errors import ConfigError
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

T0, T1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


@asynccontextmanager
async def five_and_three(directory: Path) -> AsyncIterator[OwnCluster]:
    """A topic `T` with five messages in one queue and three in the other."""
    async with (
        own_cluster(directory) as served,
        Producer("P", name_server=served.address) as producer,
    ):
        await create_topic(producer, "T", 2)
        for queue, count in ((T0, 5), (T1, 3)):
            for number in range(count):
                body = b'{"n": %d}' % number
                tags = "even" if number % 2 == 0 else "odd"
                await producer.send(Message("T", body, tags=tags, keys=["k"]), queue=queue)
        yield served


async def read(served: OwnCluster, topic: Any = "T", **options: Any) -> TopicReader:
    def plan() -> TopicReader:
        return read_topic(topic, name_server=served.address, **options)

    return await asyncio.to_thread(plan)


async def bodies(served: OwnCluster, **options: Any) -> list[tuple[int, int]]:
    """Queue and offset of each row, sorted by queue."""
    reader = await read(served, **options)
    table = await asyncio.to_thread(reader.to_table)
    places = zip(table["queue_id"].to_pylist(), table["queue_offset"].to_pylist(), strict=True)
    return sorted(places, key=lambda place: place[0])


@on_loop
async def test_all_queues_are_read_each_in_its_order_up_to_now(tmp_path: Path) -> None:
    async with five_and_three(tmp_path) as served:
        reader = await read(served)
        assert reader.ranges == (QueueRange(T0, 0, 5), QueueRange(T1, 0, 3))
        async with Producer("P", name_server=served.address) as producer:
            await producer.send(Message("T", b"later"), queue=T0)
        for _ in range(2):
            batches = await asyncio.to_thread(lambda: [*reader])
            places = [
                (row["queue_id"], row["queue_offset"], row["body"])
                for batch in batches
                for row in batch.to_pylist()
            ]
            assert sorted(places, key=lambda place: place[0]) == [
                *((0, n, b'{"n": %d}' % n) for n in range(5)),
                *((1, n, b'{"n": %d}' % n) for n in range(3)),
            ]
            assert {batch.schema for batch in batches} == {message_schema()}


@on_loop
async def test_positions_may_be_offsets_groups_and_times(tmp_path: Path) -> None:
    async with five_and_three(tmp_path) as served:
        async with Cluster(Connection(name_server=served.address)) as cluster:
            await cluster.commit("readers", {T0: 4})
        plain = {"T": {"broker-a": {"0": 3, "1": -1}}}
        assert await bodies(served, start=plain) == [(0, 3), (0, 4)]
        assert await bodies(served, end={T0: 1, T1: 2}) == [(0, 0), (1, 0), (1, 1)]
        assert await bodies(served, start="group:readers") == [(0, 4), (1, 0), (1, 1), (1, 2)]
        assert await bodies(served, start="-0s") == []
        assert len(await bodies(served, start=timedelta(hours=1), end="-0s")) == 8
        assert await bodies(served, end=timedelta(hours=1)) == []
        assert await bodies(served, tags="odd", start=plain) == [(0, 3)]


@pytest.mark.parametrize("option", ["start", "end"])
@on_loop
async def test_an_offset_past_the_end_of_a_queue_is_refused_at_once(
    tmp_path: Path, option: str
) -> None:
    async with five_and_three(tmp_path) as served:
        with pytest.raises(BadPosition, match=f"^{option}: queue T/broker-a/1 ends at 3, 4 was"):
            await read(served, **{option: {T0: 5, T1: 4}})


@on_loop
async def test_several_topics_are_one_table(tmp_path: Path) -> None:
    async with five_and_three(tmp_path) as served:
        async with Producer("P", name_server=served.address) as producer:
            await create_topic(producer, "U", 1)
            await producer.send(Message("U", b"one"))
        reader = await read(served, ["T", "U"])
        table = await asyncio.to_thread(reader.to_table)
        assert sorted(table["topic"].to_pylist()) == [*"TTTTTTTTU"]


@on_loop
async def test_a_topic_without_messages_is_a_table_without_rows(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as served:
        async with Producer("P", name_server=served.address) as producer:
            await create_topic(producer, "T", 2)
        reader = await read(served, value_schema="n int", include_properties=False)
        table = await asyncio.to_thread(reader.to_table)
        assert table.num_rows == 0
        assert table.schema.names[-2:] == ["flag", "value"]


@on_loop
async def test_pandas_duckdb_and_arrow_take_it(tmp_path: Path) -> None:
    async with five_and_three(tmp_path) as served:
        reader = await read(served, value_schema="n bigint")

        def look() -> None:
            frame = reader.to_pandas()
            assert frame["tags"].value_counts().to_dict() == {"even": 5, "odd": 3}
            with duckdb.connect() as connection:
                relation = reader.to_duckdb(connection, 'my "orders"')
                assert relation.count("*").fetchall() == [(8,)]
                found = connection.execute(
                    "select queue_id, sum(value.n), max(keys)"
                    ' from "my ""orders""" group by 1 order by 1'
                ).fetchall()
                assert found == [(0, 10, "k"), (1, 3, "k")]
                assert connection.execute("select count(*) from reader").fetchone() == (8,)
            assert pa.table(reader).num_rows == 8

        await asyncio.to_thread(look)


@on_loop
async def test_reading_may_stop_at_any_time(tmp_path: Path) -> None:
    async with five_and_three(tmp_path) as served:
        reader = await read(served, queues_at_once=1)
        batches = iter(reader)
        first = await asyncio.to_thread(next, batches)
        assert first.num_rows == 5
        assert fetching()
        batches.close()  # type: ignore[attr-defined]
        await until(lambda: not fetching())


def fetching() -> int:
    tasks = asyncio.all_tasks(LoopThread.get()._loop)
    return sum(task.get_name() == "bolide-fetch" for task in tasks)


@on_loop
async def test_what_cannot_be_read_is_said_before_reading(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as served:
        with pytest.raises(RouteNotFound, match="'nowhere'"):
            await read(served, "nowhere")
        with pytest.raises(BadPosition, match=r"^start='soon'"):
            await read(served, start="soon")
        with pytest.raises(ConfigError, match="tags and sql"):
            await read(served, tags="A", sql="a = 1")
