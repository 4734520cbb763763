"""Tests that are coroutines: `@on_loop` runs one on an event loop and looks for what it left."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec

import pytest

from bolide.remoting import event_loop

P = ParamSpec("P")
Scenario = Coroutine[Any, Any, None]

PATIENCE = 10.0
"""Seconds that a test waits for something that should happen at once."""

_runners: dict[str, Callable[[Scenario], None]] = {
    "uvloop": event_loop.run,
    "asyncio": asyncio.run,
}
_chosen = {"loop": "uvloop"}


def on_loop(test: Callable[P, Scenario]) -> Callable[P, None]:
    """Run a coroutine test; errors that only reached the loop and tasks left over fail it."""

    @wraps(test)
    def run_it(*args: P.args, **kwargs: P.kwargs) -> None:
        _runners[_chosen["loop"]](_watched(test(*args, **kwargs)))

    return run_it


@pytest.fixture(params=list(_runners))
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the `on_loop` tests of a module once on each event loop."""
    monkeypatch.setitem(_chosen, "loop", request.param)


async def until(condition: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Wait for what no event tells: look again and again."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  there is no event, as said
            await asyncio.sleep(0.005)


async def ended(
    process: asyncio.subprocess.Process,
    *,
    within: float = PATIENCE,
    log: Callable[[], str] = str,
) -> tuple[bytes, bytes]:
    """Wait for the end of a process that was told to, and return what it still printed.

    One that goes on is killed and fails the test, whose own timeout does not reach what waits in a
    `finally`.

    Args:
        log: what the failure shows.
    """
    try:
        async with asyncio.timeout(within):
            return await process.communicate()  # it could not end with a full pipe
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        text = f"process {process.pid} ran on for {within:g} s after it was told to end: {log()}"
        raise AssertionError(text) from None


async def _watched(scenario: Scenario) -> None:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    await scenario
    for _ in range(20):  # what was cancelled last may still have to notice
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks without an owner: {left}"
    assert not errors, f"errors that only the loop saw: {errors}"
