"""One tenure of a queue."""

import asyncio

from bolide.client.consumer.group.held_queue import LOCK_LIFE, HeldQueue
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop
from tests.support.clock import FakeClock
from tests.unit.client.consumer.handlers.test_workers import DeliveryCall
from tests.unit.client.stored import stored


def held(clock: FakeClock | None = None) -> HeldQueue:
    return HeldQueue(MessageQueue("T", "broker-a", 0), 10, clock or FakeClock())


@on_loop
async def test_a_lock_counts_as_lost_when_it_was_not_renewed() -> None:
    clock = FakeClock()
    queue = held(clock)
    assert not queue.is_locked
    queue.locked_at = clock()
    assert queue.is_locked
    clock.advance(LOCK_LIFE)
    assert not queue.is_locked


@on_loop
async def test_it_is_idle_when_every_call_has_ended() -> None:
    queue, first, second = held(), DeliveryCall(id), DeliveryCall(id)
    queue.begin(first)
    queue.begin(second)
    waiting = asyncio.create_task(queue.wait_until_idle())
    queue.end(first)
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.end(second)
    await waiting


@on_loop
async def test_dropping_wakes_who_sleeps_or_waits_and_ends_the_pulling() -> None:
    queue = held()
    queue.pulling = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    sleeping = asyncio.create_task(queue.sleep(1000))
    waiting = asyncio.create_task(queue.wait_for_change())
    await asyncio.sleep(0)
    queue.drop()
    await asyncio.wait_for(asyncio.gather(sleeping, waiting), 10)
    await asyncio.wait([queue.pulling])
    assert queue.pulling.cancelled()


@on_loop
async def test_who_waits_for_a_change_learns_of_messages_that_come_and_go() -> None:
    queue = held()
    for step in (lambda: queue.accept([stored(10)], 11), lambda: queue.done([stored(10)])):
        waiting = asyncio.create_task(queue.wait_for_change())
        await asyncio.sleep(0)
        step()
        await asyncio.wait_for(waiting, 10)


@on_loop
async def test_it_shows_what_it_holds() -> None:
    clock = FakeClock(1000.0)
    queue = held(clock)
    queue.accept([stored(10, b"x" * (3 << 20)), stored(12)], 13)
    queue.locked_at = clock()
    shown = queue.status()
    assert (shown.cached_msg_min_offset, shown.cached_msg_max_offset) == (10, 12)
    assert (shown.cached_msg_count, shown.cached_msg_size_in_mib) == (2, 3)
    assert (shown.commit_offset, shown.locked, shown.last_lock_timestamp) == (10, True, 1_000_000)
