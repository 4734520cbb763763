"""`bench producer` and `bench batch`: closed-loop senders that await each reply."""

import time
from collections.abc import Callable, Coroutine
from typing import Any

from bolide.bench.counters import SendCounters
from bolide.bench.report import Emit, SendProgress, Summary, send_summary
from bolide.bench.runner import Bounds, Run
from bolide.bench.workload import Workload, message_maker
from bolide.client.errors import RouteNotFound
from bolide.client.producer.producer import Producer
from bolide.client.producer.settings import ProducerArguments
from bolide.errors import BolideError
from bolide.model.message import Message

PRODUCER_GROUP = "benchmark_producer"
BATCH_GROUP = "benchmark_batch_producer"


async def measure_sends(
    load: Workload,
    bounds: Bounds,
    emit: Emit,
    client: ProducerArguments,
    *,
    batch: int | None = None,
) -> Summary:
    """Send messages, one or `batch` of them per request, until the bounds are reached.

    Raises:
        NoNameServer: no NameServer is configured.
    """
    counters = SendCounters()
    async with Producer(PRODUCER_GROUP if batch is None else BATCH_GROUP, **client) as producer:
        await require_cluster(producer, load.topic)
        run = Run(bounds)
        progress = SendProgress(counters, emit, batched=batch is not None)
        senders = Senders(producer, load, counters, batch=batch)
        run_time = await run.until_done(senders.work(run), progress)
    progress.complete(run_time.seconds)
    return send_summary("producer" if batch is None else "batch", counters, run_time)


async def require_cluster(producer: Producer, topic: str) -> None:
    """Fail early if the cluster is unreachable; a missing topic may be created by a send."""
    try:
        await producer.fetch_publish_queues(topic)
    except RouteNotFound:
        return


class Senders:
    """`load.senders` concurrent senders, over one connection to each broker.

    After a failure a sender pauses for `pause` seconds.
    """

    def __init__(
        self,
        producer: Producer,
        load: Workload,
        counters: SendCounters,
        *,
        batch: int | None = None,
        make: Callable[[], Message] | None = None,
        pause: float = 1.0,
    ) -> None:
        self._producer = producer
        self._load = load
        self._counters = counters
        self._batch = batch
        self._make = make or message_maker(load)
        self._pause = pause

    def work(self, run: Run) -> list[Coroutine[Any, Any, None]]:
        return [self._send_all(run) for _ in range(self._load.senders)]

    async def _send_all(self, run: Run) -> None:
        while count := run.claim(self._batch or 1):
            started = time.perf_counter()
            try:
                await self._send(count)
            except BolideError as exc:
                self._counters.failed(count, exc)
                await run.pause(self._pause)
            else:
                self._counters.succeeded(count, time.perf_counter() - started)

    async def _send(self, count: int) -> None:
        if self._batch is None:
            await self._producer.send(self._make())
        else:
            await self._producer.send_batch([self._make() for _ in range(count)])
