"""Queues that are got and given up: no lock is left behind, and no offset goes back."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from bolide.client.consumer.group.held_queues import HeldQueues, QueueCallbacks
from bolide.client.consumer.handlers.workers import HandlerCall
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until
from tests.unit.client.stored import stored

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(2)]


class Broker:
    """Grants every lock; may be slow to answer, and to tell offsets."""

    def __init__(self) -> None:
        self.locked: set[MessageQueue] = set()
        self.unlocks = 0
        self.answers = asyncio.Event()
        self.tells_offsets = asyncio.Event()
        self.answers.set()
        self.tells_offsets.set()
        self.fails = False
        self.failure: Exception = BolideError("no answer")
        self.offset: int | None = None

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        self.locked.update(queues)
        await self.answers.wait()
        return dict.fromkeys(queues, True)

    def holds(self, queue: MessageQueue) -> bool:
        return queue in self.locked

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        self.unlocks += 1
        self.locked.difference_update(queues)

    async def start_offset(self, queue: MessageQueue) -> int:
        await self.tells_offsets.wait()
        if self.fails and queue == QUEUES[1]:
            raise self.failure
        return 0

    async def read(self, queue: MessageQueue) -> int | None:
        return self.offset

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        if self.fails:
            raise self.failure
        (self.offset,) = offsets.values()


def held_queues(broker: Any, *, in_order: bool = True) -> HeldQueues:
    callbacks = QueueCallbacks(
        start_offset=broker.start_offset,
        start=lambda _held, _before: None,
        is_ordered=lambda _topic: in_order,
    )
    return HeldQueues(broker, callbacks, broker)


@on_loop
async def test_queues_that_are_held_stay_locked_until_they_are_given_up() -> None:
    broker = Broker()
    held = held_queues(broker)
    assert await held.assign("T", QUEUES)
    assert (broker.locked, broker.unlocks) == (set(QUEUES), 0)
    await held.close(1.0)
    assert broker.locked == set()


@on_loop
async def test_a_round_that_is_cancelled_before_the_answer_gives_its_locks_back() -> None:
    broker = Broker()
    held = held_queues(broker)
    broker.answers.clear()
    await cancelled(held, broker)
    await held.close(1.0)
    assert broker.locked == set()


@on_loop
async def test_a_round_that_is_cancelled_with_the_locks_gives_them_back() -> None:
    broker = Broker()
    held = held_queues(broker)
    broker.tells_offsets.clear()
    await cancelled(held, broker)
    await held.close(1.0)
    assert broker.locked == set()


@on_loop
async def test_the_lock_of_a_queue_whose_offset_is_not_known_is_given_back() -> None:
    broker = Broker()
    held = held_queues(broker)
    broker.fails = True
    assert not await held.assign("T", QUEUES)
    await until(lambda: broker.locked == {QUEUES[0]})
    await held.close(1.0)


@on_loop
async def test_closing_while_queues_are_got_gives_their_locks_back() -> None:
    broker = Broker()
    held = held_queues(broker)
    broker.tells_offsets.clear()
    getting = asyncio.create_task(held.assign("T", QUEUES))
    await until(lambda: broker.locked)
    await held.close(1.0)
    broker.tells_offsets.set()
    assert not await getting
    await until(lambda: not broker.locked)


@pytest.mark.parametrize(("by_the_next", "stands_at"), [(50, 50), (5, 6), (None, 6)])
@on_loop
async def test_a_handler_that_ends_late_does_not_move_the_group_back(
    by_the_next: int | None, stands_at: int
) -> None:
    broker = Broker()
    held, call = held_queues(broker), cast(HandlerCall, object())
    await held.assign("T", QUEUES[:1])
    (queue,) = held
    queue.accept([stored(5), stored(6)], 7)
    queue.begin(call)
    await held.assign("T", [])
    await until(lambda: broker.offset == 5)
    broker.offset = by_the_next
    queue.done([stored(5)])
    queue.end(call)
    await held.close(1.0)
    assert broker.offset == stands_at


@on_loop
async def test_what_a_users_store_raises_keeps_only_its_queue_back() -> None:
    broker = Broker()
    held = held_queues(broker, in_order=False)
    broker.fails, broker.failure = True, OSError("database away")
    assert not await held.assign("T", QUEUES)
    assert held.of_topic("T") == {QUEUES[0]}
    await held.try_commit()
    with pytest.raises(OSError, match="away"):
        await held.commit()
    await held.close(1.0)


@on_loop
async def test_a_queue_that_two_changes_get_is_held_once() -> None:
    begun: list[MessageQueue] = []
    broker: Any = Broker()
    callbacks = QueueCallbacks(
        start_offset=broker.start_offset, start=lambda held, _before: begun.append(held.queue)
    )
    held = HeldQueues(broker, callbacks, None)
    assert all(await asyncio.gather(held.assign("T", QUEUES), held.assign("T", QUEUES)))
    assert sorted(begun) == QUEUES
    await held.close(1.0)


async def cancelled(held: HeldQueues, broker: Broker) -> None:
    getting = asyncio.create_task(held.assign("T", QUEUES))
    await until(lambda: broker.locked)
    getting.cancel()
    await asyncio.gather(getting, return_exceptions=True)
