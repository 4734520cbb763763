"""A queue range is read completely and exactly, or the loss is reported."""

import asyncio
import logging
import pickle

import pytest

from bolide.arrow.errors import DataLost, OutOfPatience
from bolide.arrow.offsets import QueueRange
from bolide.arrow.range_fetcher import ReadOptions
from bolide.arrow.topic_reader import read_range
from bolide.errors import ConfigError
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import (
    ServerError,
    ServiceNotAvailable,
    SubscriptionMalformed,
    TopicNotFound,
)
from tests.support.aio import on_loop, until
from tests.unit.arrow.one_queue import QUEUE, QueueBroker, one_queue, record

NOT_FOUND = ResponseCode.PULL_NOT_FOUND
PASSED_OVER = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


@on_loop
async def test_a_part_is_read_from_its_start_up_to_its_end() -> None:
    async with one_queue(*range(10)) as it:
        table = await it.read(3, 8, pull_batch_size=2)
        assert table["queue_offset"].to_pylist() == [3, 4, 5, 6, 7]
        assert table["body"].to_pylist() == [b"body %d" % n for n in range(3, 8)]
        assert [(pull.queue_offset, pull.max_msg_nums) for pull in it.broker.pulls] == [
            (3, 2), (5, 2), (7, 1),
        ]  # fmt: skip
        assert {pull.consumer_group for pull in it.broker.pulls} == {"TOOLS_CONSUMER"}
        assert {pull.suspend_timeout_millis for pull in it.broker.pulls} == {0}


@on_loop
async def test_an_empty_part_is_not_asked_for() -> None:
    async with one_queue(0, 1) as it:
        assert await it.offsets(2, 2) == []
        assert not it.broker.pulls


@on_loop
async def test_batches_are_as_large_as_allowed() -> None:
    async with one_queue(*range(10)) as it:
        options = ReadOptions(batch_rows=4, pull_batch_size=3)
        part = QueueRange(QUEUE, 0, 10)
        batches = [each async for each in read_range(it.cluster, part, options)]
        assert [batch.num_rows for batch in batches] == [4, 4, 2]


@on_loop
async def test_what_the_filter_leaves_out_does_not_end_a_part() -> None:
    async with one_queue(*range(10)) as it:
        passed = it.broker.reply(PASSED_OVER, 4, "NO_MATCHED_MESSAGE")
        it.broker.answers += [passed, it.broker.reply(PASSED_OVER, 6, "NO_MATCHED_MESSAGE")]
        assert await it.offsets(0, 9, tags="A", pull_batch_size=2) == [6, 7, 8]
        assert it.broker.pulls[0].subscription == "A"


@on_loop
async def test_messages_past_the_end_are_left_out() -> None:
    async with one_queue(*range(10)) as it:
        body = b"".join(map(record, range(10)))
        it.broker.answers.append(it.broker.reply(ResponseCode.SUCCESS, 10, "FOUND", body))
        assert await it.offsets(0, 4, tags="A") == [0, 1, 2, 3]


@on_loop
async def test_tags_are_judged_by_their_text_too() -> None:
    async with one_queue() as it:
        it.broker.records = {0: record(0, "Aa"), 1: record(1, "BB"), 2: record(2, "Aa")}
        it.broker.end = 3
        assert await it.offsets(0, 3, tags="Aa") == [0, 2]
        assert await it.offsets(1, 2, tags="Aa") == []


@on_loop
async def test_an_expression_goes_to_the_broker_as_it_is() -> None:
    async with one_queue(0) as it:
        assert await it.offsets(0, 1, sql="price > 10") == [0]
        (pull,) = it.broker.pulls
        assert (pull.subscription, pull.expression_type) == ("price > 10", "SQL92")


@pytest.mark.parametrize(
    "refusal",
    [
        ServerError("The broker does not support consumer to filter message by SQL92"),
        SubscriptionMalformed("parse the consumer's subscription failed"),
        TopicNotFound("topic[T] not exist"),
    ],
)
@on_loop
async def test_what_waiting_does_not_cure_is_raised_at_once(refusal: Exception) -> None:
    async with one_queue(0) as it:
        it.broker.answers.append(refusal)
        with pytest.raises(type(refusal), match=str(refusal).replace("[", r"\[")):
            await it.read(0, 1, sql="a = 1", patience=60.0)


@on_loop
async def test_transient_refusals_are_retried_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with one_queue(*range(4)) as it:
        it.broker.answers += [ServiceNotAvailable("shutting down"), ServerError("null")]
        with caplog.at_level(logging.INFO, "bolide.arrow"):
            assert await it.offsets(0, 4) == [0, 1, 2, 3]
        failed, recovered = (entry.getMessage() for entry in caplog.records)
        assert failed == "queue T/broker-a/0: retrying for up to 0.3 s: shutting down"
        assert recovered.startswith("queue T/broker-a/0: recovered after ")


@on_loop
async def test_a_broker_may_come_back_at_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.arrow.range_fetcher._COALESCE_SIZE", 1)
    async with one_queue(*range(6)) as it:
        part = QueueRange(QUEUE, 0, 6)
        options = ReadOptions(pull_batch_size=1, batch_rows=1, pull_timeout=1.0)
        batches = read_range(it.cluster, part, options)
        first = await anext(batches)
        assert len(it.broker.pulls) < 6
        await it.stop()
        await it.serve()
        rest = [batch["queue_offset"].to_pylist() async for batch in batches]
        assert [first["queue_offset"].to_pylist(), *rest] == [[0], [1], [2], [3], [4], [5]]


@on_loop
async def test_patience_ends() -> None:
    async with one_queue(0) as it:
        await it.stop()
        with pytest.raises(OutOfPatience, match=r"^queue T/broker-a/0: no success for 0.3 s"):
            await it.read(0, 1)


@on_loop
async def test_a_position_that_others_reset_is_not_ours() -> None:
    async with one_queue(0, 1) as it:
        it.broker.answers.append(it.broker.reply(MOVED, 7, "OFFSET_RESET"))
        assert await it.offsets(0, 2) == [0, 1]


@on_loop
async def test_offsets_of_a_moved_queue_are_corrected() -> None:
    async with one_queue() as it:
        it.broker.end = 102
        body = record(0) + record(1)
        found = it.broker.reply(ResponseCode.SUCCESS, 102, "FOUND", body, offset_delta=100)
        it.broker.answers.append(found)
        assert await it.offsets(100, 102) == [100, 101]


# Loss


@on_loop
async def test_deleted_messages_are_a_loss() -> None:
    async with one_queue(*range(5, 10)) as it:
        with pytest.raises(DataLost) as lost:
            await it.read(2, 8)
        assert str(lost.value).startswith(
            "topic 'T', broker 'broker-a', queue 0: offset 2 was wanted, but the broker has only"
            " 5 up to 10"
        )
        copy = pickle.loads(pickle.dumps(lost.value))
        assert (copy.queue, copy.wanted, copy.oldest, copy.end) == (QUEUE, 2, 5, 10)


@on_loop
async def test_a_loss_that_is_allowed_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with one_queue(*range(5, 10)) as it:
        assert await it.offsets(2, 8, fail_on_data_loss=False) == [5, 6, 7]
        assert await it.offsets(1, 3, fail_on_data_loss=False) == []
    first, second = (entry.getMessage() for entry in caplog.records)
    assert first == (
        "queue T/broker-a/0: 3 messages are lost, offsets 2 up to 5; the broker has 5 up to 10"
    )
    assert "2 messages are lost, offsets 1 up to 3" in second


@on_loop
async def test_a_queue_that_ends_before_the_part_begins_was_made_anew() -> None:
    async with one_queue(0, 1) as it:
        with pytest.raises(DataLost, match=r"offset 7 was wanted.* only 0 up to 2"):
            await it.read(7, 9, patience=60.0)
        assert await it.offsets(7, 9, fail_on_data_loss=False, patience=60.0) == []


@on_loop
async def test_messages_that_should_be_there_are_waited_for() -> None:
    async with one_queue(0, 1) as it:
        reading = asyncio.create_task(it.offsets(0, 3, patience=30.0))
        await until(lambda: len(it.broker.pulls) > 2)
        it.broker.records[2] = record(2)
        it.broker.end = 3
        assert await reading == [0, 1, 2]


@on_loop
async def test_messages_that_never_come_back_are_a_loss() -> None:
    async with one_queue(0, 1) as it:
        with pytest.raises(DataLost, match="offset 2 was wanted"):
            await it.read(0, 3)
        assert await it.offsets(0, 3, fail_on_data_loss=False) == [0, 1]


@on_loop
async def test_messages_deleted_while_they_are_read_are_a_loss() -> None:
    async with one_queue(*range(10)) as it:
        removing = it.broker.reply(PASSED_OVER, 4, "MESSAGE_WAS_REMOVING")
        it.broker.answers.append(removing)
        with pytest.raises(DataLost, match="offset 0 was wanted"):
            await it.read(0, 10)
        it.broker.answers.append(removing)
        assert await it.offsets(0, 10, fail_on_data_loss=False) == [4, 5, 6, 7, 8, 9]


@on_loop
async def test_an_offset_that_the_broker_skips_is_not_skipped() -> None:
    async with one_queue(*range(3)) as it:
        it.broker.answers.append(it.broker.reply(NOT_FOUND, 1, "OFFSET_FOUND_NULL"))
        assert await it.offsets(0, 3) == [0, 1, 2]


@on_loop
async def test_a_gap_is_a_loss_once_the_queue_begins_behind_it() -> None:
    async with one_queue(*range(10)) as it:
        body = record(4) + record(5)
        it.broker.answers.append(it.broker.reply(ResponseCode.SUCCESS, 6, "FOUND", body))
        it.broker.oldest = 4
        with pytest.raises(DataLost, match=r"offset 0 was wanted.* only 4 up to 10"):
            await it.read(0, 10)


@on_loop
async def test_gaps_of_a_compacted_topic_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.arrow.range_fetcher._RECHECK_DELAY", 0.01)
    async with one_queue(0, 3, 7) as it:
        assert await it.offsets(0, 8, pull_batch_size=1) == [0, 3, 7]


# Slaves


@on_loop
async def test_a_slave_that_is_behind_leaves_the_word_to_its_master() -> None:
    async with one_queue(*range(4)) as it:
        slave = QueueBroker({0: record(0)})
        await it.stop()
        await it.serve(slave)
        found = it.broker.reply(
            ResponseCode.SUCCESS, 1, "FOUND", record(0), suggest_which_broker_id=1
        )
        it.broker.answers.append(found)
        slave.answers.append(slave.reply(PASSED_OVER, 1, "OFFSET_OVERFLOW_ONE"))
        assert await it.offsets(0, 4) == [0, 1, 2, 3]
        assert [pull.queue_offset for pull in slave.pulls] == [1]


# Options


def test_options_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ConfigError, match="tags and sql"):
        ReadOptions(tags="A", sql="a = 1")
    with pytest.raises(ConfigError, match="pull_batch_size=0"):
        ReadOptions(pull_batch_size=0)
    with pytest.raises(ConfigError, match="valueSchema: there is no type 'nonsense'"):
        ReadOptions(value_schema="a nonsense")


def test_options_travel() -> None:
    options = ReadOptions(tags="A || B", value_schema="a int", patience=3.0)
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.schema.names[-2:] == ["properties", "value"]
