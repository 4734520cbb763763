"""One of two brokers is stopped, killed and started again, while messages flow."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide import Message, Producer, PushConsumer
from bolide.client.results import SendResult, SendStatus
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.interop.ours import bolide_namesrv
from tests.support.aio import on_loop, until
from tests.support.own_cluster import create_topic
from tests.support.restarting import RestartingBroker

TOPIC = "T"
SENDERS = 8
PAUSE = 0.005
PATIENCE = 30.0

Place = tuple[MessageQueue, int]


class Traffic:
    """Sends numbers again and again, and remembers what became of each."""

    def __init__(self, producer: Producer) -> None:
        self.stored: dict[int, SendResult] = {}
        self.failures: list[BolideError] = []
        self._producer = producer
        self._numbers = itertools.count()

    @property
    def by_broker(self) -> Counter[str]:
        return Counter(result.queue.broker_name for result in self.stored.values())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(self._send_on())

    async def more(self, count: int, broker: str | None = None) -> None:
        """Wait until so many more were stored, at this broker or at any."""
        wanted = self._count(broker) + count
        await until(lambda: self._count(broker) >= wanted, within=PATIENCE)

    def _count(self, broker: str | None) -> int:
        return self.by_broker[broker] if broker else len(self.stored)

    async def _send_on(self) -> None:
        while True:
            number = next(self._numbers)
            try:
                result = await self._producer.send(Message(TOPIC, b"%d" % number))
            except BolideError as exc:
                self.failures.append(exc)
            else:
                assert result.status is SendStatus.SEND_OK
                self.stored[number] = result
            await asyncio.sleep(PAUSE)


class Got:
    """What a consumer was given."""

    def __init__(self) -> None:
        self.numbers: Counter[int] = Counter()
        self.places: Counter[Place] = Counter()

    async def take(self, message: StoredMessage) -> None:
        self.numbers[int(message.body)] += 1
        self.places[message.queue, message.queue_offset] += 1

    @property
    def repeated(self) -> int:
        """Deliveries of what had been delivered before."""
        return sum(self.places.values()) - len(self.places)


class Scene:
    def __init__(self, brokers: list[RestartingBroker], producer: Producer, got: Got) -> None:
        self.steady, self.restarted = brokers
        self.traffic = Traffic(producer)
        self.got = got

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[Traffic]:
        """Messages flow to both brokers in the block, and all have been consumed at its end."""
        sending = asyncio.create_task(self.traffic.run())
        try:
            await self.traffic.more(50, self.steady.name)
            await self.traffic.more(50, self.restarted.name)
            yield self.traffic
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        stored = self.traffic.stored.keys()
        await until(lambda: self.got.numbers.keys() >= stored, within=PATIENCE)


@asynccontextmanager
async def scene(directory: Path, route_interval: float) -> AsyncIterator[Scene]:
    got = Got()
    with bolide_namesrv(directory / "namesrv") as servers:
        brokers = [
            RestartingBroker(name, directory, servers.address) for name in ("broker-a", "broker-b")
        ]
        client = {"name_server": servers.address, "route_interval": route_interval}
        async with (
            brokers[0],
            brokers[1],
            Producer("P", **client) as producer,
            PushConsumer("G", consume_from="first", **client) as consumer,
        ):
            await create_topic(producer, TOPIC, 4)
            await consumer.subscribe(TOPIC, "*", got.take)
            yield Scene(brokers, producer, got)


@pytest.mark.parametrize("route_interval", [30.0, 0.5])
@on_loop
async def test_no_send_fails_and_nothing_is_lost_while_a_broker_restarts(
    tmp_path: Path, route_interval: float
) -> None:
    async with scene(tmp_path, route_interval) as it:
        async with it.flowing() as traffic:
            for end in (it.restarted.stop, it.restarted.kill):
                await end()
                await traffic.more(300)
                await it.restarted.start()
                await traffic.more(100, it.restarted.name)
                print(end.__name__, it.got.repeated, len(traffic.stored))
        print(len(traffic.stored), it.got.repeated, sum(it.got.numbers.values())-len(it.got.numbers), traffic.failures[:3])
        assert traffic.failures == []
