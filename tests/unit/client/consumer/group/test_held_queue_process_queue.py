"""What is held of a queue, and how far it may be committed."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bolide.client.consumer.group.held_queue import FlowLimits, ProcessQueue
from tests.unit.client.stored import stored


class ProcessQueueModel(RuleBasedStateMachine):
    """Beside a plain set of the offsets that are not done."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(100)
        self.open: dict[int, bytes] = {}
        self.position = 100

    @rule(gaps=st.lists(st.integers(0, 5), max_size=8), rest=st.integers(0, 5))
    def pull(self, gaps: list[int], rest: int) -> None:
        found = []
        for gap in gaps:  # what lies in a gap did not match the subscription
            self.position += gap
            body = b"x" * (self.position % 7)
            found.append(stored(self.position, body))
            self.open[self.position] = body
            self.position += 1
        self.position += rest
        assert list(self.queue.put(found, self.position)) == found

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish_some(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.open)), unique=True))
        self.queue.done([stored(offset, b"changed") for offset in some])
        for offset in some:
            del self.open[offset]

    @rule(offset=st.integers(0, 90))
    def finish_what_is_not_held(self, offset: int) -> None:
        self.queue.done([stored(offset)])

    @invariant()
    def nothing_unfinished_lies_before_what_may_be_committed(self) -> None:
        assert self.queue.unfinished == min(self.open, default=self.position)

    @invariant()
    def it_knows_what_it_holds(self) -> None:
        assert len(self.queue) == len(self.open)
        assert self.queue.size == sum(map(len, self.open.values()))
        assert all(offset in self.queue for offset in self.open)
        assert self.queue.next_offset == self.position
        first = sorted(self.open)[:1]
        assert [each.queue_offset for each in self.queue.first(1)] == first


TestProcessQueueModel = ProcessQueueModel.TestCase
TestProcessQueueModel.settings = settings(max_examples=60, stateful_step_count=30)


def test_messages_from_before_the_position_are_passed_over() -> None:
    queue = ProcessQueue(10)
    assert [m.queue_offset for m in queue.put([stored(8), stored(10)], 11)] == [10]
    assert len(queue) == 1


def test_a_position_never_goes_back() -> None:
    queue = ProcessQueue(10)
    queue.put([], 5)
    assert queue.next_offset == 10


def test_a_changed_message_takes_the_place_of_the_one_held() -> None:
    queue = ProcessQueue(0)
    queue.put([stored(0)], 1)
    queue.replace(stored(0, reconsume_times=3))
    queue.replace(stored(7))
    assert [each.reconsume_times for each in queue.first(5)] == [3]


def filled(*offsets: int, body: bytes = b"1234") -> ProcessQueue:
    queue = ProcessQueue(0)
    queue.put([stored(offset, body) for offset in offsets], max(offsets) + 1)
    return queue


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (FlowLimits(count=3), None),
        (FlowLimits(count=2), "3 messages"),
        (FlowLimits(size=12), None),
        (FlowLimits(size=11), "12 bytes"),
        (FlowLimits(span=9), None),
        (FlowLimits(span=8), "9 apart"),
        (FlowLimits(count=None, size=None, span=None), None),
    ],
)
def test_pulling_stops_beyond_each_limit(limits: FlowLimits, said: str | None) -> None:
    reason = limits.reached(filled(0, 1, 9))
    assert (reason is None) if said is None else (reason is not None and said in reason)


def test_the_span_does_not_count_where_the_order_is_kept() -> None:
    assert FlowLimits(span=2).reached(filled(0, 9), in_order=True) is None


def test_what_is_held_takes_of_the_room() -> None:
    assert FlowLimits(count=10).room(filled(0, 1, 9)) == 7
    assert FlowLimits(count=None).room(filled(0)) == math.inf


def test_queues_share_the_limits_of_their_topic() -> None:
    limits = FlowLimits(topic_count=10, topic_size=7)
    assert limits.is_shared
    assert (limits.shared(4).count, limits.shared(4).size) == (2, 1)
    assert limits.shared(100).count == 1
    assert FlowLimits(topic_count=8).shared(2).size == FlowLimits().size
    assert not FlowLimits().is_shared
