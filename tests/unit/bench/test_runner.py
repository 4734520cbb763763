import asyncio
import os
import signal

from bolide.bench.runner import Bounds, Run
from tests.support.aio import PATIENCE, on_loop

CLOCK = 0.01
"""Timers use the clock of the loop: whole milliseconds, read once per iteration."""


@on_loop
async def test_no_more_than_the_count_is_given_out() -> None:
    run = Run(Bounds(count=10))

    assert [run.claim(4) for _ in range(4)] == [4, 4, 2, 0]


@on_loop
async def test_nothing_is_given_out_once_it_is_over() -> None:
    run = Run(Bounds())
    assert run.claim(3) == 3
    run.stop.set()

    assert run.claim() == 0


@on_loop
async def test_it_ends_when_its_time_is_over_and_tells_progress_meanwhile() -> None:
    run = Run(Bounds(duration=0.25, interval=0.1))  # not a multiple of the interval, to avoid a tie
    told: list[None] = []

    async def work() -> None:
        await run.stop.wait()

    run_time = await run.until_done([work(), work()], lambda: told.append(None))

    assert run_time.seconds >= 0.25 - CLOCK
    assert 1 <= len(told) <= 2
    assert not run.is_interrupted


@on_loop
async def test_it_ends_when_the_work_is_done() -> None:
    run = Run(Bounds(duration=600, count=5))

    async def work() -> None:
        while run.claim():
            pass

    async with asyncio.timeout(PATIENCE):
        await run.until_done([work()], lambda: None)

    assert run.stop.is_set()


@on_loop
async def test_ctrl_c_ends_it_in_good_order() -> None:
    run = Run(Bounds())

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await run.stop.wait()

    async with asyncio.timeout(PATIENCE):
        await run.until_done([work()], lambda: None)

    assert run.is_interrupted


@on_loop
async def test_a_pause_ends_with_the_run() -> None:
    run = Run(Bounds())
    asyncio.get_running_loop().call_soon(run.interrupt)

    async with asyncio.timeout(PATIENCE):
        await run.pause(600)
