"""Work that one master begins and the next one has to finish: left and looked at by clients."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from bolide import AdminClient, Message, SendResult, TransactionProducer, TransactionState
from bolide.client.errors import RouteNotFound
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import Record
from tests.support.broker import BrokerClient
from tests.support.popping import PopClient

T = TypeVar("T")

TOPIC, POPPED, ONCE = "T", "Popped", "Once"
DUE = 8.0
"""Seconds after which everything is due. The first master has to be gone by then, which takes less
than a second; the rest is for busy machines."""
SETTINGS = {
    "messageDelayLevel": f"{DUE:g}s",
    "transactionTimeOut": f"{DUE * 1000:g}",
    "transactionCheckInterval": "200",
    "slaveMetadataSyncInterval": "100",
}
"""Of the brokers, as in a broker.conf."""
_PATIENCE = 30.0


class PendingWork:
    """A half message, two delayed messages, a popped message and a dedup key.

    The producer stays connected over the change of the master. Each topic has one queue.
    """

    def __init__(self, name_servers: str) -> None:
        self._name_servers = name_servers
        self.checked: list[bytes] = []
        self.producer = TransactionProducer(
            "writers", check=self._check, name_server=name_servers, send_timeout=5.0,
            route_interval=0.2, heartbeat_interval=0.5,
        )  # fmt: skip
        self._first: SendResult

    async def __aenter__(self) -> Self:
        await self.producer.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.producer.close()

    def _check(self, message: StoredMessage) -> TransactionState:
        self.checked.append(message.body)
        return TransactionState.COMMIT

    # ---- at the first master

    async def create_topics(self, master: str, *others: str) -> None:
        """Create the topics, and wait until all members and the NameServers know them."""
        windows = {TOPIC: {}, POPPED: {}, ONCE: {"+dedup.window": "1h"}}
        async with AdminClient(self._name_servers) as admin, asyncio.timeout(_PATIENCE):
            for name, attributes in windows.items():
                config = TopicConfig(
                    topic_name=name, read_queue_nums=1, write_queue_nums=1, attributes=attributes
                )
                await admin.topics.update(master, config)
            for other in others:
                await polled(partial(self._knows, admin, other), bool)
            for name in windows:
                await self._has_route(name)

    async def _has_route(self, topic: str) -> None:
        while True:
            try:
                await self.producer.fetch_publish_queues(topic)
            except RouteNotFound:
                await asyncio.sleep(0.05)
            else:
                return

    async def _knows(self, admin: AdminClient, broker: str) -> bool:
        found = (await admin.topics.configs(broker)).topic_config_table
        return {TOPIC, POPPED, ONCE} <= found.keys() and bool(found[ONCE].attributes)

    async def leave(self, master: str) -> None:
        """Leave all of it at the master; nothing is due before `DUE`."""
        due = time.time() + DUE
        await self.producer.begin(Message(TOPIC, b"half"))
        await self.producer.send(Message(TOPIC, b"timed", deliver_at=due))
        await self.producer.send(Message(TOPIC, b"delayed", delay_level=1))
        await self.producer.send(Message(POPPED, b"popped"))
        self._first = await self.producer.send(Message(ONCE, b"once", dedup_key="k"))
        async with PopClient(master) as client:
            popped = await client.pop(POPPED, invisible_time=int(DUE * 1000))
            assert popped.bodies == [b"popped"]

    # ---- at the next one

    async def finished(self, master: str, *, since: float) -> None:
        """Wait until the broker has finished it, and check that nothing was done before.

        Args:
            since: when the first master was gone.
        """
        async with PopClient(master) as client, asyncio.timeout(_PATIENCE):
            popped = await polled(partial(client.pop, POPPED), lambda found: found.messages)
            assert popped.bodies == [b"popped"]
            assert popped.messages[0].record.reconsume_times == 1
            records = await polled(partial(contents, client, TOPIC), lambda found: len(found) >= 3)
        bodies = sorted(bytes(record.body) for record in records)
        assert bodies == [b"delayed", b"half", b"timed"]
        assert all(record.store_timestamp >= since * 1000 for record in records)
        assert set(self.checked) == {b"half"}

    async def repeat_is_known(self, master: str) -> None:
        """Send the dedup key again: it has the place of the first message, and is not stored."""
        again = await self.producer.send(Message(ONCE, b"once", dedup_key="k"))
        assert again.repeats == 1
        assert again.queue_offset == self._first.queue_offset
        assert physical_offset(again) == physical_offset(self._first)
        async with BrokerClient(master) as client:
            assert len(await contents(client, ONCE)) == 1


async def polled(ask: Callable[[], Awaitable[T]], is_enough: Callable[[T], object]) -> T:
    """Ask a server again and again, and return the first answer that is enough."""
    while not is_enough(answer := await ask()):  # noqa: ASYNC110 - of a server
        await asyncio.sleep(0.05)
    return answer


def physical_offset(sent: SendResult) -> int:
    """Where the message is in the log; the address in its id is that of the broker asked."""
    return OffsetId.decode(sent.offset_message_id).physical_offset


async def contents(client: BrokerClient, topic: str) -> list[Record]:
    """All messages of queue 0."""
    return (await client.pull(topic)).records
