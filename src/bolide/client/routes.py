"""Where the queues of topics are: routes as the NameServer told them, and what follows from them.

Plain values and one question: who asks the NameServer, and when, is the instance's business.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from bolide.client.errors import BrokerUnknown, RouteNotFound
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import QueueRoute, TopicRoute

log = logging.getLogger(__name__)

READ, WRITE = 4, 2
MASTER_ID = 0

Queues = tuple[MessageQueue, ...]


class BrokerAddress(NamedTuple):
    address: str
    is_slave: bool


class Fallback(NamedTuple):
    """The topic after which a broker makes a missing one, and how many queues it shall have."""

    topic: str
    queues: int


class Routes:
    """Known routes by topic; a topic that is not known is asked for once at a time."""

    def __init__(
        self,
        ask: Callable[[str], Awaitable[TopicRoute | None]],
        *,
        on_change: Callable[[str], None] = lambda _topic: None,
        on_new_broker: Callable[[], None] = lambda: None,
    ) -> None:
        self.brokers: dict[str, dict[int, str]] = {}
        self._ask = ask
        self._on_change = on_change
        self._on_new_broker = on_new_broker
        self._routes: dict[str, TopicRoute] = {}
        self._publish: dict[str, Queues] = {}
        self._subscribe: dict[str, Queues] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    # Routes

    @property
    def topics(self) -> Collection[str]:
        return self._routes.keys()

    def find(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    async def require(self, topic: str) -> TopicRoute:
        """Raises RouteNotFound or NoNameServer."""
        return self._routes.get(topic) or await self._learn(topic, None)

    async def refresh(self, topic: str) -> bool:
        """Ask again; True if the route changed. One that is no longer found is kept."""
        route = await self._ask(topic)
        return route is not None and self._put(topic, route)

    def forget_all_but(self, topics: Iterable[str]) -> None:
        """Drop the routes that nobody uses, and the brokers that only they named."""
        unused = self._routes.keys() - set(topics)
        for topic in unused:
            del self._routes[topic], self._publish[topic], self._subscribe[topic]
            self._locks.pop(topic, None)
        if unused:
            self._collect_brokers()

    async def _learn(self, topic: str, fallback: Fallback | None) -> TopicRoute:
        async with self._locks.setdefault(topic, asyncio.Lock()):
            if topic not in self._routes:
                route = await self._ask(topic)
                if route is None and fallback is not None:
                    route = _narrowed(await self._ask(fallback.topic), fallback.queues)
                if route is None:
                    self._locks.pop(topic, None)
                    raise RouteNotFound(topic)
                self._put(topic, route)
            return self._routes[topic]

    def _put(self, topic: str, route: TopicRoute) -> bool:
        route = _sorted(route)
        if self._routes.get(topic) == route:
            return False
        if topic in self._routes:
            log.info("the route of topic %s changed", topic)
        self._routes[topic] = route
        self._publish[topic] = tuple(publish_queues(topic, route))
        self._subscribe[topic] = tuple(subscribe_queues(topic, route))
        self._collect_brokers()
        self._on_change(topic)
        return True

    # Queues

    def find_publish_queues(self, topic: str) -> Queues | None:
        return self._publish.get(topic)

    def find_subscribe_queues(self, topic: str) -> Queues | None:
        return self._subscribe.get(topic)

    async def publish_queues(self, topic: str, fallback: Fallback | None = None) -> Queues:
        """The writable queues of brokers with a master, sorted by broker.

        Raises:
            RouteNotFound: there is none, nor a topic to make it after.
            NoNameServer: there is nobody to ask.
        """
        if topic not in self._routes:
            await self._learn(topic, fallback)
        elif not self._publish[topic]:
            await self.refresh(topic)
        if not self._publish[topic]:
            raise RouteNotFound(topic, "send to")
        return self._publish[topic]

    async def subscribe_queues(self, topic: str) -> Queues:
        """The readable queues, sorted. Raises as `publish_queues` does."""
        await self.require(topic)
        if not self._subscribe[topic]:
            raise RouteNotFound(topic, "read from")
        return self._subscribe[topic]

    # Brokers

    def master(self, broker_name: str) -> str | None:
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    async def require_master(self, broker_name: str, topic: str) -> str:
        """The master's address; the topic's route is asked for anew if it is not known.

        Raises:
            BrokerUnknown: it is not known afterwards either.
        """
        address = self.master(broker_name)
        if address is None:
            await self.refresh(topic)
            address = self.master(broker_name)
        if address is None:
            raise BrokerUnknown(broker_name)
        return address

    def find_broker(
        self, broker_name: str, broker_id: int, *, only_this: bool = False
    ) -> BrokerAddress | None:
        """Where to pull from: the wanted member, for a slave the next one, else any."""
        members = self.brokers.get(broker_name) or {}
        wanted = [broker_id] if broker_id == MASTER_ID else [broker_id, broker_id + 1]
        for number in wanted if only_this else [*wanted, *sorted(members)]:
            if number in members:
                return BrokerAddress(members[number], number != MASTER_ID)
        return None

    def masters(self) -> set[str]:
        """The addresses of all masters."""
        return {group[MASTER_ID] for group in self.brokers.values() if MASTER_ID in group}

    def addresses(self) -> set[str]:
        """The addresses of all brokers."""
        return {address for group in self.brokers.values() for address in group.values()}

    def name_of(self, address: str) -> str | None:
        """The name of the broker at this address."""
        for name, members in self.brokers.items():
            if address in members.values():
                return name
        return None

    def _collect_brokers(self) -> None:
        known = self.addresses()
        brokers: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            for broker in route.broker_datas:
                brokers.setdefault(broker.broker_name, {}).update(broker.broker_addrs)
        self.brokers = brokers
        if self.addresses() - known:
            self._on_new_broker()


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues of a route that a producer may send to."""
    if route.order_topic_conf:
        return _ordered_queues(topic, route.order_topic_conf)
    masters = {each.broker_name for each in route.broker_datas if MASTER_ID in each.broker_addrs}
    return [
        MessageQueue(topic, queues.broker_name, number)
        for queues in sorted(route.queue_datas, key=_broker_name)
        if queues.perm & WRITE and queues.broker_name in masters
        for number in range(queues.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues of a route that a consumer may read."""
    return [
        MessageQueue(topic, queues.broker_name, number)
        for queues in sorted(route.queue_datas, key=_broker_name)
        if queues.perm & READ
        for number in range(queues.read_queue_nums)
    ]


def _ordered_queues(topic: str, text: str) -> list[MessageQueue]:
    """The queues that an order setting fixes, as in `broker-a:4;broker-b:4`."""
    found = []
    for part in text.split(";"):
        broker_name, _, count = part.partition(":")
        if count.strip().isdecimal():
            found += [MessageQueue(topic, broker_name.strip(), n) for n in range(int(count))]
    return found


def _broker_name(queues: QueueRoute) -> str:
    return queues.broker_name


def _sorted(route: TopicRoute) -> TopicRoute:
    """The NameServer tells the same route in any order."""
    return msgspec.structs.replace(
        route,
        queue_datas=sorted(route.queue_datas, key=_broker_name),
        broker_datas=sorted(route.broker_datas, key=lambda each: each.broker_name),
    )


def _narrowed(route: TopicRoute | None, most: int) -> TopicRoute | None:
    """The route of the topic to be made: no more queues than wanted."""
    if route is None:
        return None
    narrow = [
        msgspec.structs.replace(
            queues,
            read_queue_nums=min(most, queues.read_queue_nums),
            write_queue_nums=min(most, queues.read_queue_nums),
        )
        for queues in route.queue_datas
    ]
    return msgspec.structs.replace(route, queue_datas=narrow)
