"""Two broker groups and two NameServers, of which one is killed while messages flow."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bolide import AdminClient, Message, Producer, PushConsumer
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from tests.interop.bench import Server
from tests.interop.ours import bolide_namesrv
from tests.support.aio import on_loop, until
from tests.support.own_cluster import create_topic
from tests.support.restarting import RestartingBroker

QUEUES = 4
PATIENCE = 20.0
_HANGING = 60.0
"""Seconds that a client waits for a server that does not answer: what waits is far over
`_AT_ONCE`, also on a busy machine."""
_AT_ONCE = 5.0


class Stream:
    """Numbers sent one after the other, when each was stored, and which were received."""

    def __init__(self, producer: Producer) -> None:
        self.stored: dict[int, float] = {}
        self.places: list[str] = []
        self.failures: list[BolideError] = []
        self.received: set[int] = set()
        self._producer = producer

    async def run(self) -> None:
        for number in itertools.count():
            try:
                result = await self._producer.send(Message("T", b"%d" % number))
            except BolideError as exc:
                self.failures.append(exc)
            else:
                self.stored[number] = time.monotonic()
                self.places.append(result.queue.broker_name)
            await asyncio.sleep(0.002)

    async def take(self, message: StoredMessage) -> None:
        self.received.add(int(message.body))

    async def more(self, count: int) -> None:
        enough = len(self.stored) + count
        await until(lambda: len(self.stored) >= enough, within=PATIENCE)

    def longest_gap(self, since: float) -> float:
        """The longest time without a stored message that ended after a moment."""
        times = list(self.stored.values())
        pairs = itertools.pairwise(times)
        return max(after - before for before, after in pairs if after >= since)


class Cluster:
    def __init__(
        self, name_servers: list[Server], brokers: list[RestartingBroker], addresses: str
    ) -> None:
        self.name_servers = name_servers
        self.brokers = brokers
        self.addresses = addresses
        self.stream: Stream
        self.producer: Producer
        self.consumer: PushConsumer

    @asynccontextmanager
    async def flowing(self, route_interval: float = 300.0) -> AsyncIterator[Stream]:
        """Messages flow in the block; at its end all that were stored are received."""
        client = {
            "name_server": self.addresses,
            "route_interval": route_interval,
            "call_timeout": _HANGING,
            "connect_timeout": _HANGING,
        }
        async with (
            Producer("P", send_timeout=_HANGING, **client) as self.producer,  # type: ignore[arg-type]
            PushConsumer("G", consume_from="first", **client) as self.consumer,  # type: ignore[arg-type]
        ):
            stream = Stream(self.producer)
            await self.consumer.subscribe("T", "*", stream.take)
            await until(lambda: len(self.consumer.assigned_queues) == 2 * QUEUES, within=PATIENCE)
            sending = asyncio.create_task(stream.run())
            try:
                await stream.more(100)
                yield stream
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            await until(lambda: stream.received >= stream.stored.keys(), within=PATIENCE)


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(bolide_namesrv(directory / f"namesrv-{number}")) for number in "12"
        ]
        addresses = ";".join(each.address for each in servers)
        brokers = [
            RestartingBroker(name, directory, addresses) for name in ("broker-a", "broker-b")
        ]
        async with brokers[0], brokers[1]:
            async with Producer("maker", name_server=addresses, route_interval=0.05) as maker:
                await create_topic(maker, "T", QUEUES)
                async with asyncio.timeout(PATIENCE):
                    while len(await maker.fetch_publish_queues("T")) < 2 * QUEUES:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            yield Cluster(servers, brokers, addresses)


@on_loop
async def test_sends_go_on_at_once_when_a_broker_group_dies_and_when_it_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bolide.client.producer.retrying_sender")
    async with cluster(tmp_path) as it, it.flowing(route_interval=2.0) as stream:
        killed = time.monotonic()
        await it.brokers[0].kill()
        await stream.more(100)
        assert set(stream.places[-50:]) == {"broker-b"}
        # If the dead group were not avoided, each second send would try it first.
        assert caplog.text.count("a send to ") <= 5
        assert stream.longest_gap(killed) < _AT_ONCE  # some ms, unless the machine is busy
        # Consumers keep the queues of a broker that may be back soon until they poll the routes.
        await until(lambda: len(it.consumer.assigned_queues) == QUEUES, within=PATIENCE)
        await it.brokers[0].start()
        await until(lambda: "broker-a" in stream.places[-20:], within=PATIENCE)
        assert stream.failures == []


@on_loop
async def test_nobody_notices_that_a_name_server_dies(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.flowing() as stream:
        killed = time.monotonic()
        for server in it.name_servers[:1]:
            await asyncio.to_thread(server.kill)
        await stream.more(50)
        async with Producer(
            "new",
            name_server=it.addresses,
            send_timeout=_HANGING,
            call_timeout=_HANGING,
            connect_timeout=_HANGING,
        ) as producer:
            # Whoever waits for the dead NameServer does so for half of the timeout at least.
            async with asyncio.timeout(_AT_ONCE):
                await producer.send(Message("T", b"0"))
            await create_topic(producer, "Other", 1)
            await producer.send(Message("Other", b"0"))
        await stream.more(50)
        assert stream.longest_gap(killed) < _AT_ONCE
        assert stream.failures == []


async def addresses(admin: AdminClient) -> set[str]:
    """The brokers that the NameServer of an administrator knows."""
    info = await admin.clusters.info()
    return {a for each in info.broker_addr_table.values() for a in each.broker_addrs.values()}


@on_loop
async def test_name_servers_are_added_and_removed_while_a_broker_runs(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        first, second = it.name_servers
        broker = it.brokers[0].server
        assert broker is not None
        async with AdminClient(name_server=first.address) as admin:
            await admin.brokers.update_config(broker.address, {"namesrvAddr": second.address})
            async with asyncio.timeout(PATIENCE):
                while broker.address in await addresses(admin):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await admin.brokers.update_config(broker.address, {"namesrvAddr": it.addresses})
            async with asyncio.timeout(PATIENCE):
                while broker.address not in await addresses(admin):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
