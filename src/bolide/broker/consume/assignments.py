"""Queue assignment by the broker (`QueryAssignmentProcessor`).

Consumers that do not rebalance by themselves query the broker for their queues. `Assignments`
divides the queues of a topic, on all brokers of the cluster, among the members of a group.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bolide.broker.background import MAX_BODY, on_saving_thread, read_json
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model import allocation
from bolide.model.message_queue import MessageQueue
from bolide.model.names import READ, is_retry_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies import pop as bodies
from bolide.protocol.bodies.heartbeat import MessageModel
from bolide.protocol.bodies.pop import (
    Assignment,
    AssignmentQuery,
    RequestMode,
    RequestModeSetting,
    RequestModeTable,
)
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.refusals import NoPermission, ServerError, TopicNotFound
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table

log = logging.getLogger(__name__)

_ROUTE_TIMEOUT = 1.0
_RETRY_DELAY = 1.0
"""Seconds until NameServers that did not answer are queried again."""

_MAX_CACHED = 10_000

QueueList = list[MessageQueue]
Queues = Sequence[MessageQueue]
Strategy = Callable[[Queues, int, int], Queues]

STRATEGIES: dict[str, Strategy] = {"AVG": allocation.average, "AVG_BY_CIRCLE": allocation.by_circle}
"""Strategies by the names that clients send."""

WHOLE_BROKER = -1
"""Queue id that stands for all queues of a broker."""


@dataclass(slots=True)
class _CachedQueues:
    """Queues of a topic on other brokers."""

    queues: QueueList
    expires: float


class ClusterQueues:
    """All queues of a topic in the cluster.

    Queues of other brokers come from a NameServer and are cached per topic; queues of this broker
    come from its own topic table.
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
        self._cache: dict[str, _CachedQueues] = {}
        self._refreshing: dict[str, asyncio.Lock] = {}
        self._client: RemotingClient | None = None
        """Client for NameServers; None until the broker serves."""

    def use(self, client: RemotingClient) -> None:
        """Ask the NameServers through this client from now on."""
        self._client = client

    async def find(self, topic: str) -> QueueList | None:
        """All queues, sorted; None if no broker is known to have the topic."""
        others = await self._others(topic)
        own = self._own(topic)
        return sorted([*(others or []), *own]) if others is not None or own else None

    def _own(self, topic: str) -> QueueList:
        config, found = self._cell.value, self._topics.find(topic)
        if found is None or not found.perm & config.broker_permission & READ:
            return []
        count = found.read_queue_nums
        return [MessageQueue(topic, config.broker_name, number) for number in range(count)]

    async def _others(self, topic: str) -> QueueList | None:
        lock = self._refreshing.setdefault(topic, asyncio.Lock())
        try:
            async with lock:  # single-flight: concurrent queries wait for one refresh
                cached = self._cache.get(topic)
                if cached is None or self._now() >= cached.expires:
                    await self._refresh(topic, cached)
        finally:
            if not lock.locked():
                self._refreshing.pop(topic, None)
        cached = self._cache.get(topic)
        return None if cached is None else cached.queues

    async def _refresh(self, topic: str, cached: _CachedQueues | None) -> None:
        try:
            route = await self._fetch_route(topic)
        except TopicNotFound:
            self._cache.pop(topic, None)
            return
        except BolideError as exc:
            log.debug("no NameServer returns the route of %s: %s", topic, exc)
            if cached is not None:
                cached.expires = self._now() + _RETRY_DELAY
            return
        if len(self._cache) >= _MAX_CACHED:  # evict the oldest entry
            del self._cache[next(iter(self._cache))]
        interval = self._cell.value.load_balance_poll_name_server_interval
        self._cache[topic] = _CachedQueues(self._foreign(topic, route), self._now() + interval)

    async def _fetch_route(self, topic: str) -> TopicRoute:
        """Query NameServers in turn.

        Raises the error of the last NameServer, or TopicNotFound if there is none.
        """
        failure: BolideError = TopicNotFound(f"no NameServer knows topic {topic!r}")
        if self._client is None:
            raise failure
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic)
        for server in self._cell.value.name_servers:
            try:
                reply = await self._client.call(server, code, header, within=_ROUTE_TIMEOUT)
                return fastjson.decode(reply.body, TopicRoute)
            except BolideError as exc:
                failure = exc
        raise failure

    def _foreign(self, topic: str, route: TopicRoute) -> QueueList:
        return [
            MessageQueue(topic, queues.broker_name, number)
            for queues in route.queue_datas
            if queues.perm & READ and queues.broker_name != self._cell.value.broker_name
            for number in range(queues.read_queue_nums)
        ]


class RequestModes:
    """Whether a group pulls or pops a topic, backed by a loaded table."""

    def __init__(self, table: Table[RequestModeTable]) -> None:
        self._table = table
        self._saving = threading.Lock()  # one file, one writer

    @property
    def table(self) -> RequestModeTable:
        """All settings in their wire form; callers must not modify it."""
        return self._table.value

    def find(self, topic: str, group: str) -> RequestModeSetting | None:
        return self.table.message_request_mode_map.get(topic, {}).get(group)

    async def set(self, setting: RequestModeSetting) -> None:
        """Apply a setting at once; returns after the file is written.

        Raises:
            ServerError: the file cannot be written; the setting is in force until a restart.
        """
        topics = self.table.message_request_mode_map
        topics.setdefault(setting.topic, {})[setting.consumer_group] = setting
        self._table.changed()
        try:
            await uninterrupted(on_saving_thread(self._save))
        except OSError as exc:
            raise ServerError(
                f"in force, but {self._table.path} cannot be written: {exc}; set it again"
            ) from exc

    def _save(self) -> None:
        with self._saving:
            self._table.save()


class Assignments:
    """Computes the queues of each consumer."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        clients: ClientTable,
        queues: ClusterQueues,
        modes: RequestModes,
    ) -> None:
        self._cell = cell
        self._clients = clients
        self.queues = queues
        self.modes = modes

    async def query(self, query: AssignmentQuery) -> list[Assignment] | None:
        """The queues of one client; None if they are not known: the client keeps its queues."""
        queues = await self.queues.find(query.topic)
        if queues is None:
            return None
        mode = self._mode(query.topic, query.consumer_group)
        assigned = self._share(query, queues, mode)
        if assigned is None:
            return None
        distinct = dict.fromkeys(assigned)
        return [Assignment(message_queue=queue, mode=mode.mode) for queue in distinct]

    def _mode(self, topic: str, group: str) -> RequestModeSetting:
        if found := self.modes.find(topic, group):
            return found
        config = self._cell.value
        # A pop returns its retries itself, so an ordinary retry topic is always pulled.
        mode = RequestMode.PULL if is_retry_topic(topic) else config.default_message_request_mode
        return RequestModeSetting(
            topic=topic,
            consumer_group=group,
            mode=mode,
            pop_share_queue_num=config.default_pop_share_queue_num,
        )

    def _share(
        self, query: AssignmentQuery, queues: Queues, mode: RequestModeSetting
    ) -> Queues | None:
        if query.message_model is MessageModel.BROADCASTING:
            return queues
        if not self._cell.value.server_load_balancer_enable:
            return queues
        strategy = STRATEGIES.get(query.strategy_name or "")
        members = sorted(self._clients.consumer_ids(query.consumer_group))
        if strategy is None or query.client_id not in members:
            # A client without a heartbeat here yet must keep its queues.
            log.warning("no queues of %s for %s: %s", query.topic, query.client_id, query)
            return None
        index = members.index(query.client_id)
        if mode.mode is RequestMode.POP:
            return pop_share(strategy, queues, index, len(members), mode.pop_share_queue_num)
        return strategy(queues, index, len(members))


def pop_share(
    strategy: Strategy, queues: Queues, index: int, members: int, shared_with: int
) -> Queues:
    """The queues that a member pops from; members may share queues.

    Args:
        strategy: divides the queues among members, one owner each.
        queues: all queues, sorted.
        index: position of the member in the sorted list of members.
        members: number of members.
        shared_with: number of following members whose queues this member also pops from; 0 or
            less means all members, and the result has one entry for each whole broker.
    """
    if shared_with <= 0 or shared_with >= members - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        topic = queues[0].topic if queues else ""
        return [MessageQueue(topic, name, WHOLE_BROKER) for name in brokers]
    if members > len(queues):
        return [queues[index % len(queues)]] if queues else []
    owners = [(index + step) % members for step in range(shared_with + 1)]
    return [queue for owner in owners for queue in strategy(queues, owner, members)]


class AssignmentHandlers:
    """Handles assignment queries and the settings of request modes."""

    def __init__(self, *, assignments: Assignments, topics: TopicTable, groups: GroupTable) -> None:
        self._assignments = assignments
        self._topics = topics
        self._groups = groups

    @handles(NoHeader, RequestCode.QUERY_ASSIGNMENT, max_body=MAX_BODY)
    async def query(self, request: Request[NoHeader]) -> Reply:
        query = await read_json(request, AssignmentQuery)
        assigned = await self._assignments.query(query)
        return Reply(body=fastjson.encode(bodies.Assignments(message_queue_assignments=assigned)))

    @handles(NoHeader, RequestCode.SET_MESSAGE_REQUEST_MODE, max_body=MAX_BODY)
    async def set_mode(self, request: Request[NoHeader]) -> Reply:
        setting = await read_json(request, RequestModeSetting)
        if is_retry_topic(setting.topic):
            raise NoPermission(
                f"retry topic is not allowed to set mode: {setting.topic} is pulled;"
                " set the mode of the original topic"
            )
        self._topics.require(setting.topic)
        self._groups.require(setting.consumer_group)
        log.info("%s sets %s", request.connection.peer, setting)
        await self._assignments.modes.set(setting)
        return Reply()

    @handles(NoHeader, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def modes(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=fastjson.encode(self._assignments.modes.table))
