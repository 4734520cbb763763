"""One of two brokers is stopped, killed and started again, while messages flow."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from bolide import Message, Producer, PushConsumer
from bolide.client.consumer.group import rebalance
from bolide.client.instance.settings import ClientArguments
from bolide.client.producer.results import SendResult, SendStatus
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.interop.ours import bolide_namesrv
from tests.support.aio import on_loop, until
from tests.support.own_cluster import create_topic, own_cluster
from tests.support.restarting import RestartingBroker

SENDERS = 6
PAUSE = 0.005
QUEUES = 4
MEMBERS = 4
PATIENCE = 40.0


class Flow:
    """Numbers sent to a topic again and again, and what became of each."""

    def __init__(self, topic: str, producer: Producer) -> None:
        self.topic = topic
        self.stored: dict[int, SendResult] = {}
        self.failures: list[BolideError] = []
        self.got: Counter[int] = Counter()
        self.places: Counter[tuple[MessageQueue, int]] = Counter()
        self._producer = producer
        self._numbers = itertools.count()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(self._send_on())

    async def take(self, message: StoredMessage) -> None:
        self.got[int(message.body)] += 1
        self.places[message.queue, message.queue_offset] += 1

    def count(self, broker: str) -> int:
        """How many messages a broker stored."""
        return sum(each.queue.broker_name == broker for each in self.stored.values())

    @property
    def is_consumed(self) -> bool:
        return self.got.keys() >= self.stored.keys()

    @property
    def repeated(self) -> list[MessageQueue]:
        """Of which queues something was delivered more than once."""
        return [queue for (queue, _offset), times in self.places.items() if times > 1]

    async def _send_on(self) -> None:
        while True:
            number = next(self._numbers)
            try:
                result = await self._producer.send(Message(self.topic, b"%d" % number))
            except BolideError as exc:
                self.failures.append(exc)
            else:
                assert result.status is SendStatus.SEND_OK
                self.stored[number] = result
            await asyncio.sleep(PAUSE)


class Scene:
    """Two brokers, a client that keeps its routes, and one that sees at once who comes or goes."""

    def __init__(self, brokers: list[RestartingBroker], flows: list[Flow]) -> None:
        self.steady, self.restarted = brokers
        self.maintenance, self.polling = self.flows = flows

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Messages flow to both brokers in the block, and all are consumed at its end."""
        sending = [asyncio.create_task(flow.run()) for flow in self.flows]
        try:
            await self.more(50, self.steady)
            await self.more(50, self.restarted)
            yield
        finally:
            for each in sending:
                each.cancel()
            ended = await asyncio.gather(*sending, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
        await until(lambda: all(flow.is_consumed for flow in self.flows), within=PATIENCE)

    async def more(self, count: int, broker: RestartingBroker) -> None:
        """Wait until the broker stored so many more of each flow."""
        wanted = [(flow, flow.count(broker.name) + count) for flow in self.flows]
        await until(
            lambda: all(flow.count(broker.name) >= enough for flow, enough in wanted),
            within=PATIENCE,
        )

    @property
    def failures(self) -> Iterable[BolideError]:
        return [failure for flow in self.flows for failure in flow.failures]


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    with bolide_namesrv(directory / "namesrv") as servers:
        brokers = [
            RestartingBroker(name, directory, servers.address) for name in ("broker-a", "broker-b")
        ]
        intervals = {"Maintenance": 300.0, "Polling": 0.5}
        async with brokers[0], brokers[1], AsyncExitStack() as stack:
            await _create_topics(servers.address, intervals)
            flows = [
                await stack.enter_async_context(_flow(topic, servers.address, interval))
                for topic, interval in intervals.items()
            ]
            yield Scene(brokers, flows)


async def _create_topics(name_server: str, topics: Iterable[str]) -> None:
    """On both brokers, and known to the NameServer."""
    async with Producer("maker", name_server=name_server, route_interval=0.05) as maker:
        for topic in topics:
            await create_topic(maker, topic, QUEUES)
            async with asyncio.timeout(PATIENCE):
                while len(await maker.fetch_publish_queues(topic)) < 2 * QUEUES:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


@asynccontextmanager
async def _flow(topic: str, name_server: str, route_interval: float) -> AsyncIterator[Flow]:
    async with (
        Producer("P", name_server=name_server, route_interval=route_interval) as producer,
        PushConsumer(
            f"G-{topic}",
            name_server=name_server,
            route_interval=route_interval,
            consume_from="first",
        ) as consumer,
    ):
        flow = Flow(topic, producer)
        await consumer.subscribe(topic, "*", flow.take)
        yield flow


@on_loop
async def test_no_send_fails_and_nothing_is_lost_while_a_broker_is_restarted(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as it:
        async with it.flowing():
            for end in (it.restarted.stop, it.restarted.kill):
                await end()
                await it.more(150, it.steady)
                await it.restarted.start()
                await it.more(100, it.restarted)
        assert it.failures == []
        # Who held his queues all the time goes on exactly where he was.
        assert it.maintenance.repeated == []
        # Who gave them up could not commit: the broker was gone.
        assert {queue.broker_name for queue in it.polling.repeated} <= {it.restarted.name}


@on_loop
async def test_members_keep_their_queues_while_their_broker_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalance, "REJOIN_GRACE", PATIENCE)  # however slow the machine is
    got: set[bytes] = set()
    changes: list[int] = []
    told: dict[int, frozenset[MessageQueue]] = {}

    def hear(
        number: int, topic: str, _: frozenset[MessageQueue], mine: frozenset[MessageQueue]
    ) -> None:
        if topic == "T":  # that of retries comes when the broker has made it
            told[number] = mine
            changes.append(number)

    async def take(message: StoredMessage) -> None:
        got.add(message.body)

    async with own_cluster(tmp_path) as cluster, AsyncExitStack() as stack:
        client: ClientArguments = {"name_server": cluster.address, "heartbeat_interval": 300.0}
        producer = await stack.enter_async_context(Producer("P", **client))
        await create_topic(producer, "T", MEMBERS)
        members = [
            PushConsumer("G", on_assignment=partial(hear, number), **client)
            for number in range(MEMBERS)
        ]
        for member in members:
            await stack.enter_async_context(member)
            await member.subscribe("T", "*", take, ordered=True)
        # Told of, and not only held: the news of the last change may come a moment later.
        await until(
            lambda: (
                [len(mine) for mine in told.values()] == [1] * MEMBERS
                and {q.queue_id for mine in told.values() for q in mine} == {*range(MEMBERS)}
            )
        )
        changes.clear()
        members[0].pause()  # it has no reason to look for the broker
        await cluster.stop_broker()
        await cluster.start_broker()
        clients = cluster.broker.parts.clients
        await until(lambda: len(clients.consumer_ids("G")) == MEMBERS - 1, within=PATIENCE)
        await asyncio.sleep(0.5)  # time for the others to take its queue, which they must not
        members[0].resume()
        sent = {b"%d" % number for number in range(2 * MEMBERS)}
        for body in sorted(sent):
            await producer.send(Message("T", body))
        await until(lambda: got == sent, within=PATIENCE)
        assert changes == []
