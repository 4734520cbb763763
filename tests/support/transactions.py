"""Transactions whose messages say what becomes of them."""

import asyncio
from collections.abc import Iterable

from bolide import PullConsumer, PullStatus, TransactionState
from bolide.model.message import Message, StoredMessage
from tests.support.aio import until

WAYS = ("commit-x-0", "rollback-x-1", "unknown-commit-2", "unknown-rollback-3")
"""What the local transaction says, then what the check says, then a number."""


class Book:
    """What the local transactions and the checks of a producer said."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    def local(self, message: Message) -> TransactionState:
        return state_of(message.body, 0)

    def check(self, message: StoredMessage) -> TransactionState:
        state = state_of(message.body, 1)
        self.checked.append(message.body.decode())
        return state

    async def all_known(self, bodies: Iterable[str], *, within: float = 30.0) -> None:
        """Wait until all were asked about that must be."""
        wanted = {body for body in bodies if body.startswith("unknown")}
        await until(lambda: wanted <= set(self.checked), within=within)


def state_of(body: bytes, word: int) -> TransactionState:
    return {
        "commit": TransactionState.COMMIT,
        "rollback": TransactionState.ROLLBACK,
    }.get(body.decode().split("-")[word], TransactionState.UNKNOWN)


async def delivered(name_server: str, topic: str) -> list[str]:
    """The bodies of all messages of a topic."""
    found: list[str] = []
    async with PullConsumer("looking", name_server=name_server) as consumer:
        for queue in await consumer.fetch_subscribe_queues(topic):
            offset = await consumer.min_offset(queue)
            while offset < await consumer.max_offset(queue):
                pulled = await consumer.pull(queue, "*", offset, 32)
                if pulled.status is PullStatus.FOUND:
                    found += [message.body.decode() for message in pulled.messages]
                offset = max(pulled.next_offset, offset)
                await asyncio.sleep(0)
    return found


async def all_delivered(
    name_server: str, topic: str, bodies: set[str], *, within: float = 30.0
) -> list[str]:
    """Wait until just these are there; all of them, with their repeats."""
    async with asyncio.timeout(within):
        while True:
            found = await delivered(name_server, topic)
            if set(found) == bodies:
                return found
            assert set(found) <= bodies, "what was not committed is there"
            await asyncio.sleep(0.1)
