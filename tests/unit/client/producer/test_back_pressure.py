import asyncio

import pytest

from bolide.client.producer.back_pressure import BackPressure
from tests.support.aio import on_loop


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@on_loop
async def test_sends_over_the_count_wait_their_turn() -> None:
    pressure = BackPressure(2, 1000)
    assert pressure.try_enter(1)
    assert pressure.try_enter(1)
    assert not pressure.try_enter(1)
    order: list[int] = []

    async def enter(number: int) -> None:
        await pressure.enter(1)
        order.append(number)

    tasks = [asyncio.create_task(enter(number)) for number in range(3)]
    await settled()
    assert order == []
    pressure.leave(1)
    await settled()
    assert order == [0]
    pressure.leave(1)
    pressure.leave(1)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
    assert pressure.in_flight == (2, 2)


@on_loop
async def test_sends_over_the_bytes_wait_but_one_alone_may_be_of_any_size() -> None:
    pressure = BackPressure(10, 100)
    await pressure.enter(500)
    assert not pressure.try_enter(1)
    pressure.leave(500)
    assert pressure.try_enter(60)
    assert not pressure.try_enter(41)
    assert pressure.try_enter(40)


@on_loop
async def test_nobody_overtakes_one_that_waits() -> None:
    pressure = BackPressure(10, 100)
    await pressure.enter(90)
    waiting = asyncio.create_task(pressure.enter(50))
    await settled()
    assert not pressure.try_enter(1)
    pressure.leave(90)
    await waiting
    assert pressure.in_flight == (1, 50)


@on_loop
async def test_one_that_gives_up_leaves_no_trace() -> None:
    pressure = BackPressure(1, 100)
    await pressure.enter(1)
    impatient = asyncio.create_task(pressure.enter(1))
    patient = asyncio.create_task(pressure.enter(1))
    await settled()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    pressure.leave(1)
    await patient
    pressure.leave(1)
    assert pressure.in_flight == (0, 0)


@on_loop
async def test_one_that_is_cancelled_as_its_turn_comes_passes_it_on() -> None:
    pressure = BackPressure(1, 100)
    await pressure.enter(1)
    first = asyncio.create_task(pressure.enter(1))
    second = asyncio.create_task(pressure.enter(1))
    await settled()
    pressure.leave(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(1):
        await second
    assert pressure.in_flight == (1, 1)


@on_loop
async def test_one_that_is_cancelled_before_another_leaves_is_passed_over() -> None:
    pressure = BackPressure(1, 100)
    await pressure.enter(1)
    first = asyncio.create_task(pressure.enter(1))
    second = asyncio.create_task(pressure.enter(1))
    await settled()
    first.cancel()
    pressure.leave(1)
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(1):
        await second
    assert pressure.in_flight == (1, 1)
