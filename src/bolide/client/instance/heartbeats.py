"""Heartbeats to brokers, and the producers and consumers they announce."""

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


class ProducerMember(Protocol):
    """A producer, as its instance sees it. Names are those on the wire."""

    def topics(self) -> Collection[str]:
        """The topics whose routes are kept fresh."""
        ...


@runtime_checkable
class TransactionMember(Protocol):
    """A producer that can be asked about its transactions."""

    def check_transaction(
        self, message: StoredMessage, header: CheckTransactionHeader, address: str
    ) -> None:
        """A broker asks what became of one; the answer goes to the address."""
        ...


class ConsumerMember(Protocol):
    """A consumer, as its instance sees it. Names are those on the wire."""

    def topics(self) -> Collection[str]:
        """The topics whose routes are kept fresh, that of the group's retries among them."""
        ...

    def heartbeat_entry(self) -> ConsumerGroup: ...

    def route_changed(self, topic: str) -> None: ...

    def rebalance_soon(self) -> None:
        """The members of the group changed."""
        ...

    def running(self) -> RunningConsumer: ...

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]: ...

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption: ...


class Members:
    """Who shares an instance, by group; each group has at most one of a kind."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)

    def add_producer(self, group: str, producer: ProducerMember) -> None:
        """Raises GroupTaken if there is one of that group."""
        if group in self.producers:
            raise GroupTaken("producer", group, self._client_id)
        self.producers[group] = producer

    def add_consumer(self, group: str, consumer: ConsumerMember) -> None:
        """Raises GroupTaken if there is one of that group."""
        if group in self.consumers:
            raise GroupTaken("consumer", group, self._client_id)
        self.consumers[group] = consumer

    def topics(self) -> set[str]:
        """All topics whose routes are kept fresh."""
        members = (*self.producers.values(), *self.consumers.values())
        return {topic for member in members for topic in member.topics()}

    def route_changed(self, topic: str) -> None:
        """Tell the consumers of a topic."""
        for consumer in self.consumers.values():
            if topic in consumer.topics():
                consumer.route_changed(topic)

    def heartbeat(self) -> Heartbeat:
        """What brokers are told of them."""
        return Heartbeat(
            client_id=self._client_id,
            producer_data_set=[ProducerGroup(group) for group in self.producers],
            consumer_data_set=[each.heartbeat_entry() for each in self.consumers.values()],
        )


log = logging.getLogger(__name__)


class Call(Protocol):
    """The way to ask a broker."""

    def __call__(
        self, address: str, code: RequestCode, *, body: bytes = b""
    ) -> Awaitable[Frame]: ...


class Links(Protocol):
    """What is known of the connections to brokers."""

    def is_connected(self, address: str) -> bool: ...

    def reconnected_at(self, address: str) -> float: ...


class _Told(NamedTuple):
    """What a broker knows, and since when by the loop's clock."""

    when: float
    producers: frozenset[str]


class Heartbeats:
    """Go to the masters for producers, to slaves too if there are consumers."""

    def __init__(self, members: Members, routes: Routes, call: Call) -> None:
        self._members = members
        self._routes = routes
        self._call = call
        self._told: dict[str, _Told] = {}
        self._wanted = asyncio.Event()
        self._silent: set[str] = set()  # brokers whose silence was told of
        # RocketMQ's brokers take requests in any order: an older one must not come in last.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def soon(self) -> None:
        """Have one sent now rather than at the next interval."""
        self._wanted.set()

    async def run(self, interval: float, guarded: Callable[[], Awaitable[None]]) -> None:
        """Have one sent every so many seconds, and whenever it is wanted."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._wanted.wait()
            self._wanted.clear()
            await guarded()

    async def send(self) -> None:
        """Tell every broker of the known routes which groups are here; failures are logged."""
        if not self._members:
            return
        self._wanted.clear()
        routes = self._routes
        addresses = routes.addresses() if self._members.consumers else routes.masters()
        await asyncio.gather(*map(self._send_to, addresses))

    async def reach(self, group: str, links: Links) -> None:
        """See to it that every master that takes heartbeats knows of a producer group.

        The caller sets the deadline: a broker that is gone may let it wait for a while.
        """
        if group not in self._members.producers:
            return
        masters = self._routes.masters() - self._silent
        unaware = [each for each in masters if not self._knows(each, group, links)]
        await asyncio.gather(*(self._make_aware(each, group, links) for each in unaware))

    async def _make_aware(self, address: str, group: str, links: Links) -> None:
        async with self._turns[address]:
            if not self._knows(address, group, links):  # somebody else may have told it meanwhile
                await self._tell(address)

    def _knows(self, address: str, group: str, links: Links) -> bool:
        """A broker forgets a client with its connection."""
        told = self._told.get(address, _Told(-math.inf, frozenset()))
        is_new = links.reconnected_at(address) >= told.when
        return group in told.producers and links.is_connected(address) and not is_new

    async def _send_to(self, address: str) -> None:
        async with self._turns[address]:
            await self._tell(address)

    async def _tell(self, address: str) -> None:
        """In its turn; a failure is logged once."""
        began = asyncio.get_running_loop().time()
        producers = frozenset(self._members.producers)
        try:
            body = fastjson.encode(self._members.heartbeat())
            await self._call(address, RequestCode.HEART_BEAT, body=body)
        except BolideError as exc:
            if address not in self._silent:
                self._silent.add(address)
                log.warning("broker %s does not take heartbeats: %s", address, exc)
            return
        self._told[address] = _Told(began, producers)
        if address in self._silent:
            self._silent.discard(address)
            log.info("broker %s takes heartbeats again", address)

    def forget_brokers(self) -> None:
        """Drop what was noted of brokers that no route names any more."""
        known = self._routes.addresses()
        self._silent &= known
        self._told = {address: told for address, told in self._told.items() if address in known}
        for address in self._turns.keys() - known:
            if not self._turns[address].locked():
                del self._turns[address]
