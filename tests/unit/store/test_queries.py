"""What questions find where a queue has lost units; the rest is in `tests/contract`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.protocol.headers.offsets import Boundary
from bolide.store.message_store import MessageStore
from tests.support.clock import FakeClock
from tests.support.store import draft, small_config


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Messages at seconds 0 to 9 and 20 to 29, and ten lost ones between them."""
    clock = FakeClock(0.0)
    with MessageStore(small_config(tmp_path), clock=clock, background=False) as store:
        for gap in (10, 0):
            for _ in range(10):
                store.append(draft())
                clock.advance(1)
            clock.advance(gap)
            if gap:
                queue = store.queues.find(b"T", 0)
                assert queue
                queue.fill(20)
        yield store


def test_lost_messages_have_no_time(store: MessageStore) -> None:
    assert store.stored_at("T", 0, 9) == 9000
    assert store.stored_at("T", 0, 10) == store.stored_at("T", 0, 19) == -1
    assert store.stored_at("T", 0, 20) == 20_000


def test_a_search_by_time_is_not_led_astray_by_lost_messages(store: MessageStore) -> None:
    for second in (*range(10), *range(21, 30)):
        assert store.offset_at("T", 0, second * 1000) == second
    # Reading from the first lost one leads to what follows it.
    assert store.offset_at("T", 0, 9_001) == store.offset_at("T", 0, 20_000) == 10
    assert store.offset_at("T", 0, 29_001) == 30
    for second in (*range(10), *range(20, 30)):
        assert store.offset_at("T", 0, second * 1000, Boundary.UPPER) == second
