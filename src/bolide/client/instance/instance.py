"""The client instance: connections, routes and heartbeats of producers and consumers."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Collection, Coroutine
from contextlib import suppress
from typing import Any, ClassVar, Self

from bolide.client.errors import NameServersUnreachable, NoNameServer, RouteNotFound
from bolide.client.instance.heartbeats import ConsumerMember, Heartbeats, Members, ProducerMember
from bolide.client.instance.hedged_calls import first_answer
from bolide.client.instance.lifecycle import SharedInstances
from bolide.client.instance.lookups import Lookups
from bolide.client.instance.route_renewals import RouteRenewals
from bolide.client.instance.routes import (
    REFRESH_INTERVAL,
    RETRY_INTERVAL,
    NameServers,
    Routes,
    fetch_addresses,
)
from bolide.client.instance.server_requests import PendingReplies, ServerRequests
from bolide.client.instance.settings import ClientSettings
from bolide.client.instance.suspects import Probed, SuspectBrokers
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
from bolide.remoting.signing import Signer

log = logging.getLogger("bolide.client.instance")  # documented in docs/how-to/logging.md

_PROBE_TIMEOUT = 1.0
"""Seconds within which a broker that is avoided must answer a heartbeat."""


class ClientInstance:
    """One client, as identified by brokers; obtained by `acquire`, ended by `release`.

    It starts even if no NameServer is reachable; calls that need a route fail until one is.
    """

    _shared: "ClassVar[SharedInstances[ClientInstance]]" = SharedInstances()

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.client_id = settings.client_id
        self.name_servers = NameServers(settings.name_servers)
        self._members = Members(self.client_id)
        self.routes = Routes(
            self._fetch_route,
            on_change=self._members.route_changed,
            on_new_broker=self.heartbeat_soon,
            on_master_replaced=self._drop_connections,
        )
        self.renewals = RouteRenewals(self.routes.renew)
        self.suspects = SuspectBrokers(
            self._probe, self.renewals.renew, self.routes.master_of, settings.route_interval
        )
        self.routes.suspects = self.suspects
        self.lookups = Lookups(self)
        self._heartbeats = Heartbeats(self._members, self.routes, self.call)
        self.pending_replies = PendingReplies()
        requests = ServerRequests(
            self._members.consumers,
            settings.namespace,
            self.pending_replies,
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
        self._failing: set[str] = set()  # subjects whose failure was logged
        self._addresses_known = asyncio.Event()
        if settings.name_servers or not settings.address_server:
            self._addresses_known.set()

    # Sharing

    @classmethod
    async def acquire(cls, settings: ClientSettings) -> "ClientInstance":
        """The instance with these settings on this event loop; created and started if necessary.

        Raises:
            ConfigError: a client of this process has the same id and other settings.
        """
        return await cls._shared.get(settings, cls).join()

    async def join(self) -> Self:
        """Increment the reference count; the first user starts the instance."""
        self._users += 1
        if self._users == 1:
            await self._start()
        return self

    async def release(self) -> None:
        """Decrement the reference count; the last user closes the instance."""
        self._users -= 1
        if not self._users:
            self._shared.remove(self)
            await self._close()

    async def _start(self) -> None:
        await self.remoting.__aenter__()
        self._run(self._poll_routes(), "routes")
        heartbeats = self._heartbeats.run(self.settings.heartbeat_interval, self._guarded_heartbeat)
        self._run(heartbeats, "heartbeats")
        if self.settings.address_server:
            self._run(self._watch_address_server(self.settings.address_server), "addresses")
        servers = ", ".join(self.name_servers.addresses) or self.settings.address_server or "none"
        log.info("client %s started; NameServers: %s", self.client_id, servers)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.suspects.close()
        await self.renewals.close()
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
        """Call a broker; `within` seconds include connecting. Raises like `RemotingClient.call`."""
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
        """Send a one-way request; `within` seconds are the time to connect."""
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
        """Call the preferred NameServer, and the others in turn if it does not answer.

        Raises:
            NoNameServer: no NameServer is known, or none answers.
            Refusal: a NameServer refused.
        """
        seconds = self.settings.call_timeout if within is None else within
        addresses = await self._name_server_addresses(seconds)
        failure: RemotingError | None = None
        for address in addresses:
            try:
                # Share the time, so that a hanging NameServer leaves some for the others.
                reply = await self.call(
                    address, code, header, body=body, within=seconds / len(addresses)
                )
            except RemotingError as exc:
                failure = exc
            else:
                self.name_servers.prefer(address)
                return reply
        raise NameServersUnreachable(addresses, failure) from failure

    async def _name_server_addresses(self, seconds: float) -> tuple[str, ...]:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._addresses_known.wait()
        addresses = self.name_servers.in_order()
        if not addresses:
            raise NoNameServer
        return addresses

    def find_connection(self, broker_name: str) -> Connection | None:
        """The open connection for sends to a broker's master, if any."""
        address = self.routes.master(broker_name)
        return None if address is None else self.remoting.find(self.vip(address))

    def vip(self, address: str) -> str:
        """The address for sends: the broker's VIP port if the VIP channel is enabled."""
        if not self.settings.vip_channel:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    def broker_failed(self, address: str, topic: str) -> None:
        """Avoid a broker that did not answer until it does, and renew the route of the topic."""
        name = self.routes.name_of(address)
        if name is None:
            self.renewals.renew_soon(topic)  # the address is that of an older route
        else:
            self.suspects.add(address, name, topic)

    async def _probe(self, address: str, broker_name: str) -> Probed:
        """Send a heartbeat to a broker that did not answer, if it still is in a route."""
        if self.routes.name_of(address) is None:
            is_replaced = self.routes.master(broker_name) is not None
            return Probed.REPLACED if is_replaced else Probed.ABSENT
        answers = await self._heartbeats.probe(address, _PROBE_TIMEOUT)
        return Probed.ANSWERS if answers else Probed.SILENT

    def _drop_connections(self, address: str) -> None:
        """Fail the calls to a former master, which may never answer, so that they are repeated."""
        self.remoting.disconnect(address)
        self.remoting.disconnect(self.vip(address))

    async def _connect(self, address: str, code: RequestCode, seconds: float) -> float:
        """Connect within the timeout of a call; return the seconds it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(seconds):
                await self.remoting.connect(address)
        except TimeoutError as exc:
            raise CallTimedOut(address, code, seconds) from exc
        if code != RequestCode.HEART_BEAT and self.routes.name_of(address):
            self.heartbeat_soon()  # brokers forget a client when its connection ends
        return loop.time() - began

    # Producers and consumers

    def add_producer(self, group: str, producer: ProducerMember) -> None:
        """Raises GroupTaken if the group has one already."""
        self._members.add_producer(group, producer)
        self.heartbeat_soon()

    def add_consumer(self, group: str, consumer: ConsumerMember) -> None:
        """Raises GroupTaken if the group has one already."""
        self._members.add_consumer(group, consumer)
        self.heartbeat_soon()

    async def remove_producer(self, group: str) -> None:
        """Unregister it from the brokers."""
        if self._members.producers.pop(group, None) is not None:
            await self._unregister(producer_group=group)

    async def remove_consumer(self, group: str) -> None:
        """Unregister it from the brokers."""
        if self._members.consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    async def _unregister(self, **group: str) -> None:
        header = UnregisterClientHeader(client_id=self.client_id, **group)

        async def unregister(address: str) -> None:
            with suppress(BolideError):  # the broker removes the client after missing heartbeats
                await self.call(address, RequestCode.UNREGISTER_CLIENT, header)

        connected = filter(self.remoting.is_connected, self.routes.addresses())
        await asyncio.gather(*map(unregister, connected))

    def heartbeat_soon(self) -> None:
        """Request a heartbeat before the next interval."""
        self._heartbeats.soon()

    async def announce_producer(self, group: str) -> None:
        """Wait until the masters of the known routes know a producer group."""
        await self._heartbeats.announce_producer(group, self.remoting)

    async def heartbeat(self) -> None:
        """Announce all groups to every broker of the known routes; failures are logged."""
        await self._heartbeats.send()

    async def _guarded_heartbeat(self) -> None:
        await self._guarded(self._heartbeats.send(), "heartbeats")

    # Routes

    async def _fetch_route(self, topic: str) -> TopicRoute | None:
        """Query a route; a NameServer that is slow to answer is not waited for."""
        addresses = await self._name_server_addresses(self.settings.call_timeout)
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic)
        try:
            answered, reply = await first_answer(
                addresses, lambda address: self.call(address, code, header)
            )
        except TopicNotFound:
            return None
        except RemotingError as exc:
            raise NameServersUnreachable(addresses, exc) from exc
        self.name_servers.prefer(answered)
        return fastjson.decode(reply.body, TopicRoute)

    async def _poll_routes(self) -> None:
        while True:
            await asyncio.sleep(self.settings.route_interval)
            await self._guarded(self.poll_routes(), "routes")

    async def poll_routes(self) -> None:
        """Refresh the routes in use, drop the others, probe suspects; failures are logged once."""
        wanted = self._members.topics()
        self.routes.forget_all_but(wanted)
        try:
            for topic in sorted(wanted):
                await self._poll_route(topic)
        except NoNameServer as exc:
            self._log_failure_once("routes", "the routes cannot be refreshed: %s", exc)
        else:
            self._log_recovery("routes", "the routes can be refreshed again")
        self._heartbeats.forget_brokers()
        self.suspects.probe_soon()

    async def _poll_route(self, topic: str) -> None:
        subject = f"route of {topic}"
        try:
            with suppress(RouteNotFound):  # the topic may be created later, or return
                await self.routes.refresh(topic)
        except NoNameServer:
            raise
        except BolideError as exc:
            self._log_failure_once(
                subject, "the route of topic %s cannot be refreshed: %s", topic, exc
            )
        else:
            self._log_recovery(subject, "the route of topic %s can be refreshed again", topic)

    # Address server

    async def _watch_address_server(self, url: str) -> None:
        while True:
            await self._guarded(self._query_address_server(url), "address server")
            pause = REFRESH_INTERVAL if self.name_servers.addresses else RETRY_INTERVAL
            await asyncio.sleep(pause)

    async def _query_address_server(self, url: str) -> None:
        try:
            addresses = await asyncio.to_thread(fetch_addresses, url, self.settings.call_timeout)
        except (OSError, ConfigError) as exc:
            self._log_failure_once(
                url, "address server %s returns no list of NameServers: %s", url, exc
            )
            return
        self._log_recovery(url, "address server %s answers again", url)
        if addresses:
            self.name_servers.set(addresses)
            self._addresses_known.set()

    # Logs

    def _log_failure_once(self, subject: str, text: str, *facts: object) -> None:
        if subject not in self._failing:
            self._failing.add(subject)
            log.warning(text, *facts)

    def _log_recovery(self, subject: str, text: str, *facts: object) -> None:
        if subject in self._failing:
            self._failing.discard(subject)
            log.info(text, *facts)

    async def _guarded(self, work: Awaitable[None], what: str) -> None:
        """Supervise one round of a periodic task: log errors and let the next round run."""
        try:
            await work
        except Exception:
            log.exception("%s of client %s", what, self.client_id)


def _hooks(settings: ClientSettings) -> tuple[Signer, ...]:
    if not settings.access_key or not settings.secret_key:
        return ()
    return (Signer(settings.access_key, settings.secret_key, settings.security_token),)


os.register_at_fork(after_in_child=ClientInstance._shared.forget)  # noqa: SLF001  same module
