"""Reset of committed offsets with and without running consumers."""

import pytest

from bolide.admin.errors import OffsetOutOfRange, QueueUnknown
from bolide.admin.offset_moves import OffsetMove, Rollback
from bolide.admin.offsets import AT_END
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import ResetOffsets
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import OffsetReply
from bolide.protocol.refusals import ConsumerNotOnline, GroupNotFound, QueryNotFound
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import Cast, cast

FIRST, SECOND = (MessageQueue("Orders", "broker-a", number) for number in range(2))
AT_TIME = {"0": 2, "1": 8}
"""Offset of the time that the tests reset to."""


def consumed(offsets: dict[MessageQueue, tuple[int, int]]) -> ConsumeStats:
    """Broker and consumer offsets by queue."""
    table = {
        queue: QueueProgress(broker_offset=end, consumer_offset=at)
        for queue, (end, at) in offsets.items()
    }
    return ConsumeStats(offset_table=table, consume_tps=0.5)


def searched(fields: dict[str, str]) -> Reply:
    return Reply(header=OffsetReply(AT_TIME[fields["queueId"]]))


def script(stage: Cast, stats: ConsumeStats) -> None:
    stage.first.answers(RequestCode.GET_CONSUME_STATS, stats)
    stage.first.answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, searched)
    stage.first.answers(RequestCode.UPDATE_CONSUMER_OFFSET)


def committed(stage: Cast) -> list[tuple[int, int]]:
    fields = stage.first.fields_of(RequestCode.UPDATE_CONSUMER_OFFSET)
    return [(int(each["queueId"]), int(each["commitOffset"])) for each in fields]


@on_loop
async def test_a_stopped_group_is_moved_by_committing() -> None:
    other = MessageQueue("Bills", "broker-a", 0)
    async with cast() as stage:
        script(stage, consumed({FIRST: (10, 5), SECOND: (10, 5), other: (10, 5)}))

        moved = await stage.admin.offsets.reset_stopped("billing", "Orders", 1_000)

        assert moved == [Rollback(FIRST, 10, 5, 2, 2), Rollback(SECOND, 10, 5, 8, 8)]
        assert committed(stage) == [(0, 2), (1, 8)]


@on_loop
async def test_without_force_a_group_is_moved_only_backwards() -> None:
    async with cast() as stage:
        script(stage, consumed({FIRST: (10, 5), SECOND: (10, 5)}))

        moved = await stage.admin.offsets.reset_stopped("billing", "Orders", 1_000, force=False)

        assert [each.reset_offset for each in moved] == [2, 5]
        assert committed(stage) == [(0, 2)]


@on_loop
async def test_a_group_that_never_consumed_the_topic_is_taken_to_be_at_its_beginning() -> None:
    async with cast() as stage:
        script(stage, consumed({}))
        ends = {FIRST: TopicOffset(min_offset=1, max_offset=9)}
        stage.first.answers(RequestCode.GET_TOPIC_STATS_INFO, TopicStats(offset_table=ends))

        moved = await stage.admin.offsets.reset_stopped("billing", "Orders", 1_000)

        assert moved == [Rollback(FIRST, 9, 1, 2, 2)]


@on_loop
async def test_the_end_is_where_the_broker_is() -> None:
    async with cast() as stage:
        script(stage, consumed({FIRST: (10, 5)}))

        await stage.admin.offsets.reset_stopped("billing", "Orders", AT_END)

        assert committed(stage) == [(0, 10)]
        assert not stage.first.fields_of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)


@on_loop
async def test_every_broker_of_the_topic_is_asked_to_reset() -> None:
    async with cast("broker-a", "broker-b") as stage:
        for name, broker in stage.brokers.items():
            moved = ResetOffsets(offset_table={MessageQueue("Orders", name, 0): 3})
            broker.answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, moved)

        found = await stage.admin.offsets.reset_by_time("billing", "Orders", 1_000, force=False)

        assert [queue.broker_name for queue in found] == ["broker-a", "broker-b"]
        (fields,) = stage.first.fields_of(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
        assert fields == {
            "group": "billing",
            "topic": "Orders",
            "timestamp": "1000",
            "isForce": "false",
            "offset": "-1",
            "queueId": "-1",
        }


@on_loop
async def test_a_reset_without_consumers_tells_so() -> None:
    def offline(_fields: dict[str, str]) -> Reply:
        raise ConsumerNotOnline("Consumer not online")

    async with cast() as stage:
        stage.first.answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, offline)

        with pytest.raises(ConsumerNotOnline):
            await stage.admin.offsets.reset_by_time("billing", "Orders", 1_000)


@on_loop
async def test_progress_of_all_brokers_is_one_table() -> None:
    async with cast("broker-a", "broker-b") as stage:
        for name, broker in stage.brokers.items():
            stats = consumed({MessageQueue("Orders", name, 0): (4, 1)})
            broker.answers(RequestCode.GET_CONSUME_STATS, stats)

        stats = await stage.admin.offsets.progress("billing")

        assert len(stats.offset_table) == 2
        assert stats.consume_tps == 1.0


@on_loop
async def test_a_group_without_retry_topic_is_looked_for_where_the_topic_is() -> None:
    async with cast(unknown_topics=("%RETRY%billing",)) as stage:
        stage.first.answers(RequestCode.GET_CONSUME_STATS, consumed({FIRST: (4, 1)}))

        stats = await stage.admin.offsets.progress("billing", "Orders")

        assert list(stats.offset_table) == [FIRST]


@on_loop
async def test_a_queue_never_consumed_has_no_position() -> None:
    def none(_fields: dict[str, str]) -> Reply:
        raise QueryNotFound("Not found")

    async with cast() as stage:
        stage.first.answers(RequestCode.QUERY_CONSUMER_OFFSET, none)
        assert await stage.admin.offsets.find_committed("billing", FIRST) is None

        stage.first.answers(RequestCode.QUERY_CONSUMER_OFFSET, OffsetReply(6))
        assert await stage.admin.offsets.find_committed("billing", FIRST) == 6


RESETS = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


@pytest.mark.parametrize("itself", ["true", "false"])
@on_loop
async def test_one_queue_is_moved_once_and_only_to_where_it_reaches(itself: str) -> None:
    async with cast() as stage:
        broker, offsets = stage.first, stage.admin.offsets
        broker.answers(RequestCode.GET_BROKER_CONFIG, f"useServerSideResetOffset={itself}".encode())
        broker.answers(RequestCode.UPDATE_CONSUMER_OFFSET)
        broker.answers(RESETS, ResetOffsets())
        ends = {FIRST: TopicOffset(min_offset=1, max_offset=9)}
        broker.answers(RequestCode.GET_TOPIC_STATS_INFO, TopicStats(offset_table=ends))

        with pytest.raises(OffsetOutOfRange, match="offset 999 is not in the queue"):
            await offsets.reset_queue(broker.address, "billing", FIRST, 999)
        with pytest.raises(QueueUnknown, match="no queue 1 of topic 'Orders'; it has 0"):
            await offsets.reset_queue(broker.address, "billing", SECOND, 5)
        with pytest.raises(OffsetOutOfRange):
            await offsets.plan_queue_reset(broker.address, "billing", FIRST, 10)
        assert not committed(stage)
        assert not broker.fields_of(RESETS)

        await offsets.reset_queue(broker.address, "billing", FIRST, 9)
        moved = [(int(each["queueId"]), int(each["offset"])) for each in broker.fields_of(RESETS)]
        # A broker that leaves resets to consumers would move all queues of the topic.
        wanted: tuple[list[object], ...] = ([(0, 9)], [])
        assert (moved, committed(stage)) == (wanted if itself == "true" else wanted[::-1])


@on_loop
async def test_a_plan_for_an_unknown_group_is_refused_where_the_move_would_be() -> None:
    async with cast() as stage:
        script(stage, consumed({FIRST: (10, 5)}))
        ends = {FIRST: TopicOffset(min_offset=1, max_offset=10)}
        stage.first.answers(RequestCode.GET_TOPIC_STATS_INFO, TopicStats(offset_table=ends))
        offsets = stage.admin.offsets
        assert len(await offsets.plan_reset("nobody", "Orders", AT_END)) == 1  # RocketMQ 4.9

        stage.first.answers(RequestCode.GET_BROKER_CONFIG, b"useServerSideResetOffset=true")
        stage.first.answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupConfigTable())

        with pytest.raises(GroupNotFound, match="has no group 'nobody'"):
            await offsets.plan_reset("nobody", "Orders", AT_END)
        with pytest.raises(GroupNotFound):
            await offsets.plan_queue_reset(stage.first.address, "nobody", FIRST, 2)
        with pytest.raises(GroupNotFound):
            await offsets.plan_copy("billing", "nobody", "Orders")


@pytest.mark.parametrize(
    ("before", "after", "redelivered", "skipped"),
    [
        (8, 5, 3, 0),
        (5, 8, 0, 3),
        (8, 0, 5, 0),  # the first three messages are deleted
        (0, 5, 0, 2),
        (5, 99, 0, 5),  # the queue ends at 10
        (99, 5, 5, 0),
        (None, 5, 0, None),  # it begins where its first member says
        (None, 3, 0, 0),
    ],
)
def test_a_move_counts_stored_messages_only(
    before: int | None, after: int, redelivered: int, skipped: int | None
) -> None:
    move = OffsetMove(FIRST, 3, 10, before, after)

    assert (move.redelivered, move.skipped) == (redelivered, skipped)
