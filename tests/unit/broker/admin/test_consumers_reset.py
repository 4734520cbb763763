"""Target offsets of a reset."""

from collections.abc import Iterator

import pytest

from bolide.broker.admin.consumers import (
    END,
    checked_offset,
    limited_targets,
    offset_by_time,
    offsets_by_time,
)
from bolide.protocol.refusals import InvalidParameter
from bolide.store.memory_store import MemoryStore
from tests.support.clock import FakeClock
from tests.support.store import draft


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """Queue 0 with messages of the seconds 1000 to 1004, queue 1 without any."""
    clock = FakeClock(1000.0)
    with MemoryStore(clock=clock) as store:
        for _ in range(5):
            store.append(draft("T"))
            clock.advance(1)
        yield store


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 0), (1_000_000, 0), (1_002_000, 2), (1_002_001, 3), (9_000_000, 5), (END, 5)],
)
def test_a_time_means_the_first_message_from_then_on(
    store: MemoryStore, timestamp: int, offset: int
) -> None:
    assert offset_by_time(store, "T", 0, timestamp) == offset


def test_a_queue_that_holds_nothing_begins_at_zero(store: MemoryStore) -> None:
    assert offsets_by_time(store, "T", [0, 1], 1_003_000) == {0: 3, 1: 0}


@pytest.mark.parametrize("offset", [0, 3, 5])
def test_an_offset_within_the_queue_is_accepted(store: MemoryStore, offset: int) -> None:
    assert checked_offset(store, "T", 0, offset) == offset


@pytest.mark.parametrize("offset", [-1, 6])
def test_an_offset_outside_the_queue_is_refused_with_its_range(
    store: MemoryStore, offset: int
) -> None:
    with pytest.raises(InvalidParameter, match=rf"{offset} not in .*\[0-5\]"):
        checked_offset(store, "T", 0, offset)


def test_an_offset_of_deleted_messages_is_refused(store: MemoryStore) -> None:
    store.trim(store.read("T", 0, 2).records[0].nbytes * 2)
    with pytest.raises(InvalidParameter, match=r"\[2-5\]"):
        checked_offset(store, "T", 0, 1)


def test_without_force_a_reset_skips_no_message() -> None:
    consumed = {0: 10, 1: 10}
    wanted = {0: 4, 1: 40}
    assert limited_targets(wanted, consumed.__getitem__, force=False) == {0: 4, 1: 10}
    assert limited_targets(wanted, consumed.__getitem__, force=True) == wanted
