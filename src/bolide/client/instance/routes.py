"""Topic routes known to a client, and its list of NameServers.

`ClientInstance` performs the requests to NameServers and decides when to refresh routes.
"""

import logging
import random
import urllib.request
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import NamedTuple

import msgspec

from bolide.client.errors import BrokerUnknown, RouteNotFound, WrongState
from bolide.client.instance.settings import parse_addresses
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import QueueRoute, TopicRoute
from bolide.protocol.static_topics.addressing import NO_LEADER, is_logical, queue_leaders
from bolide.remoting.tasks import SingleFlight

log = logging.getLogger("bolide.client.routes")  # documented in docs/how-to/logging.md

REFRESH_INTERVAL = 120.0
"""Seconds between two queries of an address server."""

RETRY_INTERVAL = 1.0
"""Seconds between two queries before the first list is known."""

_MAX_LIST_SIZE = 64 * 1024
READ, WRITE = 4, 2
MASTER_ID = 0

Queues = tuple[MessageQueue, ...]


class NameServers:
    """A list of NameServers; one is used until it fails. The first is chosen at random."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._addresses = tuple(addresses)
        self._preferred = _random_index(self._addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._addresses

    def set(self, addresses: str | Iterable[str]) -> bool:
        """Replace the list; False if it has the same addresses.

        Raises:
            ConfigError: an address is not of the form host:port.
        """
        wanted = parse_addresses(addresses)
        if set(wanted) == set(self._addresses):
            return False
        log.info("the NameServers are now %s", ", ".join(wanted) or "none")
        self._addresses = wanted
        self._preferred = _random_index(wanted)
        return True

    def in_order(self) -> tuple[str, ...]:
        """All addresses, the preferred one first."""
        return self._addresses[self._preferred :] + self._addresses[: self._preferred]

    def prefer(self, address: str) -> None:
        """Use this address first from now on, because it answered."""
        if address in self._addresses:
            self._preferred = self._addresses.index(address)


def _random_index(addresses: tuple[str, ...]) -> int:
    return random.randrange(len(addresses)) if addresses else 0  # noqa: S311  to spread load


def fetch_addresses(url: str, timeout: float) -> tuple[str, ...]:
    """Fetch the list from an address server. Blocks.

    Raises:
        ConfigError: the URL or the reply is invalid.
        OSError: the server does not answer.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"address_server={url!r}: must be a URL of http:// or https://")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=timeout) as reply:
            text = reply.read(_MAX_LIST_SIZE).decode("utf-8", "replace")
    except (HTTPException, ValueError) as exc:
        raise ConfigError(f"address_server={url!r}: the server speaks no HTTP: {exc}") from exc
    return parse_addresses(text.strip())


class BrokerAddress(NamedTuple):
    address: str
    is_slave: bool


class TopicTemplate(NamedTuple):
    """The topic from which a broker creates a missing one, and its number of queues."""

    topic: str
    queues: int


class _KnownRoute(NamedTuple):
    """A route, and its queues for producers and for consumers."""

    route: TopicRoute
    publish: Queues
    subscribe: Queues
    leaders: dict[MessageQueue, str]
    """The brokers that lead the queues of a static topic; empty for other topics."""


_RouteKey = tuple[str, TopicTemplate | None]


class Routes:
    """Known routes by topic; concurrent requests for a missing route are merged."""

    def __init__(
        self,
        fetch_route: Callable[[str], Awaitable[TopicRoute | None]],
        *,
        on_change: Callable[[str], None] = lambda _topic: None,
        on_new_broker: Callable[[], None] = lambda: None,
        on_master_replaced: Callable[[str], None] = lambda _address: None,
    ) -> None:
        self.brokers: dict[str, dict[int, str]] = {}
        self.suspects: Container[str] = frozenset()
        """Addresses of brokers that did not answer; others are preferred."""
        self._fetch_route = fetch_route
        self._on_change = on_change
        self._on_new_broker = on_new_broker
        self._on_master_replaced = on_master_replaced
        self._known: dict[str, _KnownRoute] = {}
        self._fetches: SingleFlight[_RouteKey, _KnownRoute] = SingleFlight(_closed)

    async def close(self) -> None:
        """Cancel pending fetches; their callers get WrongState."""
        await self._fetches.close()

    # Routes

    def find(self, topic: str) -> TopicRoute | None:
        known = self._known.get(topic)
        return known.route if known else None

    async def require(self, topic: str) -> TopicRoute:
        """Raises RouteNotFound or NoNameServer."""
        return (self._known.get(topic) or await self._fetch_once(topic, None)).route

    async def refresh(self, topic: str) -> bool:
        """Fetch a route again; True if it changed.

        Raises:
            RouteNotFound: the NameServer does not know the topic. The known route is kept: a
                NameServer that has just started knows no routes yet.
        """
        before = self._known.get(topic)
        return await self._fetch(topic) is not before

    async def renew(self, topic: str) -> bool:
        """Fetch a route after a failure; True if it changed. Raises like `refresh`.

        Broker groups that left the route stay until the next `refresh`: a broker that is restarted
        is back soon, and consumers that gave up its queues would read their last messages again.
        """
        before = self._known.get(topic)
        route = await self._fetch_route(topic)
        if route is None:
            raise RouteNotFound(topic)
        if before is not None:
            route = _with_absent(route, before.route)
        return self._put(topic, _sorted(route)) is not before

    def forget_all_but(self, topics: Iterable[str]) -> None:
        """Drop all other routes, and the brokers that only they contain."""
        unused = self._known.keys() - set(topics)
        for topic in unused:
            del self._known[topic]
        if unused:
            self._forget_brokers()

    async def _fetch_once(self, topic: str, template: TopicTemplate | None) -> _KnownRoute:
        return await self._fetches.run(
            (topic, template), lambda: self._fetch(topic, template), f"route {topic}"
        )

    async def _fetch(self, topic: str, template: TopicTemplate | None = None) -> _KnownRoute:
        route = await self._fetch_route(topic)
        if route is None and template is not None:
            route = _limited(await self._fetch_route(template.topic), template.queues)
        if route is None:
            raise RouteNotFound(topic)
        return self._put(topic, _sorted(route))

    def _put(self, topic: str, route: TopicRoute) -> _KnownRoute:
        known = self._known.get(topic)
        is_new = known is None or known.route != route
        if known is None or is_new:
            if known is not None:
                log.info("the route of topic %s changed", topic)
            queues = tuple(publish_queues(topic, route)), tuple(subscribe_queues(topic, route))
            leaders = queue_leaders(topic, route.topic_queue_mapping_by_broker)
            known = self._known[topic] = _KnownRoute(route, *queues, leaders)
        named = {each.broker_name: each.broker_addrs for each in route.broker_datas}
        if is_new or not named.items() <= self.brokers.items():
            self._add_brokers(named)
        if is_new:
            self._on_change(topic)
        return known

    # Queues

    def find_publish_queues(self, topic: str) -> Queues | None:
        known = self._known.get(topic)
        return known.publish if known else None

    def lacks_masters(self, topic: str) -> bool:
        """Whether a topic cannot be sent to only because its brokers have no master now."""
        known = self._known.get(topic)
        if known is None or known.publish:
            return False
        return any(each.perm & WRITE and each.write_queue_nums for each in known.route.queue_datas)

    async def publish_queues(self, topic: str, template: TopicTemplate | None = None) -> Queues:
        """The writable queues of brokers with a master, sorted by broker.

        Raises:
            RouteNotFound: neither the topic nor the template topic has a route.
            NoNameServer: no NameServer can be reached.
        """
        known = self._known.get(topic)
        if known is None:
            known = await self._fetch_once(topic, template)
        elif not known.publish:
            known = await self._fetch(topic)
        if not known.publish:
            raise RouteNotFound(topic, "send to")
        return known.publish

    async def subscribe_queues(self, topic: str) -> Queues:
        """The readable queues, sorted. Raises like `publish_queues`."""
        known = self._known.get(topic) or await self._fetch_once(topic, None)
        if not known.subscribe:
            raise RouteNotFound(topic, "read from")
        return known.subscribe

    async def readable_brokers(self, topic: str) -> list[str]:
        """The brokers with readable queues, sorted. Raises like `publish_queues`.

        Pops address brokers, also those of a static topic.
        """
        queues = await self.subscribe_queues(topic)
        if not is_logical(queues[0].broker_name):
            return sorted({queue.broker_name for queue in queues})
        return sorted(
            each.broker_name
            for each in self._known[topic].route.queue_datas
            if each.perm & READ and each.read_queue_nums
        )

    # Brokers

    def broker_of(self, queue: MessageQueue) -> str:
        """The name of a queue's broker; for a logical queue, of its leader."""
        if not is_logical(queue.broker_name):
            return queue.broker_name
        known = self._known.get(queue.topic)
        return known.leaders.get(queue, NO_LEADER) if known else NO_LEADER

    def master_of(self, queue: MessageQueue) -> str | None:
        return self.master(self.broker_of(queue))

    async def require_master_of(self, queue: MessageQueue) -> str:
        """The address of the master; refreshes the route if it is unknown.

        Raises:
            BrokerUnknown: the refreshed route does not contain it either.
        """
        address = self.master_of(queue)
        if address is None:
            with suppress(RouteNotFound):
                await self.refresh(queue.topic)
            address = self.master_of(queue)
        if address is None:
            raise BrokerUnknown(self.broker_of(queue))
        return address

    def master(self, broker_name: str) -> str | None:
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    async def require_master(self, broker_name: str, topic: str) -> str:
        """The master's address; refreshes the topic's route if it is unknown.

        Raises:
            BrokerUnknown: the refreshed route does not contain it either.
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
        """The replica to pull from: the requested one, for a slave the next one, else any.

        A suspect is returned only if all members of the group are.
        """
        members = self.brokers.get(broker_name) or {}
        wanted = [broker_id] if broker_id == MASTER_ID else [broker_id, broker_id + 1]
        present = [number for number in [*wanted, *sorted(members)] if number in members]
        usable = (number for number in present if members[number] not in self.suspects)
        number = next(usable, present[0] if present else None)
        return None if number is None else BrokerAddress(members[number], number != MASTER_ID)

    def slaves_of(self, queue: MessageQueue) -> list[str]:
        """The addresses of the slaves of a queue's broker, suspects last."""
        members = self.brokers.get(self.broker_of(queue)) or {}
        addresses = [members[number] for number in sorted(members) if number != MASTER_ID]
        return sorted(addresses, key=lambda each: each in self.suspects)

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

    def _add_brokers(self, named: Mapping[str, dict[int, str]]) -> None:
        """Use the latest addresses: routes of other topics may predate a broker's move."""
        known = self.addresses()
        masters = {name: self.master(name) for name in named}
        self.brokers |= named
        self._forget_brokers()
        if self.addresses() - known:
            self._on_new_broker()
        for name, address in masters.items():
            if address is not None and self.master(name) not in {None, address}:
                log.info("the master of %s is now %s", name, self.master(name))
                self._on_master_replaced(address)

    def _forget_brokers(self) -> None:
        routes = (known.route for known in self._known.values())
        named = {broker.broker_name for route in routes for broker in route.broker_datas}
        self.brokers = {name: self.brokers[name] for name in self.brokers if name in named}


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The writable queues of a route."""
    if route.order_topic_conf:
        return _ordered_queues(topic, route.order_topic_conf)
    if route.topic_queue_mapping_by_broker:
        return list(queue_leaders(topic, route.topic_queue_mapping_by_broker))
    masters = {each.broker_name for each in route.broker_datas if MASTER_ID in each.broker_addrs}
    return [
        MessageQueue(topic, queues.broker_name, number)
        for queues in sorted(route.queue_datas, key=_broker_name)
        if queues.perm & WRITE and queues.broker_name in masters
        for number in range(queues.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The readable queues of a route."""
    if route.topic_queue_mapping_by_broker:
        return list(queue_leaders(topic, route.topic_queue_mapping_by_broker))
    return [
        MessageQueue(topic, queues.broker_name, number)
        for queues in sorted(route.queue_datas, key=_broker_name)
        if queues.perm & READ
        for number in range(queues.read_queue_nums)
    ]


def _ordered_queues(topic: str, text: str) -> list[MessageQueue]:
    """The queues of an order configuration such as `broker-a:4;broker-b:4`."""
    queues = []
    for part in text.split(";"):
        broker_name, _, count = part.partition(":")
        if count.strip().isdecimal():
            queues += [MessageQueue(topic, broker_name.strip(), n) for n in range(int(count))]
    return queues


def _broker_name(queues: QueueRoute) -> str:
    return queues.broker_name


def _sorted(route: TopicRoute) -> TopicRoute:
    """Sort a route, so that routes in different orders compare equal."""
    return msgspec.structs.replace(
        route,
        queue_datas=sorted(route.queue_datas, key=_broker_name),
        broker_datas=sorted(route.broker_datas, key=lambda each: each.broker_name),
    )


def _with_absent(route: TopicRoute, before: TopicRoute) -> TopicRoute:
    """A route, and the groups of the one before that it does not contain."""
    present = {each.broker_name for each in route.broker_datas}
    mappings = before.topic_queue_mapping_by_broker or {}
    return msgspec.structs.replace(
        route,
        queue_datas=[
            *route.queue_datas,
            *(each for each in before.queue_datas if each.broker_name not in present),
        ],
        broker_datas=[
            *route.broker_datas,
            *(each for each in before.broker_datas if each.broker_name not in present),
        ],
        topic_queue_mapping_by_broker=(
            {name: mapping for name, mapping in mappings.items() if name not in present}
            | (route.topic_queue_mapping_by_broker or {})
        )
        or route.topic_queue_mapping_by_broker,
    )


def _limited(route: TopicRoute | None, limit: int) -> TopicRoute | None:
    """Limit the number of queues per broker to that of the topic to be created."""
    if route is None:
        return None
    limited = [
        msgspec.structs.replace(
            queues,
            read_queue_nums=min(limit, queues.read_queue_nums),
            write_queue_nums=min(limit, queues.read_queue_nums),
        )
        for queues in route.queue_datas
    ]
    return msgspec.structs.replace(route, queue_datas=limited)


def _closed(key: _RouteKey) -> WrongState:
    return WrongState(f"the client was closed while it fetched the route of {key[0]!r}")
