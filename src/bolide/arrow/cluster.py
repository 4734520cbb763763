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
from bolide.arrow.retry import Patience, for_each, may_pass, ride_out
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
"""Seconds that a cluster may be away before a reader gives up."""
READER_GROUP = TOOLS_GROUP
"""The group that every broker has, for whoever only looks."""
_SYSTEM_PREFIXES = SYSTEM_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX.upper()
_REPLY_TOPIC = "_REPLY_TOPIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Secrets are left out of its `repr`, so that they reach no log."""

    name_server: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    namespace: str = ""
    tls: ClientTls | None = field(default=None, repr=False)
    call_timeout: float = 3.0

    def settings(self) -> ClientSettings:
        """Raises ConfigError for what cannot be used; names it."""
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
    """Asks a cluster while its `async with` block runs; rides out outages up to `patience` s.

    Topics and groups go by their users' names: without the namespace of the connection.
    Everything raises `OutOfPatience` if the cluster could not be asked for that long,
    and `Refusal` at once for what waiting does not cure.
    """

    def __init__(self, connection: Connection, *, patience: float = PATIENCE) -> None:
        """Raises ConfigError for a connection that cannot be used."""
        self.settings = connection.settings().with_own_name()
        self.patience = patience
        self._instance: ClientInstance | None = None
        self._pullers: dict[str, Puller] = {}
        self._groups: dict[str, GroupOffsets] = {}
        self._seen: set[str] = set()  # topics that were there

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

    def patient(self, seconds: float) -> Self:
        """The same open cluster with another patience; only the first one is closed."""
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
        """The readable queues of these topics, sorted; the routes are asked for anew.

        Of a broker that is just being restarted the NameServer may tell none: what else is known
        of its queues may still be asked, and is waited for.

        Raises:
            RouteNotFound: nobody has one of the topics. One that was there before is waited for.
        """
        found = await for_each(set(topics), self._queues)
        return sorted(queue for queues in found.values() for queue in queues)

    async def _queues(self, topic: str) -> list[MessageQueue]:
        wire = self.settings.wrap(topic)

        async def ask() -> list[MessageQueue]:
            try:
                await self.instance.routes.refresh(wire)
                found = await self.instance.routes.subscribe_queues(wire)
            except RouteNotFound as exc:
                if topic in self._seen:
                    raise
                raise _NoSuchTopic(exc) from exc
            self._seen.add(topic)
            return [MessageQueue(topic, each.broker_name, each.queue_id) for each in found]

        try:
            return await self._ride_out(f"queues of topic {topic}", ask)
        except _NoSuchTopic as exc:
            raise exc.cause from None

    async def topics_matching(self, pattern: str) -> list[str]:
        """The topics whose whole name matches a regular expression, sorted.

        Topics of the system are never among them, those of retries and dead letters only if the
        pattern names their mark. Raises ConfigError for a pattern that is none.
        """
        try:
            wanted = re.compile(pattern)
        except re.error as exc:
            raise ConfigError(f"pattern {pattern!r}: is no regular expression: {exc}") from exc
        system = await self._topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        names = await self._topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        marks = [mark for mark in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if mark not in pattern]
        return sorted(
            topic
            for topic in map(self._own_name, names - system - SYSTEM_TOPICS)
            if topic is not None
            and not topic.startswith((*_SYSTEM_PREFIXES, *marks))
            and not topic.endswith(_REPLY_TOPIC)
            and wanted.fullmatch(topic)
        )

    async def _topics(self, code: RequestCode) -> set[str]:
        async def ask() -> set[str]:
            reply = await self.instance.call_name_server(code)
            return set(fastjson.decode(reply.body, TopicList).topic_list)

        return await self._ride_out("the list of topics", ask)

    def _own_name(self, wire: str) -> str | None:
        """The user's name of a topic; None if it is in another namespace."""
        name = self.settings.unwrap(wire)
        return name if self.settings.wrap(name) == wire else None

    # Positions

    async def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """What each queue holds now."""
        return await for_each(
            queues, lambda queue: self.ride_out(queue, partial(self._bounds, queue))
        )

    async def find_bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """The same, asked once: queues that no broker answers for are left out."""

        async def ask(queue: MessageQueue) -> Bounds | None:
            try:
                return await self._bounds(queue)
            except BolideError as exc:
                if may_pass(exc) or isinstance(exc, TopicNotFound):
                    return None
                raise

        found = await for_each(queues, ask)
        return {queue: bounds for queue, bounds in found.items() if bounds is not None}

    async def _bounds(self, queue: MessageQueue) -> Bounds:
        wire, lookups = self.on_wire(queue), self.instance.lookups
        return Bounds(await lookups.min_offset(wire), await lookups.max_offset(wire))

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """What the broker says is the first message stored at that time or later."""
        wire, lookups = self.on_wire(queue), self.instance.lookups
        return await self.ride_out(queue, lambda: lookups.search_offset(wire, timestamp_ms))

    async def resolve(
        self, position: Position, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """The offset of a position in each queue. Times past the end are the end.

        Raises:
            BadPosition: exact offsets lack a queue, or name one that is not there.
        """
        return await resolve_position(self, position, list(queues))

    async def committed(
        self, group: str, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Where a group is; queues that it has not consumed are left out.

        RocketMQ 4.9 says 0 where nothing was deleted from a queue yet.
        """
        offsets = self._group(group)

        async def ask(queue: MessageQueue) -> int | None:
            wire = self.on_wire(queue)
            return await self.ride_out(queue, lambda: offsets.read(wire))

        found = await for_each(queues, ask)
        return {queue: offset for queue, offset in found.items() if offset is not None}

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Set where a group is, and make the group if there is none; at once or not at all.

        Raises:
            BolideError: a broker could not be asked, or refused: commits are not ridden out.
        """
        await self._group(group).write({self.on_wire(each): at for each, at in offsets.items()})

    def _group(self, group: str) -> GroupOffsets:
        if group not in self._groups:
            self._groups[group] = GroupOffsets(self.instance, self.settings.wrap(group))
        return self._groups[group]

    # Messages

    async def pull(self, pull: Pull, group: str = READER_GROUP) -> RawPull:
        """Ask once, without riding out; the queue goes by its name on the wire."""
        if group not in self._pullers:
            name = group if group == READER_GROUP else self.settings.wrap(group)
            self._pullers[group] = Puller(self.instance, name)
        return await self._pullers[group].pull_raw(pull)

    async def renew(self, topic: str) -> None:
        """Learn where the brokers of a topic are now; failures are found out by the next call."""
        with suppress(BolideError):
            await self.instance.routes.refresh(self.settings.wrap(topic))

    # Outages

    async def ride_out(self, queue: MessageQueue, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask about a queue until there is an answer."""
        return await self._ride_out(f"queue {queue}", ask, queue.topic)

    async def _ride_out(
        self, what: str, ask: Callable[[], Awaitable[T]], topic: str | None = None
    ) -> T:
        async def renew() -> None:
            if topic is not None:
                await self.renew(topic)

        return await ride_out(Patience(what, self.patience), ask, renew)

    def on_wire(self, queue: MessageQueue) -> MessageQueue:
        """The queue by its name with the namespace."""
        return MessageQueue(self.settings.wrap(queue.topic), queue.broker_name, queue.queue_id)


class _NoSuchTopic(BolideError):
    """Carries a RouteNotFound past those who would wait for the topic."""

    def __init__(self, cause: RouteNotFound) -> None:
        super().__init__(str(cause))
        self.cause = cause


_opened: dict[Connection, "asyncio.Task[Cluster]"] = {}
"""Used on the loop's thread only."""

os.register_at_fork(after_in_child=_opened.clear)  # nothing of them lives there


def ask(
    connection: Connection,
    question: Callable[[Cluster], Awaitable[T]],
    *,
    patience: float = PATIENCE,
) -> T:
    """Ask a cluster and wait for the answer: `ask(connection, lambda c: c.bounds(queues))`.

    Connections stay open for the next question, and end with the process; a forked child makes
    its own.
    """

    async def answer() -> T:
        return await question(await open_cluster(connection, patience))

    return LoopThread.get().wait(answer())


async def open_cluster(connection: Connection, patience: float = PATIENCE) -> Cluster:
    """The cluster of a connection in this process; to be called on the thread of `LoopThread`.

    Raises:
        ConfigError: the connection cannot be used.
    """
    if connection not in _opened or _has_failed(_opened[connection]):
        opening = Cluster(connection).__aenter__()
        _opened[connection] = asyncio.create_task(opening)  # two may want it at once
    return (await asyncio.shield(_opened[connection])).patient(patience)


def _has_failed(opening: "asyncio.Task[Cluster]") -> bool:
    """What was wrong, such as a certificate that was not there, may be right by now."""
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
