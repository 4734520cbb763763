"""Permits for calls."""

import asyncio

import pytest

from bolide.remoting.calls import Permits
from tests.support.aio import on_loop


async def waiting(permits: Permits) -> asyncio.Task[None]:
    task = asyncio.create_task(permits.acquire())
    await asyncio.sleep(0)
    return task


@on_loop
async def test_one_that_is_free_is_taken_at_once() -> None:
    permits = Permits(2)
    assert permits.try_acquire()
    await permits.acquire()
    assert not permits.try_acquire()
    permits.release()
    assert permits.try_acquire()


@on_loop
async def test_those_who_wait_get_them_in_turn() -> None:
    permits = Permits(1)
    await permits.acquire()
    first, second = await waiting(permits), await waiting(permits)
    permits.release()
    assert not permits.try_acquire()  # it is promised
    await first
    assert not second.done()
    permits.release()
    await second


@on_loop
async def test_one_that_gave_up_waiting_is_passed_over() -> None:
    permits = Permits(1)
    await permits.acquire()
    first, second = await waiting(permits), await waiting(permits)
    first.cancel()
    permits.release()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    permits.release()
    assert permits.try_acquire()


@on_loop
async def test_a_permit_that_comes_too_late_goes_to_the_next() -> None:
    permits = Permits(1)
    await permits.acquire()
    first, second = await waiting(permits), await waiting(permits)
    permits.release()
    first.cancel()  # in the moment in which its turn came
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    permits.release()
    assert permits.try_acquire()
