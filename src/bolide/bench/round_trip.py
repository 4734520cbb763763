"""A producer and a consumer in one process, ready for each other: for `latency` and `e2e`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bolide.bench.stamps import Stamps
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
