"""From send to listener at a steady rate, whatever the answers take: `latency`."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.bench.counters import SendCounters
from bolide.bench.histogram import Histogram
from bolide.bench.report import Say, SendProgress
from bolide.bench.round_trip import GROUP, TOPIC, all_heard, round_trip
from bolide.bench.runner import Bounds, Run, Took
from bolide.bench.stamps import Stamps
from bolide.bench.summary import Summary, send_figures
from bolide.client.instance.settings import ClientArguments
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`rate` messages a second; those of the first `warm_up` seconds are not counted."""

    topic: str = TOPIC
    group: str = GROUP
    size: int = 128
    rate: float = 1000.0
    warm_up: float = 2.0


async def measure_latency(pace: Pace, bounds: Bounds, say: Say, client: ClientArguments) -> Summary:
    """Send at the pace until the bounds are reached, and hear what was sent.

    Raises:
        NothingArrives: messages are not heard.
        NoNameServer: there is nobody to ask for routes.
    """
    stamps, counters, latency = Stamps(pace.topic, pace.size), SendCounters(), Histogram()
    took, late = Took(0.0, 0.0), Histogram()
    async with round_trip(
        stamps, pace.topic, pace.group, lambda _message, age: latency.record(age), client
    ) as producer:
        run = Run(Bounds(duration=pace.warm_up))
        warm_up = OpenLoop(producer, Stamps(pace.topic, pace.size), SendCounters(), Histogram())
        await run.until_done([warm_up.send_all(pace.rate, run)], lambda: None)
        if not run.is_interrupted:
            run = Run(bounds)
            loop = OpenLoop(producer, stamps, counters, late)
            progress = SendProgress(counters, say)
            took = await run.until_done([loop.send_all(pace.rate, run)], progress)
            await all_heard(lambda: latency.count, counters.messages)
            progress.complete(took.seconds)
    figures = send_figures(counters, took) | {"received": latency.count}
    times = {"latency": latency, "send": counters.times, "late": late}
    return Summary(
        command="latency", figures=figures, times=times, last_failure=counters.last_failure
    )


class OpenLoop:
    """Sends when the time for a message has come, however many are under way.

    `late` tells how far behind its times it was: it shares a thread with who listens.
    """

    def __init__(
        self,
        producer: Producer,
        stamps: Stamps,
        counters: SendCounters,
        late: Histogram,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._producer = producer
        self._stamps = stamps
        self._counters = counters
        self._late = late
        self._now = now

    async def send_all(self, rate: float, run: Run) -> None:
        """Go on until the run ends; sends under way are waited for."""
        begin, number = self._now(), 0
        async with asyncio.TaskGroup() as group:
            while run.claim():
                due = begin + number / rate
                if due > self._now():
                    await run.pause(due - self._now())
                self._late.record(self._now() - due)
                group.create_task(self._send())
                number += 1

    async def _send(self) -> None:
        started = self._now()
        try:
            await self._producer.send(self._stamps.message())
        except BolideError as exc:
            self._counters.failed(1, exc)
        else:
            self._counters.succeeded(1, self._now() - started)
