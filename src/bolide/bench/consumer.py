"""`bench consumer`: consume with a listener that counts messages and their age."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.bench.counters import ConsumeCounters
from bolide.bench.report import ConsumeProgress, Emit, Summary, consume_summary
from bolide.bench.runner import Bounds, Run
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.consumer.subscription import Expression
from bolide.client.instance.settings import ClientArguments
from bolide.model.message import StoredMessage

CONSUMER_GROUP = "benchmark_consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLoad:
    """What to consume, and how; `fail_rate` is the share of messages that is retried."""

    topic: str
    group: str = CONSUMER_GROUP
    concurrency: int = 20
    expression: Expression = "*"
    fail_rate: float = 0.0
    trace: bool = False
    rebalance: str = "client"
    """Where queues are assigned: `client` or `broker`."""


async def measure_consumption(
    load: ConsumeLoad, bounds: Bounds, emit: Emit, client: ClientArguments
) -> Summary:
    """Consume until the bounds are reached."""
    counters, run = ConsumeCounters(), Run(bounds)
    listener = Listener(counters, load.fail_rate, _stop_after(run, bounds.count))

    async def consume() -> None:
        await consumer.subscribe(load.topic, load.expression, listener, inline=True)
        await run.stop.wait()

    consumer = PushConsumer(
        load.group,
        concurrency=load.concurrency,
        trace=load.trace,
        rebalance=load.rebalance,
        **client,
    )
    async with consumer:
        run_time = await run.until_done([consume()], ConsumeProgress(counters, emit))
    return consume_summary("consumer", counters, run_time)


class Listener:
    """Counts messages and their age.

    The age is the difference between this machine's clock and the clock of the sender (born time)
    or the broker (store time).
    """

    def __init__(
        self,
        counters: ConsumeCounters,
        fail_rate: float = 0.0,
        after: Callable[[int], None] = lambda _count: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._counters = counters
        self._fail_rate = fail_rate
        self._after = after
        self._now = now

    def __call__(self, message: StoredMessage) -> None:
        now = self._now()
        self._counters.record(
            now - message.born_timestamp / 1000, now - message.store_timestamp / 1000
        )
        self._after(self._counters.born.count)
        if self._fail_rate and random.random() < self._fail_rate:  # noqa: S311  no secret
            self._counters.failed += 1
            raise Retry


def _stop_after(run: Run, count: int | None) -> Callable[[int], None]:
    def stop_at_count(so_far: int) -> None:
        if count is not None and so_far >= count:
            run.stop.set()

    return stop_at_count
