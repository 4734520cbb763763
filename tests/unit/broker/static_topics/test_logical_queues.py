"""Replies about logical queues, translated from those about physical ones."""

import pytest

from bolide.broker.static_topics.logical_queues import (
    LogicalQueue,
    any_led_queue,
    led_queue,
    pulled_reply,
    sent_reply,
)
from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.pull import PullReply
from bolide.protocol.headers.send import SendReply
from bolide.protocol.refusals import NotLeaderForQueue, ServerError
from bolide.remoting.dispatch import Reply

FOUND, NOTHING = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
AGAIN, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED

OLD = QueueMappingItem(gen=0, queue_id=3, bname="b", logic_offset=0)
MIDDLE = QueueMappingItem(gen=1, queue_id=1, bname="c", logic_offset=10_000)
LEADER = QueueMappingItem(gen=2, queue_id=0, bname="a", logic_offset=20_000)
NEW = QueueMappingItem(gen=2, queue_id=0, bname="a", logic_offset=-1)


def queue(*items: QueueMappingItem) -> LogicalQueue:
    mapping = QueueMappingDetail(topic="T", bname="a", hosted_queues={5: list(items)})
    return led_queue(mapping, 5)


def pulled(
    item: QueueMappingItem,
    requested: int,
    code: int,
    bounds: tuple[int, int],
    after: int,
    *items: QueueMappingItem,
) -> tuple[int, int, int, int, int | None]:
    """Code, next, lowest and highest offset, and delta of a translated reply."""
    header = PullReply(
        suggest_which_broker_id=0,
        next_begin_offset=after,
        min_offset=bounds[0],
        max_offset=bounds[1],
    )
    reply = pulled_reply(
        queue(*(items or (OLD, MIDDLE, LEADER))), item, requested, Reply(code=code, header=header)
    )
    found = reply.header
    assert isinstance(found, PullReply)
    return (
        reply.code, found.next_begin_offset, found.min_offset, found.max_offset, found.offset_delta
    )  # fmt: skip


def test_messages_of_an_older_part_get_its_offsets() -> None:
    assert pulled(MIDDLE, 5, FOUND, (0, 9), 7) == (FOUND, 10_007, 10_000, 20_000, 10_000)


def test_messages_of_the_leader_get_its_offsets() -> None:
    assert pulled(LEADER, 0, FOUND, (0, 9), 9) == (FOUND, 20_009, 20_000, 20_009, 20_000)


def test_the_end_of_an_older_part_leads_on_to_the_next() -> None:
    assert pulled(OLD, 9, NOTHING, (0, 9), 9)[:2] == (AGAIN, 10_000)
    assert pulled(MIDDLE, 9, MOVED, (0, 9), 9)[:2] == (AGAIN, 20_000)


def test_the_end_of_an_older_part_waits_while_the_leader_has_no_place() -> None:
    assert pulled(OLD, 9, NOTHING, (0, 9), 9, OLD, NEW) == (NOTHING, 9, 0, 9, 0)


def test_the_end_of_the_leader_stays_the_end() -> None:
    assert pulled(LEADER, 9, NOTHING, (0, 9), 9)[:2] == (NOTHING, 20_009)
    assert pulled(LEADER, 12, MOVED, (0, 9), 9)[:2] == (MOVED, 20_009)


def test_deleted_messages_of_the_first_part_move_the_client() -> None:
    assert pulled(OLD, 2, MOVED, (5, 9), 5)[:2] == (MOVED, 5)


def test_deleted_messages_of_a_later_part_are_skipped() -> None:
    assert pulled(MIDDLE, 2, MOVED, (5, 9), 5)[:2] == (AGAIN, 10_005)
    assert pulled(LEADER, 2, MOVED, (5, 9), 5)[:2] == (AGAIN, 20_005)


def test_filtered_messages_are_passed_by() -> None:
    assert pulled(OLD, 2, AGAIN, (0, 9), 6)[:2] == (AGAIN, 6)


def test_a_part_with_an_end_is_not_read_beyond_it() -> None:
    ended = QueueMappingItem(gen=0, queue_id=3, bname="b", logic_offset=0, end_offset=4)
    assert pulled(ended, 2, FOUND, (0, 9), 9, ended, LEADER)[:2] == (FOUND, 4)


def test_a_refusal_stays_as_it_is() -> None:
    refusal = Reply(code=ResponseCode.NO_PERMISSION, remark="no")
    assert pulled_reply(queue(LEADER), LEADER, 0, refusal) is refusal
    assert sent_reply(queue(LEADER), refusal) is refusal


def test_a_stored_message_has_logical_queue_and_offset() -> None:
    reply = Reply(header=SendReply(msg_id="x", queue_id=0, queue_offset=7))
    for items, offset in (((LEADER,), 20_007), ((OLD, NEW), -1)):
        found = sent_reply(queue(*items), reply).header
        assert isinstance(found, SendReply)
        assert (found.queue_id, found.queue_offset) == (5, offset)


def test_a_half_message_keeps_its_offset_among_the_half_messages() -> None:
    reply = Reply(header=SendReply(msg_id="x", queue_id=0, queue_offset=7))
    found = sent_reply(queue(LEADER), reply, is_half=True).header
    assert isinstance(found, SendReply)
    assert (found.queue_id, found.queue_offset) == (5, 7)


def test_only_led_queues_are_served() -> None:
    lost = [LEADER, QueueMappingItem(gen=3, bname="b", logic_offset=30_000)]
    mapping = QueueMappingDetail(
        topic="T", bname="a", hosted_queues={0: lost, 1: [], 4: [LEADER], 7: [LEADER]}
    )
    for number in (0, 1, 2, -1):
        with pytest.raises(NotLeaderForQueue):
            led_queue(mapping, number)
    assert any_led_queue(mapping).number == 4
    with pytest.raises(NotLeaderForQueue):
        any_led_queue(QueueMappingDetail(topic="T", bname="a"))


def test_a_queue_without_any_place_says_what_to_do() -> None:
    with pytest.raises(ServerError, match="remappingStaticTopic"):
        queue(NEW).at(0)
