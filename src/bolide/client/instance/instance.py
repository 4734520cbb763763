"""The part of a client that its producers and consumers share: connections, routes, heartbeats."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Collection, Coroutine
from contextlib import suppress
from typing import Any, ClassVar, Self

from bolide.client.errors import NameServersUnreachable, NoNameServer, RouteNotFound
from bolide.client.instance.heartbeats import ConsumerMember, Heartbeats, Members, ProducerMember
from bolide.client.instance.lifecycle import Sharing
from bolide.client.instance.lookups import Lookups
from bolide.client.instance.routes import (
    REFRESH_INTERVAL,
    RETRY_INTERVAL,
    NameServers,
    Routes,
    fetch_addresses,
)
from bolide.client.instance.server_requests import OpenRequests, ServerRequests
from bolide.client.instance.settings import ClientSettings
from bolide.client.instance.signing import Signer
from bolide.errors import BolideError, ConfigError
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.clients import UnregisterClientHeader
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.client import ClientConfig, Fields, RemotingClient
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.errors import CallTimedOut, RemotingError

log = logging.getLogger("bolide.client.instance")  # documented in docs/how-to/logging.md


class ClientInstance:
    """One client of a cluster, by the eyes of its brokers. Made by `acquire`, ended by `release`.

    It starts whether or not a NameServer can be reached; what needs a route fails until one can.
    """

    _sharing: "ClassVar[Sharing[ClientInstance]]" = Sharing()

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.client_id = settings.client_id
        self.name_servers = NameServers(settings.name_servers)
        self._members = Members(self.client_id)
        self.routes = Routes(
            self._ask_route,
            on_change=self._members.route_changed,
            on_new_broker=self.heartbeat_soon,
        )
        self.lookups = Lookups(self)
        self._heartbeats = Heartbeats(self._members, self.routes, self.call)
        self.open_requests = OpenRequests()
        requests = ServerRequests(
            self._members.consumers,
            settings.namespace,
            self.open_requests,
            self._members.producers,
        )
        self.remoting = RemotingClient(
            ClientConfig(
                connect_timeout=settings.connect_timeout,
                call_timeout=settings.call_timeout,
                tls=settings.tls,
            ),
            dispatcher=Dispatcher(requests),
            hooks=_hooks(settings),
        )
        self._users = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._told_of: set[str] = set()  # what is failing, and was logged
        self._addresses_known = asyncio.Event()
        if settings.name_servers or not settings.address_server:
            self._addresses_known.set()

    # Sharing

    @classmethod
    async def acquire(cls, settings: ClientSettings) -> "ClientInstance":
        """The instance with these settings on this event loop, started if it is new.

        Raises:
            ConfigError: a client of this process has the same id and other settings.
        """
        return await cls._sharing.get(settings, cls).join()

    async def join(self) -> Self:
        """Say that one more uses it; the first one starts it."""
        self._users += 1
        if self._users == 1:
            await self._start()
        return self

    async def release(self) -> None:
        """Say that one user is done; the last one ends it."""
        self._users -= 1
        if not self._users:
            self._sharing.remove(self)
            await self._close()

    async def _start(self) -> None:
        await self.remoting.__aenter__()
        self._run(self._poll_routes(), "routes")
        beating = self._heartbeats.run(self.settings.heartbeat_interval, self._guarded_heartbeat)
        self._run(beating, "heartbeats")
        if self.settings.address_server:
            self._run(self._watch_address_server(self.settings.address_server), "addresses")
        servers = ", ".join(self.name_servers.addresses) or self.settings.address_server or "none"
        log.info("client %s started; NameServers: %s", self.client_id, servers)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.routes.close()
        await self.remoting.__aexit__(None, None, None)
        log.info("client %s ended", self.client_id)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.add(asyncio.create_task(work, name=f"bolide-client-{name}"))

    # Calls

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
        """Ask a broker; `within` seconds, connecting included. Raises as `RemotingClient.call`."""
        if not self.remoting.is_connected(address):
            seconds = self.settings.call_timeout if within is None else within
            within = seconds - await self._connect(address, code, seconds)
        return await self.remoting.call(
            address, code, header, body=body, within=within, accept=accept
        )

    async def notify(
        self,
        address: str,
        code: RequestCode,
        header: Header | Fields | None = None,
        *,
        body: bytes = b"",
        within: float | None = None,
    ) -> None:
        """Tell a broker something that it does not answer; `within` is the time to connect."""
        if not self.remoting.is_connected(address):
            await self._connect(address, code, within or self.settings.call_timeout)
        await self.remoting.notify(address, code, header, body=body)

    async def call_name_server(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        within: float | None = None,
    ) -> Frame:
        """Ask the chosen NameServer, and the others in turn if it does not answer.

        Raises:
            NoNameServer: none is known or none answers.
            Refusal: the one that was asked refused.
        """
        seconds = self.settings.call_timeout if within is None else within
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._addresses_known.wait()
        addresses = self.name_servers.in_order()
        if not addresses:
            raise NoNameServer
        failure: RemotingError | None = None
        for address in addresses:
            try:
                # One that does not even refuse must leave time for the others.
                answer = await self.call(
                    address, code, header, body=body, within=seconds / len(addresses)
                )
            except RemotingError as exc:
                failure = exc
            else:
                self.name_servers.choose(address)
                return answer
        raise NameServersUnreachable(addresses) from failure

    def find_connection(self, broker_name: str) -> Connection | None:
        """The connection by which sends go to a broker's master, if there is one."""
        address = self.routes.master(broker_name)
        return None if address is None else self.remoting.find(self.vip(address))

    def vip(self, address: str) -> str:
        """Where sends go: the broker's second port if the VIP channel is on."""
        if not self.settings.vip_channel:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    async def _connect(self, address: str, code: RequestCode, seconds: float) -> float:
        """Connect within the time for a call; returns how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(seconds):
                await self.remoting.connect(address)
        except TimeoutError as exc:
            raise CallTimedOut(address, code, seconds) from exc
        if code != RequestCode.HEART_BEAT and self.routes.name_of(address):
            self.heartbeat_soon()  # the broker forgot this client when the last connection ended
        return loop.time() - began

    # Producers and consumers

    def add_producer(self, group: str, producer: ProducerMember) -> None:
        """Raises GroupTaken if there is one of that group."""
        self._members.add_producer(group, producer)
        self.heartbeat_soon()

    def add_consumer(self, group: str, consumer: ConsumerMember) -> None:
        """Raises GroupTaken if there is one of that group."""
        self._members.add_consumer(group, consumer)
        self.heartbeat_soon()

    async def remove_producer(self, group: str) -> None:
        """Forget it and tell the brokers."""
        if self._members.producers.pop(group, None) is not None:
            await self._unregister(producer_group=group)

    async def remove_consumer(self, group: str) -> None:
        """Forget it and tell the brokers."""
        if self._members.consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    async def _unregister(self, **group: str) -> None:
        header = UnregisterClientHeader(client_id=self.client_id, **group)

        async def tell(address: str) -> None:
            with suppress(BolideError):  # it will notice by itself
                await self.call(address, RequestCode.UNREGISTER_CLIENT, header)

        connected = filter(self.remoting.is_connected, self.routes.addresses())
        await asyncio.gather(*map(tell, connected))

    def heartbeat_soon(self) -> None:
        """Have the brokers told of this client now rather than at the next interval."""
        self._heartbeats.soon()

    async def reach_brokers(self, group: str) -> None:
        """Wait until the masters of the known routes know of a producer group."""
        await self._heartbeats.reach(group, self.remoting)

    async def heartbeat(self) -> None:
        """Tell every broker of the known routes which groups are here; failures are logged."""
        await self._heartbeats.send()

    async def _guarded_heartbeat(self) -> None:
        await self._guarded(self._heartbeats.send(), "heartbeats")

    # Routes

    async def _ask_route(self, topic: str) -> TopicRoute | None:
        try:
            answer = await self.call_name_server(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic)
            )
        except TopicNotFound:
            return None
        return fastjson.decode(answer.body, TopicRoute)

    async def _poll_routes(self) -> None:
        while True:
            await asyncio.sleep(self.settings.route_interval)
            await self._guarded(self.poll_routes(), "routes")

    async def poll_routes(self) -> None:
        """Ask anew for the routes in use and forget the others; failures are logged once."""
        wanted = self._members.topics()
        self.routes.forget_all_but(wanted)
        try:
            for topic in sorted(wanted):
                await self._poll_route(topic)
        except NoNameServer as exc:
            self._tell_once("routes", "the routes cannot be refreshed: %s", exc)
        else:
            self._tell_of_end("routes", "the routes can be refreshed again")
        self._heartbeats.forget_brokers()

    async def _poll_route(self, topic: str) -> None:
        subject = f"route of {topic}"
        try:
            with suppress(RouteNotFound):  # it may come, or come back
                await self.routes.refresh(topic)
        except NoNameServer:
            raise
        except BolideError as exc:
            self._tell_once(subject, "the route of topic %s cannot be refreshed: %s", topic, exc)
        else:
            self._tell_of_end(subject, "the route of topic %s can be refreshed again", topic)

    # Address server

    async def _watch_address_server(self, url: str) -> None:
        while True:
            await self._guarded(self._ask_address_server(url), "address server")
            pause = REFRESH_INTERVAL if self.name_servers.addresses else RETRY_INTERVAL
            await asyncio.sleep(pause)

    async def _ask_address_server(self, url: str) -> None:
        try:
            found = await asyncio.to_thread(fetch_addresses, url, self.settings.call_timeout)
        except (OSError, ConfigError) as exc:
            self._tell_once(url, "address server %s gives no list of NameServers: %s", url, exc)
            return
        self._tell_of_end(url, "address server %s answers again", url)
        if found:
            self.name_servers.set(found)
            self._addresses_known.set()

    # Logs

    def _tell_once(self, subject: str, text: str, *facts: object) -> None:
        if subject not in self._told_of:
            self._told_of.add(subject)
            log.warning(text, *facts)

    def _tell_of_end(self, subject: str, text: str, *facts: object) -> None:
        if subject in self._told_of:
            self._told_of.discard(subject)
            log.info(text, *facts)

    async def _guarded(self, work: Awaitable[None], what: str) -> None:
        """The supervisor of what repeats: one failure must not be the last time."""
        try:
            await work
        except Exception:
            log.exception("%s of client %s", what, self.client_id)


def _hooks(settings: ClientSettings) -> tuple[Signer, ...]:
    if not settings.access_key or not settings.secret_key:
        return ()
    return (Signer(settings.access_key, settings.secret_key, settings.security_token),)


os.register_at_fork(after_in_child=ClientInstance._sharing.forget)  # noqa: SLF001  its own
