"""Heartbeats: how brokers know which groups a client has, and that it lives."""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from bolide.client.members import Members
from bolide.client.routes import Routes
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame

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
