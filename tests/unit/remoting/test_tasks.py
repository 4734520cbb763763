import asyncio

from bolide.remoting.tasks import SingleFlight
from tests.support.aio import on_loop


def closed(key: str) -> Exception:
    return RuntimeError(key)


@on_loop
async def test_callers_share_one_task() -> None:
    flights: SingleFlight[str, int] = SingleFlight(closed)
    count = 0

    async def work() -> int:
        nonlocal count
        count += 1
        await asyncio.sleep(0)
        return count

    found = await asyncio.gather(*(flights.run("a", work, "a") for _ in range(5)))

    assert found == [1] * 5
    assert await flights.run("a", work, "a") == 2


@on_loop
async def test_a_caller_that_repeats_its_call_lets_others_run() -> None:
    """It comes when a task has ended and is forgotten in the next iteration of the loop only."""
    flights: SingleFlight[str, None] = SingleFlight(closed)
    is_over = False
    calls = 0

    async def work() -> None:
        """Ends in its first step."""

    async def repeat() -> None:
        nonlocal calls
        await asyncio.sleep(0)
        while not is_over:
            calls += 1
            assert calls < 1000, "nobody else gets a turn"
            await flights.run("a", work, "a")

    async def end() -> None:
        nonlocal is_over
        for _ in range(5):
            await asyncio.sleep(0)
        is_over = True

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(flights.run("a", work, "a"))
        tasks.create_task(repeat())
        tasks.create_task(end())
