"""A NameServer and a broker of ours inside the test's event loop, for tests of clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bolide.broker.server import Broker
from bolide.client.errors import RouteNotFound
from bolide.client.producer.producer import Producer
from bolide.namesrv.server import NameServer
from tests.support.aio import PATIENCE
from tests.support.broker import broker_in
from tests.support.name_servers import name_server

QUICK_DELAYS = " ".join(["1s"] * 18)


class OwnCluster:
    """Where it is reached, and its parts."""

    def __init__(self, name_server: NameServer, directory: Path, settings: dict[str, Any]) -> None:
        self.name_server = name_server
        self.broker: Broker
        self._directory = directory
        self._settings = settings
        self._serving = AsyncExitStack()

    @property
    def address(self) -> str:
        return self.name_server.address

    async def start_broker(self) -> None:
        served = broker_in(self._directory, name_servers=(self.address,), **self._settings)
        self.broker = await self._serving.enter_async_context(served)
        self._settings["listen_port"] = self.broker.config.value.listen_port  # also next time

    async def stop_broker(self) -> None:
        await self._serving.aclose()


async def create_topic(producer: Producer, topic: str, queues: int) -> None:
    """Make a topic, and wait until the NameServer has heard of it."""
    await producer.create_topic(topic, queues)
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await producer.fetch_publish_queues(topic)
            except RouteNotFound:
                await asyncio.sleep(0.005)
            else:
                return


@asynccontextmanager
async def own_cluster(directory: Path, **settings: Any) -> AsyncIterator[OwnCluster]:
    """Serve from files under `directory`; retries come after a second. Settings by field names."""
    (directory / "namesrv").mkdir(exist_ok=True)
    chosen = {"message_delay_level": QUICK_DELAYS} | settings
    async with name_server(directory / "namesrv") as servers:
        cluster = OwnCluster(servers, directory, chosen)
        await cluster.start_broker()
        try:
            yield cluster
        finally:
            await cluster.stop_broker()
