"""Offsets that users note: each is committed once, and again only if that failed."""

from collections.abc import Mapping

import pytest

from bolide.client.consumer.pull.pull_consumer import BalancedQueues, UpdatedOffsets
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


class Store:
    """Writes down what it is told, unless it fails."""

    def __init__(self) -> None:
        self.writes: list[dict[MessageQueue, int]] = []
        self.fails = False

    async def read(self, queue: MessageQueue) -> int | None:
        return None

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        assert wait
        if self.fails:
            raise OSError("database away")
        self.writes.append(dict(offsets))


@on_loop
async def test_only_what_changed_is_written() -> None:
    store = Store()
    updated = UpdatedOffsets(store)
    updated.update(FIRST, 1)
    updated.update(SECOND, 2)
    await updated.write()
    await updated.write()
    updated.update(SECOND, 3)
    await updated.write()
    assert store.writes == [{FIRST: 1, SECOND: 2}, {SECOND: 3}]
    assert updated.all() == {FIRST: 1, SECOND: 3}


@on_loop
async def test_what_could_not_be_written_is_written_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    updated = UpdatedOffsets(store)
    updated.update(FIRST, 1)
    store.fails = True
    with pytest.raises(OSError, match="away"):
        await updated.write()
    await updated.try_write()
    await updated.try_write()
    assert caplog.text.count("cannot be committed") == 1
    store.fails = False
    await updated.try_write()
    assert store.writes == [{FIRST: 1}]


@on_loop
async def test_a_queue_that_is_lost_is_written_a_last_time_and_forgotten() -> None:
    store = Store()
    updated = UpdatedOffsets(store)
    balanced = BalancedQueues(updated.release)
    await balanced.assign("T", [FIRST, SECOND])
    updated.update(FIRST, 1)
    updated.update(SECOND, 2)
    await balanced.assign("T", [SECOND])
    assert store.writes == [{FIRST: 1, SECOND: 2}]
    assert (updated.find(FIRST), updated.find(SECOND)) == (None, 2)
    await updated.write()
    assert len(store.writes) == 1
