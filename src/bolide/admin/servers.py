"""Requests to the NameServers and brokers of a cluster, and the resolution of names."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from bolide.admin.errors import (
    BadAddress,
    BrokerUnknown,
    ClusterNotFound,
    GroupUnknown,
    NoNameServer,
)
from bolide.errors import BolideError
from bolide.model.names import retry_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, Language
from bolide.protocol.header import Header
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.address import split_address
from bolide.remoting.client import Fields, RemotingClient
from bolide.remoting.errors import RemotingError

T = TypeVar("T")
K = TypeVar("K")

OnFailure = Callable[[RemotingError], None]
"""Gets the error of a server that cannot be reached, when others can."""

_failed: ContextVar[dict[str, RemotingError] | None] = ContextVar("failed", default=None)

MASTER = 0
_MAX_CONCURRENT = 16


@dataclass(frozen=True, slots=True)
class Peer:
    """What the head of every answer of a server tells of it.

    Attributes:
        version: the number of the version of RocketMQ (`MQVersion`) that it is, or speaks as.
        is_ours: whether it is a server of Bolide.
    """

    version: int
    is_ours: bool


@contextmanager
def ask_failed_no_more() -> Iterator[None]:
    """Ask a server that did not answer once no more: its later requests fail at once.

    Otherwise a long listing waits for it again and again.
    """
    token = _failed.set({})
    try:
        yield
    finally:
        _failed.reset(token)


class Servers:
    """Sends requests to any NameServer, to every NameServer, or to one broker.

    If a NameServer does not answer, the next one is tried; later requests start with the one that
    answered last. What goes to a broker by its address needs none; the rest raises NoNameServer.
    """

    def __init__(self, name_servers: Sequence[str], remoting: RemotingClient) -> None:
        for address in name_servers:
            _check_address(address)
        self.name_servers = tuple(name_servers)
        self._remoting = remoting
        self._last_used = 0

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: Header | Fields | None = None,
        *,
        body: bytes = b"",
        within: float | None = None,
        accept: Collection[int] = (),
    ) -> Frame:
        """Send a request to one server; a refusal gets a note with the address."""
        _check_address(address)
        failed = _failed.get()
        if failed is not None and address in failed:
            raise failed[address]
        try:
            return await self._remoting.call(
                address, code, header, body=body, within=within, accept=accept
            )
        except RemotingError as exc:  # which contains the address already
            if failed is not None:
                failed[address] = exc
            raise
        except BolideError as exc:
            exc.add_note(f"asked of {address}")
            raise

    async def fetch(
        self,
        address: str,
        code: RequestCode,
        shape: type[T],
        header: Header | Fields | None = None,
        *,
        within: float | None = None,
    ) -> T:
        """Send a request to one server and decode the body of the reply."""
        reply = await self.call(address, code, header, within=within)
        return fastjson.decode(reply.body or b"{}", shape)

    async def peer(self, address: str, code: RequestCode) -> Peer:
        """Who answers a request without a header; raises the errors of `call`."""
        reply = await self.call(address, code)
        return Peer(reply.version, reply.language == Language.PYTHON.name)

    async def call_name_server(
        self, code: RequestCode, header: Header | Fields | None = None, *, body: bytes = b""
    ) -> Frame:
        """Send a request to the NameServers in turn until one answers."""
        count = len(self.name_servers)
        for attempt in range(count):
            at = (self._last_used + attempt) % count
            try:
                reply = await self.call(self.name_servers[at], code, header, body=body)
            except RemotingError:
                if attempt == count - 1:
                    raise
            else:
                self._last_used = at
                return reply
        raise NoNameServer

    async def call_every_name_server(
        self, code: RequestCode, header: Header | Fields | None = None, *, body: bytes = b""
    ) -> dict[str, Frame]:
        """Send a request to all NameServers, as for changes: they do not synchronize.

        Raises the errors of `change_all`.
        """
        if not self.name_servers:
            raise NoNameServer
        return await change_all(
            self.name_servers, lambda address: self.call(address, code, header, body=body)
        )

    async def info(self) -> ClusterInfo:
        """All clusters and the brokers in them."""
        reply = await self.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return fastjson.decode(reply.body, ClusterInfo)

    async def route(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound if no broker serves the topic."""
        header = RouteHeader(topic, accept_standard_json_only=True)
        reply = await self.call_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return fastjson.decode(reply.body, TopicRoute)

    async def addresses_of(self, topic: str, cluster: str | None = None) -> dict[str, str]:
        """The address of each broker that serves the topic, by name; preferably its master's.

        Raises:
            TopicNotFound: no broker serves the topic.
            ClusterNotFound: none of them is in the cluster.
        """
        route = await self.route(topic)
        if cluster is not None:
            known = {broker.cluster or "" for broker in route.broker_datas}
            if cluster not in known:
                raise ClusterNotFound(cluster, known)
        found = {
            broker.broker_name: address_of(broker)
            for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name)
            if broker.broker_addrs and cluster in {None, broker.cluster}
        }
        if not found:
            raise TopicNotFound(f"no broker that has topic {topic!r} is registered now")
        return found

    async def addresses_of_group(self, group: str, cluster: str | None = None) -> dict[str, str]:
        """As `addresses_of`, for the brokers of the group's retry topic; raises GroupUnknown."""
        try:
            return await self.addresses_of(retry_topic(group), cluster)
        except TopicNotFound as exc:
            raise GroupUnknown(group) from exc

    async def brokers_of(self, cluster: str) -> list[BrokerRoute]:
        """The brokers of a cluster, by name; raises ClusterNotFound."""
        info = await self.info()
        if cluster not in info.cluster_addr_table:
            raise ClusterNotFound(cluster, info.cluster_addr_table)
        names = sorted(info.cluster_addr_table[cluster])
        return [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]

    async def masters_of(self, cluster: str) -> list[str]:
        brokers = await self.brokers_of(cluster)
        return [b.broker_addrs[MASTER] for b in brokers if MASTER in b.broker_addrs]

    async def members_of(self, cluster: str) -> list[str]:
        """The addresses of masters and slaves."""
        return [
            address
            for broker in await self.brokers_of(cluster)
            for _, address in sorted(broker.broker_addrs.items())
        ]

    async def broker_at(self, address: str) -> BrokerRoute:
        """The broker with an address; raises BrokerUnknown."""
        table = (await self.info()).broker_addr_table
        for broker in table.values():
            if address in broker.broker_addrs.values():
                return broker
        known = (each for broker in table.values() for each in broker.broker_addrs.values())
        raise BrokerUnknown(address, known)

    async def address_of(self, broker_name: str) -> str:
        """The address of a broker, preferably its master's; raises BrokerUnknown."""
        table = (await self.info()).broker_addr_table
        if broker_name not in table:
            raise BrokerUnknown(broker_name, table)
        return address_of(table[broker_name])


def address_of(broker: BrokerRoute) -> str:
    """The address of the master, otherwise of the slave with the smallest id."""
    return broker.broker_addrs[min(broker.broker_addrs)]


async def gather_reachable(
    keys: Iterable[K],
    request: Callable[[K], Awaitable[T]],
    on_failure: OnFailure | None,
) -> dict[K, T]:
    """As `gather_by_key`, without the keys whose servers cannot be reached.

    These errors go to `on_failure`, unless it is None or no server is reachable: then one is
    raised.
    """
    if on_failure is None:
        return await gather_by_key(keys, request)

    async def attempt(key: K) -> T | RemotingError:
        try:
            return await request(key)
        except RemotingError as exc:
            return exc

    found = await gather_by_key(keys, attempt)
    failures = [each for each in found.values() if isinstance(each, RemotingError)]
    if failures and len(failures) == len(found):
        raise failures[0]
    for failure in failures:
        on_failure(failure)
    return {key: each for key, each in found.items() if not isinstance(each, RemotingError)}


async def gather_answers(
    keys: Iterable[K], request: Callable[[K], Awaitable[T]]
) -> tuple[dict[K, T], list[BolideError]]:
    """As `gather_by_key`, without the keys whose requests fail or are refused, and why they are."""

    async def attempt(key: K) -> T | BolideError:
        try:
            return await request(key)
        except BolideError as exc:
            return exc

    found = await gather_by_key(keys, attempt)
    failures = [each for each in found.values() if isinstance(each, BolideError)]
    return {k: each for k, each in found.items() if not isinstance(each, BolideError)}, failures


async def change_all(
    addresses: Iterable[str], change: Callable[[str], Awaitable[T]]
) -> dict[str, T]:
    """Change something at one server after the other, whatever becomes of the others.

    Raises:
        BolideError: the first failure, with notes of where it was done and what else failed.
    """
    done: dict[str, T] = {}
    failures: list[BolideError] = []
    for address in addresses:
        try:
            done[address] = await change(address)
        except BolideError as exc:
            failures.append(exc)
    if failures:
        first, *others = failures
        for other in others:
            first.add_note(f"and {other}")
        if done:
            first.add_note(f"done at {', '.join(done)}; repeat it for the others")
        raise first
    return done


async def gather_by_key(keys: Iterable[K], request: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Run a request for every key, some concurrently; the first error cancels the others."""
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def one(key: K) -> T:
        async with limit:
            return await request(key)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {key: group.create_task(one(key)) for key in keys}
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return {key: task.result() for key, task in tasks.items()}


def _check_address(address: str) -> None:
    try:
        split_address(address)
    except ValueError as exc:
        raise BadAddress(exc) from exc
