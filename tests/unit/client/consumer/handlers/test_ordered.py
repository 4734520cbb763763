"""Calls in order: none begins when the queue may be another member's."""

import asyncio
from typing import Any

import pytest

from bolide.client.consumer.counters import TopicCounters
from bolide.client.consumer.group.held_queue import LOCK_LIFE, HeldQueue
from bolide.client.consumer.handlers.handler import Handler
from bolide.client.consumer.handlers.invocation import ConsumerRuntime, Hooks
from bolide.client.consumer.handlers.ordered import OrderedCall
from bolide.client.consumer.handlers.workers import Workers
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop
from tests.support.clock import FakeClock
from tests.unit.client.stored import stored


class Scene:
    """One worker, and a queue that is locked."""

    def __init__(self) -> None:
        self.clock = FakeClock(100.0)
        self.held = HeldQueue(MessageQueue("T", "broker-a", 0), 0, self.clock)
        self.held.locked_at = self.clock()
        self.gate = asyncio.Event()
        self.began: list[int] = []
        self.workers = Workers(1, "ordered")
        self.runtime = ConsumerRuntime(
            "G", {}, self.workers, None, TopicCounters(self.clock), Hooks(())
        )

    async def handle(self, message: StoredMessage) -> None:
        self.began.append(message.queue_offset)
        await self.gate.wait()

    def submit(self, offset: int) -> asyncio.Future[Any]:
        handler = Handler.of(self.handle, ordered=True, batch=1, inline=False)
        call = OrderedCall(handler, [stored(offset)], self.held, self.runtime)
        self.workers.submit(call)
        return call.outcome


@pytest.mark.parametrize("is_lost", [True, False])
@on_loop
async def test_a_call_that_waited_for_a_worker_needs_the_lock_still(is_lost: bool) -> None:
    it = Scene()
    first, second = it.submit(1), it.submit(2)
    await asyncio.sleep(0)
    if is_lost:
        it.clock.advance(LOCK_LIFE + 1)
    it.gate.set()
    assert (await first).done == 1
    outcome = await second
    assert (outcome is None) is is_lost
    assert it.began == ([1] if is_lost else [1, 2])
    await it.workers.close()


@on_loop
async def test_who_broadcasts_needs_no_lock() -> None:
    it = Scene()
    it.held.locked_at = None
    it.gate.set()
    assert (await it.submit(1)).done == 1
    await it.workers.close()
