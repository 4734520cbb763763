"""Queue assignment by the broker (`QueryAssignmentProcessor`).

For consumers that do not rebalance by themselves.
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
from bolide.model import shares
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

_ASK_WITHIN = 1.0
_AGAIN = 1.0
"""Seconds until NameServers that did not answer are asked again."""

_MOST = 10_000

QueueList = list[MessageQueue]


@dataclass(slots=True)
class _Known:
    queues: QueueList
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
        self._client: RemotingClient | None = None
        """The way to NameServers, once the broker serves."""

    def use(self, client: RemotingClient) -> None:
        """Ask the NameServers through this client from now on."""
        self._client = client

    async def find(self, topic: str) -> QueueList | None:
        """All queues, sorted; None if there is no such topic, or nobody says so."""
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
        if self._client is None:
            raise failure
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic)
        for server in self._cell.value.name_servers:
            try:
                reply = await self._client.call(server, code, header, within=_ASK_WITHIN)
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


Queues = Sequence[MessageQueue]
Strategy = Callable[[Queues, int, int], Queues]

STRATEGIES: dict[str, Strategy] = {"AVG": shares.average, "AVG_BY_CIRCLE": shares.by_circle}
"""By the names that clients send."""

WHOLE_BROKER = -1
"""The queue id that means all of a broker."""


class RequestModes:
    """By which requests groups get the messages of topics, out of a table that is loaded."""

    def __init__(self, table: Table[RequestModeTable]) -> None:
        self._table = table
        self._saving = threading.Lock()  # one file, one writer

    @property
    def table(self) -> RequestModeTable:
        """All of them as peers get them; not to be changed."""
        return self._table.value

    def find(self, topic: str, group: str) -> RequestModeSetting | None:
        return self.table.message_request_mode_map.get(topic, {}).get(group)

    async def set(self, wanted: RequestModeSetting) -> None:
        """In force at once, and on the disk when it returns.

        Raises:
            ServerError: it could not be written.
        """
        topics = self.table.message_request_mode_map
        topics.setdefault(wanted.topic, {})[wanted.consumer_group] = wanted
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
    """Answers consumers that ask what is theirs."""

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

    async def query(self, asked: AssignmentQuery) -> list[Assignment] | None:
        """The queues of one client; None if that cannot be said: it keeps what it has."""
        queues = await self.queues.find(asked.topic)
        if queues is None:
            return None
        mode = self._mode(asked.topic, asked.consumer_group)
        mine = self._share(asked, queues, mode)
        if mine is None:
            return None
        each_once = dict.fromkeys(mine)
        return [Assignment(message_queue=queue, mode=mode.mode) for queue in each_once]

    def _mode(self, topic: str, group: str) -> RequestModeSetting:
        if found := self.modes.find(topic, group):
            return found
        config = self._cell.value
        # Retries of pops come with the pops: what is in a retry topic of its own is pulled.
        mode = RequestMode.PULL if is_retry_topic(topic) else config.default_message_request_mode
        return RequestModeSetting(
            topic=topic,
            consumer_group=group,
            mode=mode,
            pop_share_queue_num=config.default_pop_share_queue_num,
        )

    def _share(
        self, asked: AssignmentQuery, queues: Queues, mode: RequestModeSetting
    ) -> Queues | None:
        if asked.message_model is MessageModel.BROADCASTING:
            return queues
        if not self._cell.value.server_load_balancer_enable:
            return queues
        strategy = STRATEGIES.get(asked.strategy_name or "")
        members = sorted(self._clients.consumer_ids(asked.consumer_group))
        if strategy is None or asked.client_id not in members:
            # One that is not known here yet must not give up what it has.
            log.warning("no queues of %s for %s: %s", asked.topic, asked.client_id, asked)
            return None
        index = members.index(asked.client_id)
        if mode.mode is RequestMode.POP:
            return pop_share(strategy, queues, index, len(members), mode.pop_share_queue_num)
        return strategy(queues, index, len(members))


def pop_share(
    strategy: Strategy, queues: Queues, index: int, members: int, shared_with: int
) -> Queues:
    """The queues a member pops from: several may pop from one.

    Args:
        strategy: how they would be shared if each had one owner.
        queues: all of them, sorted.
        index: which of the members.
        members: how many there are.
        shared_with: how many members after it in the list have their queues in common with it;
            0 or less is all, and then a queue stands for a whole broker.
    """
    if shared_with <= 0 or shared_with >= members - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        topic = queues[0].topic if queues else ""
        return [MessageQueue(topic, name, WHOLE_BROKER) for name in brokers]
    if members > len(queues):
        return [queues[index % len(queues)]] if queues else []
    friends = [(index + step) % members for step in range(shared_with + 1)]
    return [queue for friend in friends for queue in strategy(queues, friend, members)]


class AssignmentHandlers:
    """Says which queues are whose, and whether they are pulled or popped."""

    def __init__(self, *, assignments: Assignments, topics: TopicTable, groups: GroupTable) -> None:
        self._assignments = assignments
        self._topics = topics
        self._groups = groups

    @handles(NoHeader, RequestCode.QUERY_ASSIGNMENT, max_body=MAX_BODY)
    async def query(self, request: Request[NoHeader]) -> Reply:
        asked = await read_json(request, AssignmentQuery)
        found = await self._assignments.query(asked)
        return Reply(body=fastjson.encode(bodies.Assignments(message_queue_assignments=found)))

    @handles(NoHeader, RequestCode.SET_MESSAGE_REQUEST_MODE, max_body=MAX_BODY)
    async def set_mode(self, request: Request[NoHeader]) -> Reply:
        wanted = await read_json(request, RequestModeSetting)
        if is_retry_topic(wanted.topic):
            raise NoPermission(
                f"retry topic is not allowed to set mode: {wanted.topic} is pulled;"
                " set the mode of the topic that the retries are of"
            )
        self._topics.require(wanted.topic)
        self._groups.require(wanted.consumer_group)
        log.info("%s sets %s", request.connection.peer, wanted)
        await self._assignments.modes.set(wanted)
        return Reply()

    @handles(NoHeader, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def modes(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=fastjson.encode(self._assignments.modes.table))
