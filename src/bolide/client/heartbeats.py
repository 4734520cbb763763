"""Heartbeats: how brokers know which groups a client has, and that it lives."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

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


class Heartbeats:
    """Go to the masters for producers, to slaves too if there are consumers."""

    def __init__(self, members: Members, routes: Routes, call: Call) -> None:
        self._members = members
        self._routes = routes
        self._call = call
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

    async def _send_to(self, address: str) -> None:
        try:
            async with self._turns[address]:
                body = fastjson.encode(self._members.heartbeat())
                await self._call(address, RequestCode.HEART_BEAT, body=body)
        except BolideError as exc:
            if address not in self._silent:
                self._silent.add(address)
                log.warning("broker %s does not take heartbeats: %s", address, exc)
            return
        if address in self._silent:
            self._silent.discard(address)
            log.info("broker %s takes heartbeats again", address)

    def forget_brokers(self) -> None:
        """Drop what was noted of brokers that no route names any more."""
        known = self._routes.addresses()
        self._silent &= known
        for address in self._turns.keys() - known:
            if not self._turns[address].locked():
                del self._turns[address]
