import asyncio
from typing import cast

import pytest

from bolide.bench.counters import Histogram, SendCounters
from bolide.bench.round_trip import OpenLoop
from bolide.bench.runner import Bounds, Run
from bolide.bench.workload import Stamps
from bolide.client.errors import RouteNotFound
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from tests.support.aio import PATIENCE, on_loop


class SlowPost:
    """Delays all replies until every message is sent."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.under_way = 0
        self._all_there = asyncio.Event()

    async def send(self, _message: Message) -> None:
        self.under_way += 1
        if self.under_way == self._wanted:
            self._all_there.set()
        await self._all_there.wait()


class ClosedPost:
    async def send(self, message: Message) -> None:
        raise RouteNotFound(message.topic)


async def sent(post: SlowPost | ClosedPost, count: int, rate: float) -> tuple[SendCounters, float]:
    counters, late, run = SendCounters(), Histogram(), Run(Bounds(count=count))
    loop = OpenLoop(cast("Producer", post), Stamps("T", 16), counters, late)
    async with asyncio.timeout(PATIENCE):
        run_time = await run.until_done([loop.send_all(rate, run)], lambda: None)
    assert late.count == count
    return counters, run_time.seconds


@on_loop
async def test_it_sends_on_time_whether_or_not_there_are_answers() -> None:
    counters, seconds = await sent(SlowPost(50), 50, rate=500)

    assert counters.messages == 50
    assert seconds == pytest.approx(0.1, abs=0.5)
    assert seconds >= 0.09


@on_loop
async def test_failures_do_not_end_it() -> None:
    counters, _ = await sent(ClosedPost(), 5, rate=1000)

    assert (counters.messages, counters.messages_failed) == (0, 5)
