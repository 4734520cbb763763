"""A NameServer and a broker of ours as processes, for tests whose own thread is busy."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bolide import Message, Producer, SendResult
from tests.interop.bench import Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.own_cluster import create_topic

_BATCH = 1000
QUICK_DELAYS = " ".join(["1s"] * 18)


@dataclass
class ClusterProcess:
    """Where it is reached; its brokers can be stopped, killed and started again."""

    directory: Path
    namesrv: Server
    brokers: dict[str, Server] = field(default_factory=dict)
    _stacks: dict[str, ExitStack] = field(default_factory=dict)
    _settings: dict[str, dict[str, object]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.namesrv.port}"

    def start_broker(self, name: str = "broker-a", /, **settings: object) -> Server:
        """Start it, a second time on the same port and store, with the settings of the first."""
        chosen = self._settings.setdefault(
            name, {"brokerName": name, "messageDelayLevel": QUICK_DELAYS, **settings}
        )
        stack = self._stacks[name] = ExitStack()
        broker = stack.enter_context(bolide_broker(self.directory / name, self.address, **chosen))
        chosen["listenPort"] = broker.port
        self.brokers[name] = broker
        return broker

    def stop_broker(self, name: str = "broker-a") -> None:
        self.brokers.pop(name)
        self._stacks.pop(name).close()

    def kill_broker(self, name: str = "broker-a") -> None:
        self.brokers[name].process.kill()
        self.stop_broker(name)

    def close(self) -> None:
        for name in list(self.brokers):
            self.stop_broker(name)

    # Messages

    def create_topic(self, topic: str, queues: int = 4) -> None:
        async def create() -> None:
            async with Producer("setup", name_server=self.address) as producer:
                await create_topic(producer, topic, queues)

        asyncio.run(create())

    def send(self, messages: Iterable[Message]) -> list[SendResult]:
        """Send one after the other."""

        async def send() -> list[SendResult]:
            async with Producer("setup", name_server=self.address) as producer:
                return [await producer.send(message) for message in messages]

        return asyncio.run(send())

    def fill(self, topic: str, count: int, size: int = 128) -> None:
        """Send so many messages, each with its number as key, in batches one after the other."""

        async def fill() -> None:
            async with Producer("setup", name_server=self.address) as producer:
                for start in range(0, count, _BATCH):
                    numbers = range(start, min(start + _BATCH, count))
                    bodies = (f"{number:0{size}d}".encode() for number in numbers)
                    await producer.send_batch(
                        [
                            Message(topic, body, keys=str(number), tags="TagA")
                            for number, body in zip(numbers, bodies, strict=True)
                        ]
                    )

        asyncio.run(fill())


@contextmanager
def cluster_process(directory: Path, **settings: object) -> Iterator[ClusterProcess]:
    """One NameServer and one broker, `broker-a`; more by `start_broker`."""
    with bolide_namesrv(directory / "namesrv") as namesrv:
        cluster = ClusterProcess(directory, namesrv)
        try:
            cluster.start_broker(**settings)
            yield cluster
        finally:
            cluster.close()
