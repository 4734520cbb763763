"""`bench latency` and `bench e2e`: a producer and a consumer in one process.

`latency` sends at a fixed rate (open loop) and measures the time from send to listener. `e2e` sends
as fast as possible (closed loop) and consumes everything it sent.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bolide.bench.counters import ConsumeCounters, Histogram, SendCounters
from bolide.bench.producer import Senders
from bolide.bench.report import ConsumeProgress, Say, SendProgress, Summary, send_figures
from bolide.bench.runner import Bounds, Run, Took
from bolide.bench.workload import Stamps, Workload
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.errors import RouteNotFound
from bolide.client.instance.settings import ClientArguments
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

TOPIC = "BenchmarkRoundTrip"
"""Not BenchmarkTest: that one has 1,024 queues on every broker."""
GROUP = "benchmark_round_trip"
_QUEUES = 4
_STRAGGLERS = 5.0
"""Seconds without a message after which no more are waited for."""
_PATIENCE = 15.0
_LOOK_EVERY = 0.02
Heard = Callable[[StoredMessage, float], None]
"""Told of every message of the run and its age in seconds."""


class NothingArrives(BolideError):
    """What was sent ahead of the measurement did not come back."""

    def __init__(self, topic: str, group: str, queues: int) -> None:
        super().__init__(
            f"messages sent to {queues} queues of {topic!r} did not all reach group {group!r}"
            f" within {_PATIENCE:.0f} s: is another consumer in that group?"
        )


@asynccontextmanager
async def round_trip(
    stamps: Stamps, topic: str, group: str, heard: Heard, client: ClientArguments
) -> AsyncIterator[Producer]:
    """A producer whose messages are heard; every queue has been tried when it is given out.

    Raises:
        NothingArrives: they are not heard.
        NoNameServer: there is nobody to ask for routes.
    """
    trial = _Trial(Stamps(topic, 0))

    def listen(message: StoredMessage) -> None:
        age = stamps.age(message.body)
        if age is not None:
            heard(message, age)
        else:
            trial.look_at(message)

    async with Producer(group, **client) as producer:
        queues = await _queues(producer, topic)
        async with PushConsumer(group, **client) as consumer:
            await consumer.subscribe(topic, "*", listen, inline=True)
            if not await trial.passes(producer, queues):
                raise NothingArrives(topic, group, len(queues))
            yield producer


async def all_heard(count: Callable[[], int], wanted: int) -> None:
    """Wait for so many messages, as long as they keep coming."""
    seen = -1
    while seen < count() < wanted:
        seen = count()
        await _until(lambda: count() >= wanted, _STRAGGLERS)


class _Trial:
    """One message to each queue."""

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps
        self._heard: set[MessageQueue] = set()

    def look_at(self, message: StoredMessage) -> None:
        if self._stamps.age(message.body) is not None:
            self._heard.add(message.queue)

    async def passes(self, producer: Producer, queues: list[MessageQueue]) -> bool:
        for queue in queues:
            await producer.send(self._stamps.message(), queue=queue)
        return await _until(lambda: self._heard.issuperset(queues), _PATIENCE)


async def _until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait for something, at most so long; returns whether it came."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not is_so():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


async def _queues(producer: Producer, topic: str) -> list[MessageQueue]:
    """The topic's queues; a topic that is not there is made."""
    try:
        return await producer.fetch_publish_queues(topic)
    except RouteNotFound:
        await producer.create_topic(topic, _QUEUES)
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        try:
            return await producer.fetch_publish_queues(topic)
        except RouteNotFound:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_LOOK_EVERY)


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


async def measure_both(
    load: Workload, group: str, bounds: Bounds, say: Say, client: ClientArguments
) -> Summary:
    """Send until the bounds are reached, and consume all of it.

    Raises:
        NothingArrives: messages are not heard.
        NoNameServer: there is nobody to ask for routes.
    """
    sends, consumed, stamps = SendCounters(), ConsumeCounters(), Stamps(load.topic, load.size)

    def heard(message: StoredMessage, age: float) -> None:
        consumed.got(age, time.time() - message.store_timestamp / 1000)

    async with round_trip(stamps, load.topic, group, heard, client) as producer:
        run = Run(bounds)
        send_line, consume_line = SendProgress(sends, say), ConsumeProgress(consumed, say)

        def progress() -> None:
            send_line()
            consume_line()

        senders = Senders(producer, load, sends, make=stamps.message)
        took = await run.until_done(senders.work(run), progress)
        began = time.perf_counter()
        await all_heard(lambda: consumed.born.count, sends.messages)
        behind = time.perf_counter() - began
        send_line.complete(took.seconds)
    figures = send_figures(sends, took) | {
        "received": consumed.born.count,
        "seconds_behind": round(behind, 3),
    }
    times = {"latency": consumed.born, "store_to_consume": consumed.stored, "send": sends.times}
    return Summary(command="e2e", figures=figures, times=times, last_failure=sends.last_failure)
