"""Routes of topics as NameServers report them, and the NameServers a client asks.

Plain values and one question: who asks the NameServer, and when, is the instance's business.
"""

import logging
import random
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import NamedTuple

import msgspec

from bolide.client.errors import BrokerUnknown, RouteNotFound, WrongState
from bolide.client.instance.settings import parse_addresses
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import QueueRoute, TopicRoute
from bolide.remoting.tasks import SingleFlight

log = logging.getLogger("bolide.client.routes")  # documented in docs/how-to/logging.md

REFRESH_INTERVAL = 120.0
"""Seconds between two looks at an address server."""

RETRY_INTERVAL = 1.0
"""The same as long as it has told no list."""

_MAX_ANSWER = 64 * 1024


class NameServers:
    """One of the list is asked until it fails, then the next; clients begin at different ones."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._addresses = tuple(addresses)
        self._chosen = _any_place(self._addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._addresses

    def set(self, addresses: str | Iterable[str]) -> bool:
        """Replace the list; False if it says the same as before.

        Raises:
            ConfigError: an address is not of the form host:port.
        """
        wanted = parse_addresses(addresses)
        if set(wanted) == set(self._addresses):
            return False
        log.info("the NameServers are now %s", ", ".join(wanted) or "none")
        self._addresses = wanted
        self._chosen = _any_place(wanted)
        return True

    def in_order(self) -> tuple[str, ...]:
        """All of them, the chosen one first."""
        return self._addresses[self._chosen :] + self._addresses[: self._chosen]

    def choose(self, address: str) -> None:
        """It answered: ask it first from now on."""
        if address in self._addresses:
            self._chosen = self._addresses.index(address)


def _any_place(addresses: tuple[str, ...]) -> int:
    return random.randrange(len(addresses)) if addresses else 0  # noqa: S311  to spread load


def fetch_addresses(url: str, timeout: float) -> tuple[str, ...]:
    """Ask an address server for the list. Blocks.

    Raises:
        ConfigError: the URL or the answer cannot be used.
        OSError: it does not answer.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"address_server={url!r}: must be a URL of http:// or https://")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=timeout) as answer:
            text = answer.read(_MAX_ANSWER).decode("utf-8", "replace")
    except (HTTPException, ValueError) as exc:
        raise ConfigError(f"address_server={url!r}: what answers there is no HTTP: {exc}") from exc
    return parse_addresses(text.strip())


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


class _Known(NamedTuple):
    """A route, and the queues of it for producers and for consumers."""

    route: TopicRoute
    publish: Queues
    subscribe: Queues


_Wanted = tuple[str, Fallback | None]


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
        self._known: dict[str, _Known] = {}
        self._learning: SingleFlight[_Wanted, _Known] = SingleFlight(_closed)

    async def close(self) -> None:
        """Ask no more; those who wait for a route get WrongState."""
        await self._learning.close()

    # Routes

    def find(self, topic: str) -> TopicRoute | None:
        known = self._known.get(topic)
        return known.route if known else None

    async def require(self, topic: str) -> TopicRoute:
        """Raises RouteNotFound or NoNameServer."""
        return (self._known.get(topic) or await self._learn(topic, None)).route

    async def refresh(self, topic: str) -> bool:
        """Ask again; True if the route changed.

        Raises:
            RouteNotFound: the NameServer knows it no longer. Whoever uses the old one may go on:
                a NameServer that has just been started knows nothing yet.
        """
        before = self._known.get(topic)
        return await self._renew(topic) is not before

    def forget_all_but(self, topics: Iterable[str]) -> None:
        """Drop the routes that nobody uses, and the brokers that only they named."""
        unused = self._known.keys() - set(topics)
        for topic in unused:
            del self._known[topic]
        if unused:
            self._forget_brokers()

    async def _learn(self, topic: str, fallback: Fallback | None) -> _Known:
        return await self._learning.run(
            (topic, fallback), lambda: self._renew(topic, fallback), f"route {topic}"
        )

    async def _renew(self, topic: str, fallback: Fallback | None = None) -> _Known:
        route = await self._ask(topic)
        if route is None and fallback is not None:
            route = _narrowed(await self._ask(fallback.topic), fallback.queues)
        if route is None:
            raise RouteNotFound(topic)
        return self._put(topic, _sorted(route))

    def _put(self, topic: str, route: TopicRoute) -> _Known:
        known = self._known.get(topic)
        is_new = known is None or known.route != route
        if known is None or is_new:
            if known is not None:
                log.info("the route of topic %s changed", topic)
            queues = tuple(publish_queues(topic, route)), tuple(subscribe_queues(topic, route))
            known = self._known[topic] = _Known(route, *queues)
        told = {each.broker_name: each.broker_addrs for each in route.broker_datas}
        if is_new or not told.items() <= self.brokers.items():
            self._note_brokers(told)
        if is_new:
            self._on_change(topic)
        return known

    # Queues

    def find_publish_queues(self, topic: str) -> Queues | None:
        known = self._known.get(topic)
        return known.publish if known else None

    async def publish_queues(self, topic: str, fallback: Fallback | None = None) -> Queues:
        """The writable queues of brokers with a master, sorted by broker.

        Raises:
            RouteNotFound: there is none, nor a topic to make it after.
            NoNameServer: there is nobody to ask.
        """
        known = self._known.get(topic)
        if known is None:
            known = await self._learn(topic, fallback)
        elif not known.publish:
            known = await self._renew(topic)
        if not known.publish:
            raise RouteNotFound(topic, "send to")
        return known.publish

    async def subscribe_queues(self, topic: str) -> Queues:
        """The readable queues, sorted. Raises as `publish_queues` does."""
        known = self._known.get(topic) or await self._learn(topic, None)
        if not known.subscribe:
            raise RouteNotFound(topic, "read from")
        return known.subscribe

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
            with suppress(RouteNotFound):
                await self.refresh(topic)
            address = self.master(broker_name)
        if address is None:
            raise BrokerUnknown(broker_name)
        return address

    def find_broker(self, broker_name: str, broker_id: int) -> BrokerAddress | None:
        """Where to pull from: the wanted member, for a slave the next one, else any."""
        members = self.brokers.get(broker_name) or {}
        wanted = [broker_id] if broker_id == MASTER_ID else [broker_id, broker_id + 1]
        for number in [*wanted, *sorted(members)]:
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

    def _note_brokers(self, told: Mapping[str, dict[int, str]]) -> None:
        """What was told last counts: another topic's route may be older than a broker's move."""
        known = self.addresses()
        self.brokers |= told
        self._forget_brokers()
        if self.addresses() - known:
            self._on_new_broker()

    def _forget_brokers(self) -> None:
        routes = (known.route for known in self._known.values())
        named = {broker.broker_name for route in routes for broker in route.broker_datas}
        self.brokers = {name: self.brokers[name] for name in self.brokers if name in named}


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


def _closed(wanted: _Wanted) -> WrongState:
    return WrongState(f"the client was closed while it asked for the route of {wanted[0]!r}")
