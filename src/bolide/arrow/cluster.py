"""A cluster as the table readers see it: queues, their bounds, and committed offsets.

`Cluster` is the asyncio API. `ask` and `open_cluster` share one open `Cluster` per `Connection` for
code without `await`; the shared clusters stay open until the process ends.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from bolide.arrow.group_offsets import GroupOffsets
from bolide.arrow.offsets import Bounds, Offsets, Position
from bolide.arrow.position_lookup import resolve_position
from bolide.arrow.retry import Backoff, gather_by_key, is_transient, retry_transient
from bolide.client.blocking import LoopThread
from bolide.client.consumer.pull.pull_request import Pull, Puller, RawPull
from bolide.client.errors import RouteNotFound, WrongState
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.settings import ClientSettings
from bolide.errors import BolideError, ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TOOLS_GROUP,
)
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.tls import ClientTls

T = TypeVar("T")

PATIENCE = 60.0
"""Default limit, in seconds, for an outage of the cluster."""
READER_GROUP = TOOLS_GROUP
"""Consumer group for reads without a group of their own; every broker has it."""
_SYSTEM_PREFIXES = SYSTEM_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX.upper()
_REPLY_TOPIC = "_REPLY_TOPIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach a cluster: plain values that can be sent to worker processes.

    Secrets are excluded from `repr`, so that they are not logged.
    """

    name_server: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    namespace: str = ""
    tls: ClientTls | None = field(default=None, repr=False)
    call_timeout: float = 3.0

    def settings(self) -> ClientSettings:
        """Raises ConfigError, with the name of the invalid value."""
        return ClientSettings.of(
            name_server=self.name_server,
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            namespace=self.namespace,
            tls=self.tls,
            call_timeout=self.call_timeout,
        )


class Cluster:
    """Read access to a cluster, open inside its `async with` block.

    Topic and group names are those of the user, without the namespace of the connection. Requests
    are retried through outages of up to `patience` seconds, after which they raise
    `OutOfPatience`. A refusal that a retry cannot change raises `Refusal` at once.
    """

    def __init__(self, connection: Connection, *, patience: float = PATIENCE) -> None:
        """Raises ConfigError if the connection is invalid."""
        self.settings = connection.settings().with_own_name()
        self.patience = patience
        self._instance: ClientInstance | None = None
        self._pullers: dict[str, Puller] = {}
        self._groups: dict[str, GroupOffsets] = {}
        self._known_topics: set[str] = set()  # topics that had a route before

    async def __aenter__(self) -> Self:
        self._instance = await ClientInstance.acquire(self.settings)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        instance, self._instance = self.instance, None
        await instance.release()

    def with_patience(self, seconds: float) -> Self:
        """A copy with another outage limit; it shares the open connections and is not closed."""
        other = copy(self)
        other.patience = seconds
        return other

    @property
    def instance(self) -> ClientInstance:
        """Raises WrongState outside its `async with` block."""
        if self._instance is None:
            raise WrongState("this cluster is not open: use it in `async with Cluster(...)`")
        return self._instance

    # Topics and queues

    async def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """The readable queues of these topics, sorted, from freshly fetched routes.

        The queues of a broker that is restarting may be missing from the route. Requests about
        queues known from earlier are still possible and wait for the broker.

        Raises:
            RouteNotFound: a topic has no route. A topic that had one before is retried instead.
        """
        found = await gather_by_key(set(topics), self._queues)
        return sorted(queue for queues in found.values() for queue in queues)

    async def _queues(self, topic: str) -> list[MessageQueue]:
        wire = self.settings.wrap(topic)

        async def fetch() -> list[MessageQueue]:
            try:
                await self.instance.routes.refresh(wire)
                found = await self.instance.routes.subscribe_queues(wire)
            except RouteNotFound as exc:
                if topic in self._known_topics:
                    raise
                raise _NoSuchTopic(exc) from exc
            self._known_topics.add(topic)
            return [MessageQueue(topic, each.broker_name, each.queue_id) for each in found]

        try:
            return await self._retry(f"queues of topic {topic}", fetch)
        except _NoSuchTopic as exc:
            raise exc.cause from None

    async def topics_matching(self, pattern: str) -> list[str]:
        """The topics whose whole name matches a regular expression, sorted.

        System topics are excluded; retry and dead-letter topics are included only if the pattern
        contains their prefix. Raises ConfigError if the pattern is not a regular expression.
        """
        try:
            wanted = re.compile(pattern)
        except re.error as exc:
            raise ConfigError(f"pattern {pattern!r}: is no regular expression: {exc}") from exc
        system = await self._topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        names = await self._topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        excluded = [name for name in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if name not in pattern]
        return sorted(
            topic
            for topic in map(self._own_name, names - system - SYSTEM_TOPICS)
            if topic is not None
            and not topic.startswith((*_SYSTEM_PREFIXES, *excluded))
            and not topic.endswith(_REPLY_TOPIC)
            and wanted.fullmatch(topic)
        )

    async def _topics(self, code: RequestCode) -> set[str]:
        async def fetch() -> set[str]:
            reply = await self.instance.call_name_server(code)
            return set(fastjson.decode(reply.body, TopicList).topic_list)

        return await self._retry("the list of topics", fetch)

    def _own_name(self, wire: str) -> str | None:
        """The topic name without the namespace; None if the topic is in another namespace."""
        name = self.settings.unwrap(wire)
        return name if self.settings.wrap(name) == wire else None

    # Positions

    async def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """The oldest and the end offset of each queue."""
        return await gather_by_key(
            queues, lambda queue: self.retry(queue, partial(self._bounds, queue))
        )

    async def find_bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """As `bounds`, without retries: queues whose broker does not answer are omitted."""

        async def find(queue: MessageQueue) -> Bounds | None:
            try:
                return await self._bounds(queue)
            except BolideError as exc:
                if is_transient(exc) or isinstance(exc, TopicNotFound):
                    return None
                raise

        found = await gather_by_key(queues, find)
        return {queue: bounds for queue, bounds in found.items() if bounds is not None}

    async def _bounds(self, queue: MessageQueue) -> Bounds:
        wire, lookups = self.on_wire(queue), self.instance.lookups
        return Bounds(await lookups.min_offset(wire), await lookups.max_offset(wire))

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The broker's answer for the first message stored at that time or later."""
        wire, lookups = self.on_wire(queue), self.instance.lookups
        return await self.retry(queue, lambda: lookups.search_offset(wire, timestamp_ms))

    async def resolve(
        self, position: Position, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """The offset of a position in each queue. A time after the last message is the end.

        Raises:
            BadPosition: exact offsets omit a queue, or name an unknown one.
        """
        return await resolve_position(self, position, list(queues))

    async def committed(
        self, group: str, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """The committed offsets of a group; queues without one are omitted.

        RocketMQ 4.9 returns 0 for an unconsumed queue from which nothing was deleted yet.
        """
        offsets = self._group(group)

        async def find(queue: MessageQueue) -> int | None:
            wire = self.on_wire(queue)
            return await self.retry(queue, lambda: offsets.find(wire))

        found = await gather_by_key(queues, find)
        return {queue: offset for queue, offset in found.items() if offset is not None}

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit offsets for a group, and create the group if necessary; without retries.

        Raises:
            BolideError: a broker was unreachable or refused.
        """
        await self._group(group).write({self.on_wire(each): at for each, at in offsets.items()})

    def _group(self, group: str) -> GroupOffsets:
        if group not in self._groups:
            self._groups[group] = GroupOffsets(self.instance, self.settings.wrap(group))
        return self._groups[group]

    # Messages

    async def pull(self, pull: Pull, group: str = READER_GROUP) -> RawPull:
        """Pull once, without retries; the queue has its wire name."""
        if group not in self._pullers:
            name = group if group == READER_GROUP else self.settings.wrap(group)
            self._pullers[group] = Puller(self.instance, name)
        return await self._pullers[group].pull_raw(pull)

    async def refresh_route(self, topic: str) -> None:
        """Fetch the current route of a topic; a failure shows up in the next request."""
        with suppress(BolideError):
            await self.instance.routes.refresh(self.settings.wrap(topic))

    # Outages

    async def retry(self, queue: MessageQueue, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request about a queue until it succeeds; refreshes the route in between."""
        return await self._retry(f"queue {queue}", request, queue.topic)

    async def _retry(
        self, what: str, request: Callable[[], Awaitable[T]], topic: str | None = None
    ) -> T:
        async def refresh_route() -> None:
            if topic is not None:
                await self.refresh_route(topic)

        return await retry_transient(Backoff(what, self.patience), request, refresh_route)

    def on_wire(self, queue: MessageQueue) -> MessageQueue:
        """The queue with its wire name, which includes the namespace."""
        return MessageQueue(self.settings.wrap(queue.topic), queue.broker_name, queue.queue_id)


class _NoSuchTopic(BolideError):
    """Wraps RouteNotFound, which counts as transient, to end the retries."""

    def __init__(self, cause: RouteNotFound) -> None:
        super().__init__(str(cause))
        self.cause = cause


_opened: dict[Connection, "asyncio.Task[Cluster]"] = {}
"""Open clusters of this process; accessed on the thread of `LoopThread` only."""

os.register_at_fork(after_in_child=_opened.clear)  # connections do not survive a fork


def ask(
    connection: Connection,
    question: Callable[[Cluster], Awaitable[T]],
    *,
    patience: float = PATIENCE,
) -> T:
    """Query a cluster and block for the result: `ask(connection, lambda c: c.bounds(queues))`.

    Connections stay open for later calls until the process ends; a forked child opens its own.
    """

    async def run() -> T:
        return await question(await open_cluster(connection, patience))

    return LoopThread.get().wait(run())


async def open_cluster(connection: Connection, patience: float = PATIENCE) -> Cluster:
    """The shared cluster of a connection; must run on the thread of `LoopThread`.

    Raises:
        ConfigError: the connection is invalid.
    """
    if connection not in _opened or _has_failed(_opened[connection]):
        opening = Cluster(connection).__aenter__()
        _opened[connection] = asyncio.create_task(opening)  # a task: concurrent callers share it
    return (await asyncio.shield(_opened[connection])).with_patience(patience)


def _has_failed(opening: "asyncio.Task[Cluster]") -> bool:
    """A failed opening is tried again: a missing certificate, for example, may exist by now."""
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
