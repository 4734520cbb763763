"""The readable queues of topics on all brokers, as NameServers tell them."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.config import BrokerConfig
from bolide.broker.topics import TopicTable
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.model.names import READ
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

_ASK_WITHIN = 1.0
_AGAIN = 1.0
"""Seconds until NameServers that did not answer are asked again."""

_MOST = 10_000

Queues = list[MessageQueue]


@dataclass(slots=True)
class _Known:
    queues: Queues
    """Those of other brokers."""
    until: float


class ClusterQueues:
    """Asks when somebody wants to know, at most every now and then for each topic.

    What this broker has itself it knows best: its own queues are those of its table.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        topics: TopicTable,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._now = now
        self._known: dict[str, _Known] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self.client: RemotingClient | None = None
        """The way to NameServers, once the broker serves."""

    async def find(self, topic: str) -> Queues | None:
        """All queues, sorted; None if there is no such topic, or nobody says so."""
        others = await self._others(topic)
        own = self._own(topic)
        return sorted([*(others or []), *own]) if others is not None or own else None

    def _own(self, topic: str) -> Queues:
        config, found = self._cell.value, self._topics.find(topic)
        if found is None or not found.perm & config.broker_permission & READ:
            return []
        count = found.read_queue_nums
        return [MessageQueue(topic, config.broker_name, number) for number in range(count)]

    async def _others(self, topic: str) -> Queues | None:
        turn = self._turns.setdefault(topic, asyncio.Lock())
        try:
            async with turn:  # who comes meanwhile waits for the same answer
                known = self._known.get(topic)
                if known is None or self._now() >= known.until:
                    await self._learn(topic, known)
        finally:
            if not turn.locked():
                self._turns.pop(topic, None)
        found = self._known.get(topic)
        return None if found is None else found.queues

    async def _learn(self, topic: str, before: _Known | None) -> None:
        try:
            route = await self._ask(topic)
        except TopicNotFound:
            self._known.pop(topic, None)
            return
        except BolideError as exc:
            log.debug("no NameServer tells the route of %s: %s", topic, exc)
            if before is not None:
                before.until = self._now() + _AGAIN
            return
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        interval = self._cell.value.load_balance_poll_name_server_interval
        self._known[topic] = _Known(self._foreign(topic, route), self._now() + interval)

    async def _ask(self, topic: str) -> TopicRoute:
        """Raises what the last NameServer that was asked raised, TopicNotFound without any."""
        failure: BolideError = TopicNotFound(f"no NameServer knows topic {topic!r}")
        if self.client is None:
            raise failure
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic)
        for server in self._cell.value.name_servers:
            try:
                reply = await self.client.call(server, code, header, within=_ASK_WITHIN)
                return fastjson.decode(reply.body, TopicRoute)
            except BolideError as exc:
                failure = exc
        raise failure

    def _foreign(self, topic: str, route: TopicRoute) -> Queues:
        return [
            MessageQueue(topic, queues.broker_name, number)
            for queues in route.queue_datas
            if queues.perm & READ and queues.broker_name != self._cell.value.broker_name
            for number in range(queues.read_queue_nums)
        ]
