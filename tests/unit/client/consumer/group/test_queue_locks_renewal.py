"""Locks of queues that are consumed in order: renewed, lost, regained."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from bolide.client.consumer.group.held_queue import LOCK_LIFE, HeldQueue
from bolide.client.consumer.group.queue_locks import LockRenewer
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop
from tests.support.clock import FakeClock

QUEUE = MessageQueue("T", "broker-a", 0)


class Broker:
    """Grants locks and keeps offsets as a test says."""

    def __init__(self) -> None:
        self.granted: bool | None = True
        self.offset: int | None = 10
        self.fails = False

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        return {} if self.granted is None else dict.fromkeys(queues, self.granted)

    async def read(self, queue: MessageQueue) -> int | None:
        if self.fails:
            raise BolideError("no answer")
        return self.offset


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.broker = Broker()
        self.held = HeldQueue(QUEUE, 10, self.clock)
        self.held.locked_at = self.clock()
        self.restarted: list[int] = []
        broker: Any = self.broker
        held_queues: Any = self
        self.renewer = LockRenewer(broker, broker, held_queues, self.clock)

    def __iter__(self) -> Iterator[HeldQueue]:
        return iter([self.held])

    def restart(self, held: HeldQueue, queue_offset: int) -> None:
        self.restarted.append(queue_offset)


@on_loop
async def test_a_lock_that_is_renewed_in_time_stays() -> None:
    it = Scene()
    for _ in range(3):
        it.clock.advance(20)
        await it.renewer.renew()
    assert it.held.is_locked


@on_loop
async def test_a_lock_that_another_got_is_lost() -> None:
    it = Scene()
    it.broker.granted = False
    await it.renewer.renew()
    assert not it.held.is_locked


@on_loop
async def test_a_broker_that_does_not_answer_leaves_the_lock_its_time() -> None:
    it = Scene()
    it.broker.granted = None
    it.clock.advance(20)
    await it.renewer.renew()
    assert it.held.is_locked
    it.clock.advance(LOCK_LIFE - 20)
    assert not it.held.is_locked


@pytest.mark.parametrize("stored", [None, 7, 10])
@on_loop
async def test_who_gets_a_lock_back_goes_on_if_nobody_went_further(stored: int | None) -> None:
    it = Scene()
    it.clock.advance(LOCK_LIFE)
    it.broker.offset = stored
    assert await it.renewer.regain(it.held)
    assert it.held.is_locked
    assert it.restarted == []


@on_loop
async def test_who_gets_a_lock_back_begins_where_another_stopped() -> None:
    it = Scene()
    it.clock.advance(LOCK_LIFE)
    it.broker.offset = 50
    await it.renewer.renew()
    assert it.restarted == [50]


@on_loop
async def test_without_lock_or_offset_there_is_no_going_on() -> None:
    it = Scene()
    it.clock.advance(LOCK_LIFE)
    it.broker.fails = True
    assert not await it.renewer.regain(it.held)
    it.broker.granted = False
    assert not await it.renewer.regain(it.held)
    assert not it.held.is_locked


@on_loop
async def test_a_lock_of_a_lost_connection_counts_only_after_a_look_at_the_offset() -> None:
    it = Scene()
    it.held.is_granted = lambda: it.broker.offset is not None
    assert it.held.is_locked
    it.broker.offset = None
    assert not it.held.is_locked
    it.broker.fails = True
    assert not await it.renewer.regain(it.held)
    it.broker.offset = 50
    assert not it.held.is_locked
    it.broker.fails = False
    await it.renewer.renew()
    assert it.restarted == [50]
