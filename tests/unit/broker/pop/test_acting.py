"""Events that give a journal the state of a queue that was popped at an acting master."""

import random

import pytest

from bolide.broker.pop.acting import queue_events
from bolide.broker.pop.events import (
    Acknowledged,
    Changed,
    Event,
    OrderAcknowledged,
    OrderPopped,
    Popped,
    QueueName,
    decode_events,
    encode_events,
)
from bolide.broker.pop.ordered import first_order_info
from bolide.broker.pop.state import PopState

NAME: QueueName = ("T", "poppers", 0)


def state_after(events: list[Event]) -> PopState:
    state = PopState(lambda: 1000.0)
    for event in events:
        state.apply(event, 0)
    return state


def outline(state: PopState) -> object:
    """What counts of a queue: its position, and what is leased until when."""
    queue = state.require(NAME)
    order = queue.order if queue.order and queue.order.pending_count else None
    leases = {key: (each.unacknowledged, each.due) for key, each in queue.checkpoints.items()}
    return queue.next_offset, queue.low, leases, order and order.info.unacknowledged


def handed_over(state: PopState) -> list[Event]:
    return decode_events(encode_events(list(queue_events(state.require(NAME)))))


def pop(start: int, count: int, pop_time: int = 999_000) -> Popped:
    return Popped(*NAME, start, pop_time, 60_000, start + count, list(range(count)))


def test_a_queue_without_leases_is_its_position() -> None:
    state = state_after([pop(5, 3), Acknowledged(*NAME, 5, 999_000, [5, 6, 7])])
    assert outline(state_after(handed_over(state))) == outline(state)
    assert state.require(NAME).next_offset == 8


def test_what_the_master_had_leased_before_is_replaced() -> None:
    state = state_after([pop(0, 4), Acknowledged(*NAME, 0, 999_000, [1, 3])])
    master = state_after([pop(0, 4), pop(4, 2)])
    for event in handed_over(state):
        master.apply(event, 7)
    assert outline(master) == outline(state)


@pytest.mark.parametrize("seed", range(30))
def test_any_state_is_handed_over_whole_and_a_part_of_it_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    events: list[Event] = []
    for at in range(chance.randrange(1, 8)):
        batch = pop(at * 4, chance.randrange(1, 5), 999_000 + at)
        events.append(batch)
        for offset in batch.offsets:
            match chance.randrange(3):
                case 0:
                    events.append(Acknowledged(*NAME, batch.start, batch.pop_time, [offset]))
                case 1:
                    events.append(
                        Changed(
                            *NAME, batch.start, batch.pop_time, offset, 999_500, 30_000,
                            batch.next_offset,
                        )
                    )  # fmt: skip
    if chance.randrange(2):
        info = first_order_info(None, 999_900, 60_000, [40, 41])
        events.append(OrderPopped(*NAME, 42, info))
        events.append(OrderAcknowledged(*NAME, 999_900, 40))
    state = state_after(events)
    told = handed_over(state)
    assert outline(state_after(told)) == outline(state)

    low = state.require(NAME).low
    for cut in range(1, len(told)):
        queue = state_after(told[:cut]).require(NAME)
        assert queue.low == low
        assert queue.next_offset <= low
