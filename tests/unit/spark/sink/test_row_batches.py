import re
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest

from bolide.client.producer.selectors import by_hash, dedup_queue
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.spark.sink.row_batches import MAX_BATCH_BYTES, batch_bounds
from bolide.spark.sink.rows import RowFailed
from tests.unit.spark.sink.packed import batcher, message, messages, options, pack, queues_of

MAP = pa.map_(pa.string(), pa.string())
TO_T = options(topic="T")
PLAIN = options(topic="T", markRows="false")
SOURCE = {
    "topic": ["S", "S", "S"],
    "broker": ["b", "b", "b"],
    "queue_id": [0, 0, 1],
    "queue_offset": [5, 6, 5],
}


def own(sent: Message) -> dict[str, str]:
    """Properties without the id."""
    found = dict(sent.properties)
    assert len(found.pop("UNIQ_KEY")) == 32
    return found


def failure(columns: dict[str, object], **given: str) -> RowFailed:
    with pytest.raises(RowFailed) as raised:
        pack(options(**{"topic": "T", **given}), **columns)
    return raised.value


def test_a_row_becomes_the_message_that_its_columns_say() -> None:
    sent = message(
        PLAIN,
        body=[b"\xff\x00"],
        keys=["k1 k2"],
        tags=["t"],
        flag=[-2],
        sharding_key=["s"],
        properties=pa.array([[("own", "ä"), ("other", "2")]], MAP),
    )
    assert (sent.topic, sent.body, sent.flag) == ("T", b"\xff\x00", -2)
    assert own(sent) == {
        "own": "ä",
        "other": "2",
        "KEYS": "k1 k2",
        "TAGS": "t",
        "__SHARDINGKEY": "s",
    }


def test_nulls_and_empty_texts_are_left_out() -> None:
    row_batches = pack(
        PLAIN,
        body=["a", "b"],
        keys=[None, ""],
        tags=pa.array([None, ""]),
        properties=pa.array([None, []], MAP),
        delay=pa.array([None, 0]),
        flag=pa.array([None, None], pa.int32()),
    )
    assert [sent.body for sent in messages(row_batches)] == [b"a", b"b"]
    assert [own(sent) for sent in messages(row_batches)] == [{}, {}]


def test_keys_may_be_a_list() -> None:
    row_batches = pack(PLAIN, body=[b"a", b"b", b"c"], keys=pa.array([["x", "y"], [], None]))
    assert [sent.keys for sent in messages(row_batches)] == [("x", "y"), (), ()]


def test_every_message_has_an_id_of_its_own() -> None:
    sent = messages(pack(PLAIN, body=[b"x"] * 5000))
    assert len({each.unique_id for each in sent}) == 5000


def test_rows_are_named_by_query_batch_partition_and_number() -> None:
    batch = pa.record_batch({"body": [b"a", b"b"]})
    task = batcher(TO_T, batch)
    sent = messages([*task.split(batch, queues_of), *task.split(batch, queues_of)])
    assert [each.properties["SPARK_ROW"] for each in sent] == [f"query/7/3/{n}" for n in range(4)]
    assert task.rows == 4


def test_properties_of_the_message_read_are_not_sent_on() -> None:
    read = [
        ("own", "1"), ("UNIQ_KEY", "old"), ("WAIT", "false"), ("DELAY", "3"), ("MIN_OFFSET", "0"),
        ("REAL_TOPIC", "X"), ("RECONSUME_TIME", "2"), ("INNER_NUM", "5"), ("DEDUP_KEY", "d"),
        ("SPARK_ROW", "old"), ("TRAN_MSG", "true"), ("__RMQ.TRANSIENT.x", "1"), ("KEYS", "k"),
        ("TAGS", "t"), ("__SHARDINGKEY", "s"),
    ]  # fmt: skip
    sent = message(PLAIN, body=[b"x"], properties=pa.array([read], MAP))
    assert own(sent) == {"own": "1", "KEYS": "k", "TAGS": "t", "__SHARDINGKEY": "s"}


def test_a_column_wins_over_the_property_of_its_kind() -> None:
    read = pa.array([[("KEYS", "old"), ("TAGS", "old"), ("own", "1")]], MAP)
    sent = message(
        PLAIN, body=[b"x"], properties=read, keys=["new"], tags=pa.array([None], pa.string())
    )
    assert own(sent) == {"own": "1", "KEYS": "new"}


# Delays


def test_milliseconds_of_a_level_become_that_level() -> None:
    row_batches = pack(PLAIN, body=[b"a", b"b", b"c"], delay=[30_000, 0, 7_200_000])
    assert [sent.delay_level for sent in messages(row_batches)] == [4, 0, 18]
    assert [(row_batch.rows, row_batch.is_batchable) for row_batch in row_batches] == [
        ([0], False),
        ([1], True),
        ([2], False),
    ]


def test_levels_may_be_the_brokers_own() -> None:
    sent = message(options(topic="T", delayLevels="2s 4s"), body=[b"x"], delay=[4000])
    assert sent.delay_level == 2


def test_other_milliseconds_need_timers() -> None:
    reason = failure({"body": [b"x"], "delay": [1500]}).reason
    assert reason.startswith("column delay: its milliseconds are those of no delay level")
    sent = message(options(topic="T", timers="true", markRows="false"), body=[b"x"], delay=[1500])
    assert own(sent) == {"TIMER_DELAY_MS": "1500"}


def test_a_level_is_sent_as_it_is() -> None:
    assert message(TO_T, body=[b"x"], delay_level=[2]).delay_level == 2


# Failing rows


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [b"a", None]}, "column body: it is null"),
        ({"body": [b"a", b""]}, "column body: it is empty"),
        ({"body": [b"a", b"x" * 11]}, r"column body: it is over 10 bytes \(maxMessageSize\)"),
        ({"body": [b"a", b"b"], "tags": ["t", "t||u"]}, "column tags: a message has one tag"),
        ({"body": [b"a", b"b"], "tags": ["t", "\x01"]}, "column tags: it holds a separator"),
        ({"body": [b"a", b"b"], "keys": ["k", "\x02"]}, "column keys: it holds a separator"),
        (
            {"body": [b"a", b"b"], "keys": pa.array([["k"], ["l", "m n"]])},
            "column keys: a key is not empty",
        ),
        (
            {"body": [b"a", b"b"], "properties": pa.array([[("a", "b")], [("c", "")]], MAP)},
            "column properties: a property has no value \\('c'\\)",
        ),
        (
            {"body": [b"a", b"b"], "properties": pa.array([None, [("c", None)]], MAP)},
            "column properties: a property has no value \\('c'\\)",
        ),
        (
            {"body": [b"a", b"b"], "properties": pa.array([[], [("c\x01", "d")]], MAP)},
            "column properties: the name of a property holds 0x01",
        ),
        (
            {"body": [b"a", b"b"], "properties": pa.array([[], [("c", "x" * 40_000)]], MAP)},
            "its properties are over 32767 bytes",
        ),
        ({"body": [b"a", b"b"], "flag": [1, 2**31]}, "column flag: it is no number of 32 bits"),
        ({"body": [b"a", b"b"], "delay": [0, -1]}, "column delay: it is under 0"),
        ({"body": [b"a", b"b"], "delay_level": [0, -1]}, "column delay_level: -1 is not a level"),
        (
            {"body": [b"a", b"b"], "delay": [1000, 1000], "delay_level": [0, 1]},
            "it has both a delay and a delay_level",
        ),
        (
            {"body": [b"a", b"b"], "queue_id": [0, 9], "broker": ["broker-a", "broker-a"]},
            "there is no queue 9 of broker 'broker-a' to send to, only broker-a/0, broker-a/1",
        ),
    ],
)
def test_a_failing_row_says_which_and_why(columns: dict[str, object], reason: str) -> None:
    failed = failure(columns, maxMessageSize="10")
    assert (failed.partition, failed.row, failed.topic) == (3, 1, "T")
    assert re.search(reason, failed.reason)


def test_a_failing_row_tells_its_keys() -> None:
    failed = failure({"body": [b"a", b""], "keys": ["k0", "k1"]})
    assert str(failed) == ("row 1 of partition 3, topic 'T', keys 'k1': column body: it is empty")


# Topics and queues


def test_rows_go_where_their_topic_says() -> None:
    row_batches = pack(options(), body=[b"a", b"b", b"c"], topic=["X", "Y", "X"])
    assert [(row_batch.topic, row_batch.queue, row_batch.rows) for row_batch in row_batches] == [
        ("X", None, [0, 2]),
        ("Y", None, [1]),
    ]


def test_the_option_beats_the_column() -> None:
    assert message(TO_T, body=[b"a"], topic=["X"]).topic == "T"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (None, "column topic: it is null or empty"),
        ("no name", "holds other characters"),
        ("SCHEDULE_TOPIC_XXXX", "reserved for the broker"),
    ],
)
def test_a_topic_that_is_none_fails_its_row(topic: str | None, reason: str) -> None:
    with pytest.raises(RowFailed, match=f"row 1 of partition 3.*{reason}"):
        pack(options(), body=[b"a", b"b"], topic=["X", topic])


def test_a_named_queue_gets_its_rows_in_order() -> None:
    columns = {"queue_id": [1, 0, 1, None], "broker": ["broker-b", "broker-a", "broker-b", None]}
    row_batches = pack(TO_T, body=[b"a", b"b", b"c", b"d"], **columns)
    assert [(row_batch.queue, row_batch.rows) for row_batch in row_batches] == [
        (None, [3]),
        (MessageQueue("T", "broker-a", 0), [1]),
        (MessageQueue("T", "broker-b", 1), [0, 2]),
    ]


def test_a_queue_that_several_brokers_have_needs_a_broker() -> None:
    reason = failure({"body": [b"a"], "queue_id": [1]}).reason
    assert reason == (
        "column queue_id: brokers broker-a, broker-b all have a queue 1: add a column broker"
    )


def test_a_sharding_key_goes_where_a_producer_would_send_it() -> None:
    keys = [f"user-{number}" for number in range(20)]
    row_batches = pack(TO_T, body=[b"x"] * 20, sharding_key=keys)
    chosen = {number: row_batch.queue for row_batch in row_batches for number in row_batch.rows}
    queues = queues_of("T")
    some = Message("T", b"x")
    assert chosen == {number: by_hash(queues, some, key) for number, key in enumerate(keys)}


def test_rows_of_one_source_queue_stay_together_in_order() -> None:
    row_batches = pack(options(topic="T", keepOrder="true"), body=[b"a", b"b", b"c"], **SOURCE)
    assert sorted(list(row_batch.rows) for row_batch in row_batches) == [[0, 1], [2]]
    queues = {row_batch.queue for row_batch in row_batches}
    start = crc32(b"S/b")
    assert queues == {queues_of("T")[(start + number) % 4] for number in (0, 1)}


# Deduplication keys


def test_rows_are_keyed_by_where_they_came_from() -> None:
    row_batches = pack(options(topic="T", dedup="true"), body=[b"a", b"b", b"c"], **SOURCE)
    keys = [sent.properties["DEDUP_KEY"] for sent in messages(row_batches)]
    assert keys == ["src:S/b/0@5", "src:S/b/0@6", "src:S/b/1@5"]
    for row_batch in row_batches:
        for sent in messages([row_batch]):
            assert dedup_queue(sent.properties["DEDUP_KEY"], queues_of("T")) == row_batch.queue


def test_several_rows_of_one_source_row_are_numbered() -> None:
    source = {
        "topic": ["S"] * 3,
        "broker": ["b"] * 3,
        "queue_id": [0] * 3,
        "queue_offset": [5, 6, 6],
    }
    batch = pa.record_batch({"body": [b"a", b"b", b"c"], **source})
    task = batcher(options(topic="T", dedup="true"), batch)
    sent = messages([*task.split(batch, queues_of), *task.split(batch[2:], queues_of)])
    keys = [each.properties["DEDUP_KEY"] for each in sent]
    assert keys == ["src:S/b/0@5", "src:S/b/0@6", "src:S/b/0@6#1", "src:S/b/0@6#2"]


def test_a_key_of_the_users_own_comes_first() -> None:
    columns = {"body": [b"a", b"b", b"c"], "dedup_key": ["x", None, ""], **SOURCE}
    by_source = messages(pack(options(topic="T", dedup="true"), **columns))
    assert [each.properties["DEDUP_KEY"] for each in by_source] == [
        "x", "src:S/b/0@6", "src:S/b/1@5",
    ]  # fmt: skip
    unbatchable = messages(pack(TO_T, **columns))
    assert [each.properties.get("DEDUP_KEY") for each in unbatchable] == ["x", None, None]


def test_rows_may_be_keyed_by_their_number() -> None:
    sent = messages(pack(options(topic="T", dedup="row", markRows="false"), body=[b"a", b"b"]))
    assert [each.properties["DEDUP_KEY"] for each in sent] == ["query/7/3/0", "query/7/3/1"]


def test_a_row_without_any_key_fails() -> None:
    failed = failure({"body": [b"a", b"b"], "dedup_key": ["x", None]}, dedup="true")
    assert (failed.row, failed.reason) == (
        1,
        "it has neither a dedup_key nor a known origin",
    )


@pytest.mark.parametrize("key", ["x" * 256, "a\nb"])
def test_a_key_that_no_broker_takes_fails_its_row(key: str) -> None:
    assert "its key for de-duplication" in failure({"body": [b"a"], "dedup_key": [key]}).reason


# Batches


def test_a_request_has_so_many_rows_and_a_mib_at_most() -> None:
    row_batches = pack(options(topic="T", batchSize="1000"), body=[b"x"] * 2500)
    assert [len(row_batch.rows) for row_batch in row_batches] == [1000, 1000, 500]
    row_batches = pack(TO_T, body=[b"x" * 300_000] * 7)
    assert [len(row_batch.rows) for row_batch in row_batches] == [3, 3, 1]
    assert all(
        len(row_batch.body) <= MAX_BATCH_BYTES and row_batch.is_batchable
        for row_batch in row_batches
    )


def test_a_long_row_goes_by_itself_in_its_place() -> None:
    row_batches = pack(TO_T, body=[b"a", b"x" * 2**21, b"b"])
    assert [(row_batch.rows, row_batch.is_batchable) for row_batch in row_batches] == [
        ([0], True),
        ([1], False),
        ([2], True),
    ]


def test_rows_are_cut_where_those_begin_that_go_alone() -> None:
    unbatchable = np.array([False, True, True, False, False])
    found = list(batch_bounds(np.array([1, 1, 1, MAX_BATCH_BYTES, 1]), unbatchable, 10))
    assert found == [(0, 1), (1, 3), (3, 4), (4, 5)]


def test_a_part_of_a_batch_is_packed_as_a_whole_one() -> None:
    columns = {
        "body": [b"skipped", b"a", b"b"],
        "keys": pa.array([["x", ""], ["k"], ["l"]]),
        "properties": pa.array([[("bad", "")], [("p", "1")], []], MAP),
    }
    batch = pa.record_batch(columns)
    sent = messages(list(batcher(PLAIN, batch).split(batch[1:], queues_of)))
    assert [each.body for each in sent] == [b"a", b"b"]
    assert [own(each) for each in sent] == [{"p": "1", "KEYS": "k"}, {"KEYS": "l"}]


def test_large_arrow_types_are_taken_too() -> None:
    sent = message(
        PLAIN,
        body=pa.array([b"a"], pa.large_binary()),
        keys=pa.array(["k"], pa.large_string()),
        tags=pa.array(["t"], pa.large_string()),
    )
    assert (sent.body, sent.keys, sent.tags) == (b"a", ("k",), "t")
