"""Heartbeats to brokers, and the registry of producers and consumers they announce."""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import NamedTuple, Protocol, runtime_checkable

from bolide.client.errors import GroupTaken
from bolide.client.instance.routes import Routes
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, ProducerGroup
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.transactions import CheckTransactionHeader
from bolide.protocol.refusals import Refusal

log = logging.getLogger(__name__)


class ProducerMember(Protocol):
    """The interface of a producer to its instance; names include the namespace."""

    def topics(self) -> Collection[str]:
        """The topics whose routes are refreshed periodically."""
        ...


@runtime_checkable
class TransactionMember(Protocol):
    """A producer that answers transaction checks."""

    def check_transaction(
        self, message: StoredMessage, header: CheckTransactionHeader, address: str
    ) -> None:
        """Check a transaction and report its state to the broker at the address."""
        ...


class ConsumerMember(Protocol):
    """The interface of a consumer to its instance; names include the namespace."""

    def topics(self) -> Collection[str]:
        """The topics whose routes are refreshed periodically, including the retry topic."""
        ...

    def heartbeat_entry(self) -> ConsumerGroup: ...

    def route_changed(self, topic: str) -> None: ...

    def rebalance_soon(self) -> None:
        """Request a rebalance, because the members of the group changed."""
        ...

    def running(self) -> RunningConsumer: ...

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]: ...

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption: ...


class Members:
    """The producers and consumers of an instance; at most one of each per group."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)

    def add_producer(self, group: str, producer: ProducerMember) -> None:
        """Raises GroupTaken if the group has one already."""
        if group in self.producers:
            raise GroupTaken("producer", group, self._client_id)
        self.producers[group] = producer

    def add_consumer(self, group: str, consumer: ConsumerMember) -> None:
        """Raises GroupTaken if the group has one already."""
        if group in self.consumers:
            raise GroupTaken("consumer", group, self._client_id)
        self.consumers[group] = consumer

    def topics(self) -> set[str]:
        """All topics whose routes are refreshed periodically."""
        members = (*self.producers.values(), *self.consumers.values())
        return {topic for member in members for topic in member.topics()}

    def route_changed(self, topic: str) -> None:
        """Notify the consumers of a topic."""
        for consumer in self.consumers.values():
            if topic in consumer.topics():
                consumer.route_changed(topic)

    def heartbeat(self) -> Heartbeat:
        """The heartbeat that announces all groups."""
        return Heartbeat(
            client_id=self._client_id,
            producer_data_set=[ProducerGroup(group) for group in self.producers],
            consumer_data_set=[each.heartbeat_entry() for each in self.consumers.values()],
        )


class BrokerCall(Protocol):
    """Sends a request to a broker."""

    def __call__(
        self, address: str, code: RequestCode, *, body: bytes = b"", within: float | None = None
    ) -> Awaitable[Frame]: ...


class ConnectionStates(Protocol):
    """The state of the connections to brokers."""

    def is_connected(self, address: str) -> bool: ...

    def reconnected_at(self, address: str) -> float: ...


class _Announcement(NamedTuple):
    """The last heartbeat a broker acknowledged; `when` is by the loop's clock."""

    when: float
    producers: frozenset[str]


class Heartbeats:
    """Sends heartbeats to the masters, and to slaves too if there are consumers."""

    def __init__(self, members: Members, routes: Routes, call: BrokerCall) -> None:
        self._members = members
        self._routes = routes
        self._call = call
        self._announced: dict[str, _Announcement] = {}
        self._requested = asyncio.Event()
        self._unresponsive: set[str] = set()  # brokers whose failure was logged
        # Brokers may process requests in any order, so heartbeats to one broker are serialized.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def soon(self) -> None:
        """Request a heartbeat before the next interval."""
        self._requested.set()

    async def run(self, interval: float, guarded: Callable[[], Awaitable[None]]) -> None:
        """Call `guarded`, which sends heartbeats, at the interval and on request."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._requested.wait()
            self._requested.clear()
            await guarded()

    async def send(self) -> None:
        """Announce all groups to every broker of the known routes; failures are logged."""
        if not self._members:
            return
        self._requested.clear()
        routes = self._routes
        addresses = routes.addresses() if self._members.consumers else routes.masters()
        await asyncio.gather(*map(self._send_to, addresses))

    async def announce_producer(self, group: str, connections: ConnectionStates) -> None:
        """Announce a producer group to every responsive master that does not know it.

        The caller sets the deadline: an unreachable broker may delay the call.
        """
        if group not in self._members.producers:
            return
        masters = self._routes.masters() - self._unresponsive
        missing = [each for each in masters if not self._knows(each, group, connections)]
        await asyncio.gather(
            *(self._announce_unless_known(each, group, connections) for each in missing)
        )

    async def _announce_unless_known(
        self, address: str, group: str, connections: ConnectionStates
    ) -> None:
        async with self._locks[address]:
            if not self._knows(
                address, group, connections
            ):  # a concurrent heartbeat may have announced it
                await self._announce(address)

    def _knows(self, address: str, group: str, connections: ConnectionStates) -> bool:
        """Whether the broker was told on the current connection: it forgets a lost client."""
        announced = self._announced.get(address, _Announcement(-math.inf, frozenset()))
        is_new = connections.reconnected_at(address) >= announced.when
        return group in announced.producers and connections.is_connected(address) and not is_new

    async def probe(self, address: str, within: float) -> bool:
        """Send a heartbeat to a broker that failed; whether it answered in time."""
        async with self._locks[address]:
            return await self._announce(address, within=within)

    async def _send_to(self, address: str) -> None:
        async with self._locks[address]:
            await self._announce(address)

    async def _announce(self, address: str, *, within: float | None = None) -> bool:
        """Send a heartbeat, under the lock of the broker; a failure is logged once."""
        began = asyncio.get_running_loop().time()
        producers = frozenset(self._members.producers)
        try:
            body = fastjson.encode(self._members.heartbeat())
            await self._call(address, RequestCode.HEART_BEAT, body=body, within=within)
        except BolideError as exc:
            if address not in self._unresponsive:
                self._unresponsive.add(address)
                log.warning("broker %s does not accept heartbeats: %s", address, exc)
            return isinstance(exc, Refusal)
        self._announced[address] = _Announcement(began, producers)
        if address in self._unresponsive:
            self._unresponsive.discard(address)
            log.info("broker %s accepts heartbeats again", address)
        return True

    def forget_brokers(self) -> None:
        """Drop the state of brokers that are in no route any more."""
        known = self._routes.addresses()
        self._unresponsive &= known
        self._announced = {
            address: announced for address, announced in self._announced.items() if address in known
        }
        for address in self._locks.keys() - known:
            if not self._locks[address].locked():
                del self._locks[address]
