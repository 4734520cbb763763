"""`bench consumer`: consume with a listener that counts messages and their age."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.bench.counters import ConsumeCounters
from bolide.bench.report import ConsumeProgress, Say, Summary, of_consumption
from bolide.bench.runner import Bounds, Run
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.consumer.subscription import Expression
from bolide.client.instance.settings import ClientArguments
from bolide.model.message import StoredMessage

CONSUMER_GROUP = "benchmark_consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """Who consumes what; a part of `fail_rate` of the messages is asked for again."""

    topic: str
    group: str = CONSUMER_GROUP
    concurrency: int = 20
    expression: Expression = "*"
    fail_rate: float = 0.0
    trace: bool = False
    rebalance: str = "client"
    """Who shares the queues out: `client` or `broker`."""


async def measure_consumption(
    what: Consumption, bounds: Bounds, say: Say, client: ClientArguments
) -> Summary:
    """Consume until the bounds are reached."""
    counters, run = ConsumeCounters(), Run(bounds)
    listener = Listener(counters, what.fail_rate, _ender(run, bounds.count))

    async def consume() -> None:
        await consumer.subscribe(what.topic, what.expression, listener, inline=True)
        await run.stop.wait()

    consumer = PushConsumer(
        what.group,
        concurrency=what.concurrency,
        trace=what.trace,
        rebalance=what.rebalance,
        **client,
    )
    async with consumer:
        took = await run.until_done([consume()], ConsumeProgress(counters, say))
    return of_consumption("consumer", counters, took)


class Listener:
    """Counts each message with its age, by this machine's clock and the sender's or broker's."""

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
        self._counters.got(
            now - message.born_timestamp / 1000, now - message.store_timestamp / 1000
        )
        self._after(self._counters.born.count)
        if self._fail_rate and random.random() < self._fail_rate:  # noqa: S311  no secret
            self._counters.failed += 1
            raise Retry


def _ender(run: Run, count: int | None) -> Callable[[int], None]:
    def end_at_the_last(so_far: int) -> None:
        if count is not None and so_far >= count:
            run.stop.set()

    return end_at_the_last
