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
from bolide.bench.report import ConsumeProgress, Emit, SendProgress, Summary, send_figures
from bolide.bench.runner import Bounds, Run, RunTime
from bolide.bench.workload import Stamps, Workload
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.errors import RouteNotFound
from bolide.client.instance.settings import ClientArguments
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

TOPIC = "BenchmarkRoundTrip"
"""Not BenchmarkTest, which has 1,024 queues on every broker."""
GROUP = "benchmark_round_trip"
_QUEUES = 4
_IDLE_LIMIT = 5.0
"""Seconds without a message after which the wait for the remaining ones ends."""
_SETUP_TIMEOUT = 15.0
_POLL_INTERVAL = 0.02

OnMessage = Callable[[StoredMessage, float], None]
"""Called with each message of the run and its age in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLoad:
    """`rate` messages per second; those of the first `warm_up` seconds are not counted."""

    topic: str = TOPIC
    group: str = GROUP
    size: int = 128
    rate: float = 1000.0
    warm_up: float = 2.0


async def measure_latency(
    load: LatencyLoad, bounds: Bounds, emit: Emit, client: ClientArguments
) -> Summary:
    """Send at a fixed rate until the bounds are reached, and wait for the messages.

    Raises:
        ProbesNotReceived: the consumer does not receive the probe messages.
        NoNameServer: no NameServer is configured.
    """
    stamps, counters, latency = Stamps(load.topic, load.size), SendCounters(), Histogram()
    run_time, late = RunTime(0.0, 0.0), Histogram()
    async with round_trip(
        stamps, load.topic, load.group, lambda _message, age: latency.record(age), client
    ) as producer:
        run = Run(Bounds(duration=load.warm_up))
        warm_up = OpenLoop(producer, Stamps(load.topic, load.size), SendCounters(), Histogram())
        await run.until_done([warm_up.send_all(load.rate, run)], lambda: None)
        if not run.is_interrupted:
            run = Run(bounds)
            loop = OpenLoop(producer, stamps, counters, late)
            progress = SendProgress(counters, emit)
            run_time = await run.until_done([loop.send_all(load.rate, run)], progress)
            await wait_for_messages(lambda: latency.count, counters.messages)
            progress.complete(run_time.seconds)
    figures = send_figures(counters, run_time) | {"received": latency.count}
    times = {"latency": latency, "send": counters.times, "late": late}
    return Summary(
        command="latency", figures=figures, times=times, last_failure=counters.last_failure
    )


class OpenLoop:
    """Sends each message at its scheduled time, however many sends are in flight.

    `late` records the delay behind the schedule: sender and listener share one thread.
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
        """Send until the run ends, then wait for the sends in flight."""
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


async def measure_e2e(
    load: Workload, group: str, bounds: Bounds, emit: Emit, client: ClientArguments
) -> Summary:
    """Send as fast as possible until the bounds are reached, and consume all messages.

    Raises:
        ProbesNotReceived: the consumer does not receive the probe messages.
        NoNameServer: no NameServer is configured.
    """
    sends, consumed, stamps = SendCounters(), ConsumeCounters(), Stamps(load.topic, load.size)

    def on_message(message: StoredMessage, age: float) -> None:
        consumed.record(age, time.time() - message.store_timestamp / 1000)

    async with round_trip(stamps, load.topic, group, on_message, client) as producer:
        run = Run(bounds)
        send_line, consume_line = SendProgress(sends, emit), ConsumeProgress(consumed, emit)

        def progress() -> None:
            send_line()
            consume_line()

        senders = Senders(producer, load, sends, make=stamps.message)
        run_time = await run.until_done(senders.work(run), progress)
        began = time.perf_counter()
        await wait_for_messages(lambda: consumed.born.count, sends.messages)
        behind = time.perf_counter() - began
        send_line.complete(run_time.seconds)
    figures = send_figures(sends, run_time) | {
        "received": consumed.born.count,
        "seconds_behind": round(behind, 3),
    }
    times = {"latency": consumed.born, "store_to_consume": consumed.stored, "send": sends.times}
    return Summary(command="e2e", figures=figures, times=times, last_failure=sends.last_failure)


class ProbesNotReceived(BolideError):
    """The consumer did not receive the probe messages sent before the measurement."""

    def __init__(self, topic: str, group: str, queues: int) -> None:
        super().__init__(
            f"messages sent to {queues} queues of {topic!r} did not all reach group {group!r}"
            f" within {_SETUP_TIMEOUT:.0f} s: is another consumer in that group?"
        )


@asynccontextmanager
async def round_trip(
    stamps: Stamps, topic: str, group: str, on_message: OnMessage, client: ClientArguments
) -> AsyncIterator[Producer]:
    """A producer whose messages a consumer in this process receives.

    Before the block runs, a probe message has passed through every queue.

    Raises:
        ProbesNotReceived: the consumer does not receive the probe messages.
        NoNameServer: no NameServer is configured.
    """
    probe = _Probe(Stamps(topic, 0))

    def listen(message: StoredMessage) -> None:
        age = stamps.age(message.body)
        if age is not None:
            on_message(message, age)
        else:
            probe.record(message)

    async with Producer(group, **client) as producer:
        queues = await _queues(producer, topic)
        async with PushConsumer(group, **client) as consumer:
            await consumer.subscribe(topic, "*", listen, inline=True)
            if not await probe.succeeds(producer, queues):
                raise ProbesNotReceived(topic, group, len(queues))
            yield producer


async def wait_for_messages(count: Callable[[], int], wanted: int) -> None:
    """Wait until `count` reaches `wanted`, or no message arrives for `_IDLE_LIMIT` seconds."""
    seen = -1
    while seen < count() < wanted:
        seen = count()
        await _until(lambda: count() >= wanted, _IDLE_LIMIT)


class _Probe:
    """Sends one probe message to each queue and records those received."""

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps
        self._received: set[MessageQueue] = set()

    def record(self, message: StoredMessage) -> None:
        if self._stamps.age(message.body) is not None:
            self._received.add(message.queue)

    async def succeeds(self, producer: Producer, queues: list[MessageQueue]) -> bool:
        for queue in queues:
            await producer.send(self._stamps.message(), queue=queue)
        return await _until(lambda: self._received.issuperset(queues), _SETUP_TIMEOUT)


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; returns False after the time limit."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    return True


async def _queues(producer: Producer, topic: str) -> list[MessageQueue]:
    """The queues of the topic, which is created if necessary."""
    try:
        return await producer.fetch_publish_queues(topic)
    except RouteNotFound:
        await producer.create_topic(topic, _QUEUES)
    deadline = asyncio.get_running_loop().time() + _SETUP_TIMEOUT
    while True:
        try:
            return await producer.fetch_publish_queues(topic)
        except RouteNotFound:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_POLL_INTERVAL)
