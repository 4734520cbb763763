"""Producers for tests."""

from contextlib import suppress

from bolide.client.producer.producer import Producer
from bolide.errors import BolideError


class Warm(Producer):
    """One that knows the way to topic `T` from its start: the first send is like all others."""

    async def start(self) -> None:
        await super().start()
        instance = self._instance
        with suppress(BolideError):  # a test may be about that
            for queue in await instance.routes.publish_queues(self._client.wrap("T")):
                await instance.remoting.connect(instance.routes.brokers[queue.broker_name][0])
