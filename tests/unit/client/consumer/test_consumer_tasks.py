"""Tasks that do something every so often."""

import asyncio

import pytest

from bolide.client.consumer.consumer import PeriodicTasks
from tests.support.aio import on_loop


@on_loop
async def test_what_fails_is_logged_and_done_again(caplog: pytest.LogCaptureFixture) -> None:
    twice = asyncio.Event()
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if len(calls) > 1:
            twice.set()
        raise ValueError("broken")

    periodic = PeriodicTasks()
    periodic.every(0.001, work)
    await asyncio.wait_for(twice.wait(), 10)
    await periodic.close()
    assert "broken" in caplog.text


@on_loop
async def test_coroutines_are_awaited_and_end_with_their_owner() -> None:
    called = asyncio.Event()

    async def work() -> None:
        called.set()
        await asyncio.Event().wait()

    periodic = PeriodicTasks()
    periodic.every(0.001, work)
    await asyncio.wait_for(called.wait(), 10)
    await periodic.close()
