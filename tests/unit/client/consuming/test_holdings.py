"""Queues that are held in order: no lock is left behind, whatever comes between."""

import asyncio
from collections.abc import Iterable
from typing import Any

from bolide.client.consuming.holdings import Holdings, Tenancy
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until

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

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        self.locked.update(queues)
        await self.answers.wait()
        return dict.fromkeys(queues, True)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        self.unlocks += 1
        self.locked.difference_update(queues)

    async def locate(self, queue: MessageQueue) -> int:
        await self.tells_offsets.wait()
        if self.fails and queue == QUEUES[1]:
            raise BolideError("no answer")
        return 0

    async def write(self, offsets: object, *, wait: bool) -> None:
        pass


def holdings(broker: Any) -> Holdings:
    tenancy = Tenancy(
        locate=broker.locate, begin=lambda _held, _before: None, is_ordered=lambda _topic: True
    )
    return Holdings(broker, tenancy, broker)


@on_loop
async def test_queues_that_are_held_stay_locked_until_they_are_given_up() -> None:
    broker = Broker()
    held = holdings(broker)
    assert await held.change("T", QUEUES)
    assert (broker.locked, broker.unlocks) == (set(QUEUES), 0)
    await held.close(1.0)
    assert broker.locked == set()


@on_loop
async def test_a_round_that_is_cancelled_before_the_answer_gives_its_locks_back() -> None:
    broker = Broker()
    held = holdings(broker)
    broker.answers.clear()
    await cancelled(held, broker)
    await held.close(1.0)
    assert broker.locked == set()


@on_loop
async def test_a_round_that_is_cancelled_with_the_locks_gives_them_back() -> None:
    broker = Broker()
    held = holdings(broker)
    broker.tells_offsets.clear()
    await cancelled(held, broker)
    await held.close(1.0)
    assert broker.locked == set()


@on_loop
async def test_the_lock_of_a_queue_whose_offset_is_not_known_is_given_back() -> None:
    broker = Broker()
    held = holdings(broker)
    broker.fails = True
    assert not await held.change("T", QUEUES)
    await until(lambda: broker.locked == {QUEUES[0]})
    await held.close(1.0)


@on_loop
async def test_closing_while_queues_are_got_gives_their_locks_back() -> None:
    broker = Broker()
    held = holdings(broker)
    broker.tells_offsets.clear()
    getting = asyncio.create_task(held.change("T", QUEUES))
    await until(lambda: broker.locked)
    await held.close(1.0)
    broker.tells_offsets.set()
    assert not await getting
    await until(lambda: not broker.locked)


async def cancelled(held: Holdings, broker: Broker) -> None:
    getting = asyncio.create_task(held.change("T", QUEUES))
    await until(lambda: broker.locked)
    getting.cancel()
    await asyncio.gather(getting, return_exceptions=True)
