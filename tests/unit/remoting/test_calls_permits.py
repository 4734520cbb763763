"""Permits for calls."""

import asyncio

import pytest

from bolide.remoting.calls import Permits
from tests.support.aio import on_loop


async def waiting(permits: Permits) -> asyncio.Task[None]:
    task = asyncio.create_task(permits.take())
    await asyncio.sleep(0)
    return task


@on_loop
async def test_one_that_is_free_is_taken_at_once() -> None:
    permits = Permits(2)
    assert permits.try_take()
    await permits.take()
    assert not permits.try_take()
    permits.give()
    assert permits.try_take()


@on_loop
async def test_those_who_wait_get_them_in_turn() -> None:
    permits = Permits(1)
    await permits.take()
    first, second = await waiting(permits), await waiting(permits)
    permits.give()
    assert not permits.try_take()  # it is promised
    await first
    assert not second.done()
    permits.give()
    await second


@on_loop
async def test_one_that_gave_up_waiting_is_passed_over() -> None:
    permits = Permits(1)
    await permits.take()
    first, second = await waiting(permits), await waiting(permits)
    first.cancel()
    permits.give()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    permits.give()
    assert permits.try_take()


@on_loop
async def test_a_permit_that_comes_too_late_goes_to_the_next() -> None:
    permits = Permits(1)
    await permits.take()
    first, second = await waiting(permits), await waiting(permits)
    permits.give()
    first.cancel()  # in the moment in which its turn came
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    permits.give()
    assert permits.try_take()
