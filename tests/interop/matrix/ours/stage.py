"""What one cell plays on: a topic, a group, and the producer and reader that all cells share."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolide import Message, MessageQueue, Producer, PullConsumer, PushConsumer
from bolide.client.consumer.settings import PushArguments
from bolide.client.errors import RouteNotFound
from tests.interop.matrix import facts
from tests.interop.matrix.ours.telling import message_told

PATIENCE = 45.0
SETTLING = 0.3
ROUTE_INTERVAL = 1.0

Facts = dict[str, object]
Cell = Callable[["Stage"], Awaitable[Facts]]


@dataclass(frozen=True)
class Stage:
    """One cell's topic and group."""

    name_server: str
    broker: str
    prefix: str
    cell: str
    producer: Producer
    reader: PullConsumer
    directory: Path

    @property
    def topic(self) -> str:
        return f"{self.prefix}_{self.cell}"

    @property
    def group(self) -> str:
        return f"{self.topic}_group"

    def message(self, body: str, tags: str = "", delay_level: int = 0) -> Message:
        return Message(self.topic, body.encode(), tags=tags, delay_level=delay_level)

    async def send(self, word: str, count: int) -> None:
        for n in range(count):
            await self.producer.send(self.message(f"{word} {n}"))

    async def queues(self, topic: str | None = None) -> list[MessageQueue]:
        """The queues of the topic by number, once its route is known."""
        found: list[MessageQueue] = []

        async def are_known() -> bool:
            try:
                found[:] = await self.reader.fetch_subscribe_queues(topic or self.topic)
            except RouteNotFound:
                return False
            return bool(found)

        await until(are_known)
        return sorted(found)

    async def stored(self, count: int, topic: str | None = None) -> list[facts.Message]:
        """What the queues of a topic hold, once they hold so many."""
        return await self.stored_until(lambda found: len(found) >= count, topic)

    async def stored_until(
        self, is_enough: Callable[[list[facts.Message]], bool], topic: str | None = None
    ) -> list[facts.Message]:
        """What the queues of a topic hold, once it is enough."""
        positions = dict.fromkeys(await self.queues(topic), 0)
        found: list[facts.Message] = []

        async def are_there() -> bool:
            for queue, position in positions.items():
                pulled = await self.reader.pull(queue, "*", position)
                positions[queue] = pulled.next_offset
                found.extend(map(message_told, pulled.messages))
            return is_enough(found)

        await until(are_there)
        return found

    def push_consumer(self, **arguments: object) -> PushConsumer:
        """A consumer of the group, from the first message on unless told otherwise."""
        settings: PushArguments = {
            "name_server": self.name_server,
            "consume_from": "first",
            "route_interval": ROUTE_INTERVAL,
        }
        settings.update(arguments)  # type: ignore[typeddict-item]  # as the cell spells them
        return PushConsumer(self.group, **settings)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for it, but not for ever: the facts tell whether it came."""
    deadline = time.monotonic() + PATIENCE
    while not await condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - of a server
        await asyncio.sleep(0.02)


async def until_so(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await until(holds)


async def settle() -> None:
    """Time for what must not come."""
    await asyncio.sleep(SETTLING)


def numbered(count: int) -> Sequence[str]:
    return [f"message {n}" for n in range(count)]
