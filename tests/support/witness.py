"""A well-behaved client that must notice nothing of what others do to its server."""

import asyncio
import math
from types import TracebackType
from typing import Self

from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.remoting.client import RemotingClient
from tests.support.brokers import broker_header, plain, topics_body

_PAUSE = 0.005
_PATIENCE = 0.25
_LONGEST = 1.0


class Witness:
    """Looks up a route again and again while its `async with` block runs.

    Leaving the block fails if one call got no answer or took a second, or if more than one in a
    hundred, and one for a hiccup of the machine, took longer than a quarter of a second.
    """

    def __init__(self, address: str) -> None:
        self.latencies: list[float] = []
        self._address = address
        self._client = RemotingClient()

    async def look(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("orders")
        await self._client.call(self._address, code, header)
        self.latencies.append(loop.time() - started)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        body = plain(topics_body("orders"))
        await self._client.call(
            self._address, RequestCode.REGISTER_BROKER, broker_header(), body=body
        )
        self._looking = asyncio.create_task(self._look_on())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._looking.cancel()
        outcome = (await asyncio.gather(self._looking, return_exceptions=True))[0]
        if kind is None:
            for _ in range(10):  # also after the attack
                await self.look()
        await self._client.__aexit__(kind, exc, traceback)
        if kind is None:
            assert isinstance(outcome, asyncio.CancelledError), outcome
            passed_over = math.ceil(len(self.latencies) / 100) + 1
            slowest = sorted(self.latencies)
            assert slowest[-1 - passed_over] < _PATIENCE, slowest[-5:]
            assert slowest[-1] < _LONGEST, slowest[-5:]

    async def _look_on(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_PAUSE)
