"""Behaviour of the memory store alone; the rest is in `tests/contract`."""

import pytest

from bolide.store.memory_store import MemoryStore
from bolide.store.reading import ReadStatus
from tests.support.clock import FakeClock
from tests.support.store import body_of, draft


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def filled(clock: FakeClock) -> tuple[MemoryStore, list[int]]:
    store = MemoryStore(clock=clock).__enter__()
    places = []
    for number in range(6):
        topic = "AB"[number % 2]
        message = draft(topic, bytes([number]), properties={"KEYS": "k"})
        places.append(store.append(message).physical_offset)
        clock.advance(1)
    return store, places


def test_trimming_forgets_what_lies_before_a_position(clock: FakeClock) -> None:
    store, places = filled(clock)
    store.trim(places[3])
    assert (store.min_offset("A", 0), store.max_offset("A", 0)) == (2, 3)
    assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (1, 3)
    assert store.record_at(places[2]) is None
    assert body_of(store.record_at(places[3])) == b"\3"
    assert [body_of(record) for record in store.find("A", "k")] == [b"\4"]
    assert store.earliest_log_time() == 1_003_000


def test_reading_what_was_trimmed_says_where_to_go_on(clock: FakeClock) -> None:
    store, places = filled(clock)
    store.trim(places[3])
    found = store.read("A", 0, 0)
    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, 2)


def test_a_store_that_was_trimmed_to_nothing_goes_on_counting(clock: FakeClock) -> None:
    store, places = filled(clock)
    store.trim(10**9)
    assert store.earliest_log_time() == store.earliest_time("A", 0) == -1
    assert (store.min_offset("A", 0), store.max_offset("A", 0)) == (3, 3)
    appended = store.append(draft("A"))
    assert appended.queue_offset == 3
    assert appended.physical_offset > places[-1]


def test_a_store_needs_no_settings() -> None:
    with MemoryStore() as store:
        store.append(draft(body=b"x"))
        assert body_of(store.read("T", 0, 0).records[0]) == b"x"
