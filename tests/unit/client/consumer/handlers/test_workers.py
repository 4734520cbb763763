"""Handlers run so many at a time, on the loop and in threads."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bolide.client.consumer.handlers.handler import Handler, Outcome
from bolide.client.consumer.handlers.workers import Workers
from bolide.model.message import StoredMessage
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.crowd import Crowd
from tests.unit.client.stored import stored


class DeliveryCall:
    """A job that keeps its outcome."""

    def __init__(self, function: Callable[[Any], Any], *, inline: bool = False) -> None:
        self.handler = Handler.of(function, ordered=False, batch=1, inline=inline)
        self.messages: Sequence[StoredMessage] = [stored(0)]
        self.started: float | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def invoke(self) -> Any:
        return self.handler.call(self.messages)

    def complete(self, outcome: Outcome) -> None:
        self.outcome.set_result(outcome)


async def settled(*calls: DeliveryCall) -> list[Outcome]:
    async with asyncio.timeout(PATIENCE):
        return [await call.outcome for call in calls]


async def sleeps_shortly(_message: object) -> None:
    await asyncio.sleep(0)


def raises(_message: object) -> None:
    raise ValueError("no")


def leaves(_message: object) -> None:
    raise SystemExit(3)


@on_loop
async def test_each_place_runs_a_handler_to_its_outcome() -> None:
    workers = Workers(2, "test")
    calls = [DeliveryCall(sleeps_shortly), DeliveryCall(id), DeliveryCall(id, inline=True)]
    for call in calls:
        workers.submit(call)
    assert await settled(*calls) == [Outcome(1)] * 3
    assert all(call.started is not None for call in calls)
    await workers.close()


@on_loop
async def test_whatever_a_handler_raises_is_an_outcome() -> None:
    async def cancelled(_message: object) -> None:
        raise asyncio.CancelledError

    workers = Workers(2, "test")
    calls = [
        DeliveryCall(raises),
        DeliveryCall(leaves),
        DeliveryCall(raises, inline=True),
        DeliveryCall(cancelled),
    ]
    for call in calls:
        workers.submit(call)
    kinds = [type(outcome.error) for outcome in await settled(*calls)]
    assert kinds == [ValueError, SystemExit, ValueError, asyncio.CancelledError]
    await workers.close()


@on_loop
async def test_a_plain_function_that_returns_a_coroutine_fails_with_advice() -> None:
    def forgets_to_await(message: object) -> object:
        return sleeps_shortly(message)

    workers = Workers(1, "test")
    call = DeliveryCall(forgets_to_await)
    workers.submit(call)
    (outcome,) = await settled(call)
    assert "make it async def" in str(outcome.error)
    await workers.close()


@pytest.mark.parametrize("place", ["on_loop", "in_thread"])
@on_loop
async def test_no_more_run_at_a_time_than_the_limit_says(place: str) -> None:
    workers, crowd = Workers(3, "test"), Crowd()
    calls = [DeliveryCall(getattr(crowd, place)) for _ in range(10)]
    for call in calls:
        workers.submit(call)
    await until(lambda: crowd.now == 3)
    crowd.open()
    await settled(*calls)
    assert crowd.most == 3
    await workers.close()


@pytest.mark.parametrize("place", ["on_loop", "in_thread"])
@on_loop
async def test_a_limit_may_grow_and_shrink_while_handlers_run(place: str) -> None:
    workers, crowd = Workers(1, "test"), Crowd()
    calls = [DeliveryCall(getattr(crowd, place)) for _ in range(8)]
    for call in calls:
        workers.submit(call)
    await until(lambda: crowd.now == 1)
    workers.limit = 4
    await until(lambda: crowd.now == 4)
    workers.limit = 2
    crowd.open()
    await settled(*calls)
    assert crowd.most == 4
    with pytest.raises(ValueError, match="concurrency is 0"):
        workers.limit = 0
    await workers.close()


@pytest.mark.parametrize("place", ["on_loop", "in_thread"])
@on_loop
async def test_jobs_that_have_not_begun_can_be_withdrawn(place: str) -> None:
    workers, crowd = Workers(1, "test"), Crowd()
    calls = [DeliveryCall(getattr(crowd, place)) for _ in range(3)]
    for call in calls:
        workers.submit(call)
    await until(lambda: crowd.now == 1)
    assert workers.withdraw(lambda call: call is not calls[2]) == [calls[1]]
    crowd.open()
    await settled(calls[0], calls[2])
    assert not calls[1].outcome.done()
    await workers.close()


@on_loop
async def test_inline_handlers_leave_the_loop_its_turns() -> None:
    workers = Workers(1, "test")
    calls = [DeliveryCall(lambda _: time.sleep(0.004), inline=True) for _ in range(20)]
    for call in calls:
        workers.submit(call)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not calls[-1].outcome.done()
    await settled(*calls)
    await workers.close()


@on_loop
async def test_closing_cancels_what_still_runs_on_the_loop() -> None:
    workers, crowd = Workers(1, "test"), Crowd()
    first, second = DeliveryCall(crowd.on_loop), DeliveryCall(crowd.on_loop)
    workers.submit(first)
    workers.submit(second)
    await until(lambda: crowd.now == 1)
    await workers.close()
    assert not first.outcome.done()
    assert crowd.most == 1


@on_loop
async def test_a_thread_that_outlives_its_owner_troubles_nobody() -> None:
    workers, crowd = Workers(1, "test"), Crowd()
    workers.submit(DeliveryCall(crowd.in_thread))
    await until(lambda: crowd.now == 1)
    await workers.close()
    crowd.open()
    await until(lambda: crowd.now == 0)
