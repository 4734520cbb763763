"""Runs operations on a cluster, as the console does for an operator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bolide import AdminClient, Message, Producer
from bolide.operations import catalog
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role
from bolide.operations.door import CONFIRMED, AuditEntry, Caller, Door
from bolide.operations.errors import NotFound
from bolide.operations.messages.views import MessageList
from tests.support.aio import PATIENCE


class Audit:
    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def write(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


class Desk:
    """Runs operations by name."""

    def __init__(self, cluster: Cluster, audit: Audit) -> None:
        self.cluster = cluster
        self.audit = audit
        self._door = Door(audit)

    async def __call__(self, name: str, confirmation: str = CONFIRMED, **arguments: Any) -> Any:
        caller = Caller(name="ann", role=Role.OPERATOR, source="test")
        operation = catalog.OPERATIONS[name]
        return await self._door.run(
            operation, self.cluster, caller, arguments, confirmation=confirmation
        )

    async def search(self, topic: str, **options: Any) -> MessageList:
        found: MessageList = await self("messages.search_messages", topic=topic, **options)
        return found

    async def soon(self, name: str, **arguments: Any) -> Any:
        """The answer, once the index has the message."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    found = await self(name, **arguments)
                    if not isinstance(found, MessageList) or found.items:
                        return found
                except NotFound:
                    pass
                await asyncio.sleep(0.01)


@asynccontextmanager
async def desk_at(name_server: str) -> AsyncIterator[Desk]:
    async with AdminClient(name_server) as admin:
        yield Desk(Cluster(admin=admin, name_servers=name_server), Audit())


async def send(name_server: str, topic: str, messages: list[Message]) -> list[str]:
    """Send messages to the queues of a topic in turn; returns the ids."""
    async with Producer("shop", name_server=name_server) as producer:
        queues = await producer.fetch_publish_queues(topic)
        return [
            (await producer.send(each, queue=queues[number % len(queues)])).message_id
            for number, each in enumerate(messages)
        ]
