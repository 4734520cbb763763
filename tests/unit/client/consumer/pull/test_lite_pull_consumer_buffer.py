"""The buffer of messages that wait for a poll."""

import asyncio

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.pull.lite_pull_consumer import PollBuffer, PolledMessages
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.unit.client.stored import stored


def held(number: int = 0) -> HeldQueue:
    return HeldQueue(MessageQueue("T", "broker-a", number), 0, FakeClock())


@on_loop
async def test_groups_come_in_the_order_in_which_they_were_pulled() -> None:
    buffer, first, second = PollBuffer(), held(0), held(1)
    buffer.put(first, [stored(0), stored(1)])
    buffer.put(second, [stored(0)])
    assert len(buffer) == 3
    assert await buffer.get(0) == PolledMessages(first, [stored(0), stored(1)])
    assert await buffer.get(0) == PolledMessages(second, [stored(0)])
    assert await buffer.get(0) is None
    assert len(buffer) == 0


@on_loop
async def test_a_poll_waits_for_a_message() -> None:
    buffer, queue = PollBuffer(), held()
    asyncio.get_running_loop().call_soon(buffer.put, queue, [stored(0)])
    assert await buffer.get(10) == PolledMessages(queue, [stored(0)])


@on_loop
async def test_what_belongs_to_a_dropped_queue_is_not_polled() -> None:
    buffer, gone, kept = PollBuffer(), held(0), held(1)
    buffer.put(gone, [stored(0)])
    buffer.put(kept, [stored(5)])
    gone.drop()
    assert await buffer.get(0) == PolledMessages(kept, [stored(5)])


@on_loop
async def test_purging_makes_room() -> None:
    buffer, gone = PollBuffer(), held()
    buffer.put(gone, [stored(0)])
    gone.drop()
    buffer.purge()
    assert len(buffer) == 0


@on_loop
async def test_those_who_wait_for_room_hear_of_it_also_while_a_poll_waits() -> None:
    heard: list[int] = []
    buffer, gone = PollBuffer(lambda: heard.append(len(buffer))), held()
    buffer.put(gone, [stored(0)])
    gone.drop()
    taking = asyncio.create_task(buffer.get(10))
    await until(lambda: heard == [0])
    buffer.put(held(1), [stored(5)])
    assert await taking is not None
    buffer.purge()
    assert heard == [0, 0, 0]
