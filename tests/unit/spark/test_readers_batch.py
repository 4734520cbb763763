"""The batch reader as Spark uses it, with real brokers and without Spark."""

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from bolide import Message
from bolide.arrow.errors import BadPosition
from bolide.client.errors import RouteNotFound
from bolide.errors import ConfigError
from bolide.spark.options import SourceOptions
from bolide.spark.readers import BatchReader
from bolide.spark.source import RocketMQSource
from tests.support.cluster_process import ClusterProcess, cluster_process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process(tmp_path_factory.mktemp("cluster")) as served:
        yield served


def reader(cluster: ClusterProcess, **given: object) -> BatchReader:
    texts = {key: str(value) for key, value in given.items()}
    return BatchReader(SourceOptions.of({"nameServer": cluster.address} | texts))


def rows(plan: BatchReader) -> list[tuple[int, int, bytes]]:
    """Read as tasks do: each with a pickled copy of the reader and of its partition."""
    found: list[tuple[int, int, bytes]] = []
    for partition in plan.partitions():
        copy, part = pickle.loads(pickle.dumps((plan, partition)))
        for batch in copy.read(part):
            columns = (batch.column(name) for name in ("queue_id", "queue_offset", "body"))
            found += zip(*(column.to_pylist() for column in columns), strict=True)
    return found


def send(cluster: ClusterProcess, topic: str, count: int, queues: int = 2) -> list[bytes]:
    cluster.create_topic(topic, queues)
    bodies = [b"%s %d" % (topic.encode(), number) for number in range(count)]
    cluster.send(Message(topic, body, tags="abc"[n % 3]) for n, body in enumerate(bodies))
    return bodies


def test_every_message_is_read_once_in_the_order_of_its_queue(cluster: ClusterProcess) -> None:
    bodies = send(cluster, "batch-all", 9)

    found = rows(reader(cluster, topic="batch-all"))

    assert sorted(body for _, _, body in found) == bodies
    assert found == sorted(found)


def test_long_queues_are_split_and_nothing_is_lost_between(cluster: ClusterProcess) -> None:
    bodies = send(cluster, "batch-split", 12)
    whole = reader(cluster, topic="batch-split")
    split = reader(cluster, topic="batch-split", minPartitions=6)
    small = reader(cluster, topic="batch-split", maxRecordsPerPartition=1)

    assert [len(plan.partitions()) for plan in (whole, split, small)] == [2, 6, 12]
    assert sorted(body for _, _, body in rows(split)) == sorted(bodies)
    assert rows(small) == rows(whole)


def test_a_part_of_the_queues_is_read_by_exact_offsets(cluster: ClusterProcess) -> None:
    send(cluster, "batch-exact", 8)
    start = '{"batch-exact":{"broker-a":{"0":1,"1":-2}}}'
    end = '{"batch-exact":{"broker-a":{"0":3,"1":-1}}}'
    plan = reader(cluster, topic="batch-exact", startingOffsets=start, endingOffsets=end)

    assert [row[:2] for row in rows(plan)] == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_tags_are_filtered_by_the_broker(cluster: ClusterProcess) -> None:
    send(cluster, "batch-tags", 9)

    assert len(rows(reader(cluster, topic="batch-tags", tags="a || c"))) == 6


def test_several_topics_and_a_pattern(cluster: ClusterProcess) -> None:
    first, second = send(cluster, "batch-many-1", 3), send(cluster, "batch-many-2", 4)

    for wanted in ({"topic": "batch-many-1,batch-many-2"}, {"topicPattern": r"batch-many-\d"}):
        assert sorted(row[2] for row in rows(reader(cluster, **wanted))) == first + second


def test_an_empty_topic_has_no_partitions_and_what_spark_makes_of_that_no_rows(
    cluster: ClusterProcess,
) -> None:
    cluster.create_topic("batch-empty")
    plan = reader(cluster, topic="batch-empty")

    assert plan.partitions() == []
    assert list(plan.read(InputPartition(None))) == []


def test_a_topic_that_nobody_has_is_an_error_at_once(cluster: ClusterProcess) -> None:
    with pytest.raises(RouteNotFound, match="batch-missing"):
        reader(cluster, topic="batch-missing").partitions()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"t":{"broker-a":{"0":-1}}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"t":{"broker-a":{"0":-2}}}'),
    ],
)
def test_a_batch_that_could_only_be_empty_is_refused(
    cluster: ClusterProcess, option: str, value: str
) -> None:
    with pytest.raises(BadPosition, match=f"{option}: a batch cannot"):
        reader(cluster, topic="t", **{option: value})


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_past_the_end_of_a_queue_is_refused(cluster: ClusterProcess, option: str) -> None:
    cluster.create_topic("batch-past", 1)
    plan = reader(cluster, topic="batch-past", **{option: '{"batch-past":{"broker-a":{"0":7}}}'})

    with pytest.raises(BadPosition, match=f"{option}: queue batch-past/broker-a/0 ends at 0, 7"):
        plan.partitions()


# What Spark sees


def test_no_filters_are_pushed_for_spark_would_return_wrong_rows() -> None:
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


def source(**given: str) -> RocketMQSource:
    return RocketMQSource({"nameServer": "127.0.0.1:9", "topic": "t"} | given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"includeProperties": "false"},
        {"valueSchema": "id bigint, s struct<a:int,xs:array<string>>, m map<string,double>"},
        {"valueSchema": "at timestamp, d decimal(10,2), on date, ok boolean, raw binary"},
    ],
)
def test_the_columns_are_those_that_spark_expects_to_the_letter(given: dict[str, str]) -> None:
    schema = source(**given).schema()
    batches: pa.Schema = source(**given)._source_options().reading().schema

    assert to_arrow_schema(schema, timezone="UTC").equals(batches)
    assert schema == from_arrow_schema(batches)


def test_columns_of_the_users_own_are_refused() -> None:
    schema = source().schema()
    for build in (source().reader, source().streamReader):
        build(schema)
        with pytest.raises(ConfigError, match="valueSchema"):
            build(from_arrow_schema(pa.schema([("body", pa.binary())])))


def test_options_are_judged_when_the_table_is_loaded_and_not_before() -> None:
    failure = source(topics="t")  # as Spark makes it for a sink too

    with pytest.raises(ConfigError, match="unknown option topics; did you mean topic"):
        failure.schema()
