"""Rebalance: the queues of a group's topics are shared among its members."""

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from bolide.client.consumer.group.assignment import Strategy
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.subscription import Filter
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ConsumerIds
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import ConsumerGroupHeader
from bolide.protocol.refusals import ServerError
from bolide.remoting.errors import RemotingError

log = logging.getLogger("bolide.client.consuming.rebalance")  # documented in docs/how-to/logging.md

REBALANCE_INTERVAL = 20.0
INCOMPLETE_INTERVAL = 1.0
"""Seconds to the next round after one that did not acquire all queues."""

REJOIN_GRACE = 3.0
"""Seconds that members have to send heartbeats to a broker that was unreachable."""

CHOICE_RETRY_INTERVAL = 0.5
"""Seconds until chosen queues that could not be acquired are tried again."""

_MAX_RETRY_TOPIC_MISSES = 10

AssignmentListener = Callable[
    [str, frozenset[MessageQueue], frozenset[MessageQueue]], Awaitable[object] | object
]
"""Called with a topic, all its queues and the assigned ones whenever the assignment changes."""

_Assignment = tuple[str, frozenset[MessageQueue], frozenset[MessageQueue]]


class AssignmentTarget(Protocol):
    """Applies assignments: acquires and releases queues."""

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        """The held queues of a topic."""

    def topics(self) -> Collection[str]:
        """Topics with a held queue."""

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Hold exactly these queues of a topic; False if some could not be acquired yet."""


class Rebalancer:
    """Runs a round every 20 seconds and whenever the membership requests one."""

    def __init__(
        self,
        member: Membership,
        strategy: Strategy,
        target: AssignmentTarget,
        listener: AssignmentListener | None = None,
    ) -> None:
        self._member = member
        self._strategy = strategy
        self._target = target
        self._listener = listener
        self._throttled = ThrottledLog(log)
        self._misses = 0
        self._known: set[str] = set()  # client ids of the last round
        self._round = asyncio.Lock()  # one round at a time: each reads and changes the held queues
        # Listeners run outside of rounds: one may subscribe, which takes a round of its own.
        self._changes: asyncio.Queue[_Assignment] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._notify_listener(), name="bolide-assignment-listener")
            await self._run_rounds()

    def between_rounds(self) -> asyncio.Lock:
        """The lock to hold while changing what a round reads."""
        return self._round

    async def _run_rounds(self) -> None:
        while True:
            self._member.rebalance_needed.clear()
            balanced = await self._guarded_round()
            try:
                async with asyncio.timeout(REBALANCE_INTERVAL if balanced else INCOMPLETE_INTERVAL):
                    await self._member.rebalance_needed.wait()
            except TimeoutError:
                pass

    async def balance(self) -> bool:
        """Run one round; False if some queues could not be determined or acquired yet."""
        async with self._round:
            return await self._balance_all()

    async def join(self, *filters: Filter) -> None:
        """Subscribe, announce the subscriptions to the brokers, and acquire the first queues.

        Failures are logged and retried in later rounds.
        """
        member = self._member
        for wanted in filters:
            try:
                await member.instance.routes.require(wanted.topic)
            except BolideError as exc:
                if not wanted.topic.startswith(RETRY_PREFIX):
                    log.warning("%s waits for topic %s: %s", member.group, wanted.topic, exc)
        async with self._round:  # brokers must know the subscription before the first pull
            member.filters.update({wanted.topic: wanted for wanted in filters})
            await member.instance.heartbeat()
            if not await self._balance_all():
                member.rebalance_soon()

    async def leave(self, *topics: str) -> None:
        """Release the queues of these topics and announce that to the brokers."""
        async with self._round:
            for topic in topics:
                self._member.filters.pop(topic, None)
            await self._balance_all()
            await self._member.instance.heartbeat()

    async def _balance_all(self) -> bool:
        outcomes = [await self._balance(topic) for topic in list(self._member.filters)]
        for topic in set(self._target.topics()) - self._member.filters.keys():
            await self._apply(topic, [], [])
        return all(outcomes)

    async def _guarded_round(self) -> bool:
        try:
            return await self.balance()
        except Exception:
            log.exception("%s: rebalancing failed", self._member.group)
            return False

    async def _balance(self, topic: str) -> bool:
        try:
            queues = await self._member.instance.routes.subscribe_queues(topic)
            mine = await self._assigned(topic, queues)
        except BolideError as exc:
            return self._missed(topic, exc)
        self._throttled.forget(topic)
        return mine is not None and await self._apply(topic, queues, mine)

    def _missed(self, topic: str, exc: BolideError) -> bool:
        """Log that a topic has no queues; True if the next regular round is soon enough."""
        if topic.startswith(RETRY_PREFIX):
            # The broker creates the retry topic on the first heartbeat of the group.
            self._misses += 1
            return self._misses > _MAX_RETRY_TOPIC_MISSES
        self._throttled.warning(topic, "%s: no queues of %s: %s", self._member.group, topic, exc)
        return False

    async def _assigned(
        self, topic: str, queues: Sequence[MessageQueue]
    ) -> Collection[MessageQueue] | None:
        """The queues assigned to this member; None if they cannot be determined now."""
        member = self._member
        if member.is_broadcasting:
            return queues
        client_ids = await self._member_ids(topic)
        if client_ids is None:
            return None
        try:
            return self._strategy(member.group, member.instance.client_id, queues, client_ids)
        except Exception:
            log.exception("%s: the strategy failed for %s", member.group, topic)
            return None

    async def _member_ids(self, topic: str) -> list[str] | None:
        """The members of the group; None if the broker does not know all of them yet.

        Until then this member keeps its queues.
        """
        instance = self._member.instance
        address, client_ids = await self._query_member_ids(topic)
        if instance.client_id not in client_ids:
            await instance.heartbeat()
            address, client_ids = await self._query_member_ids(topic)
        if instance.client_id not in client_ids or self._is_too_early(address, client_ids):
            return None
        self._known = set(client_ids)
        return client_ids

    def _is_too_early(self, address: str, client_ids: Collection[str]) -> bool:
        """Whether members are missing because the broker has just come back."""
        now = asyncio.get_running_loop().time()
        since = self._member.instance.remoting.reconnected_at(address)
        return now - since < REJOIN_GRACE and not self._known.issubset(client_ids)

    async def _query_member_ids(self, topic: str) -> tuple[str, list[str]]:
        """Query the brokers of the topic until one answers. Raises the error of the last one.

        Returns:
            The address of the broker that answered, and the client ids it knows.
        """
        instance = self._member.instance
        route = await instance.routes.require(topic)
        addresses = [a for broker in route.broker_datas for a in broker.broker_addrs.values()]
        random.shuffle(addresses)  # spread the queries over the brokers
        addresses.sort(key=lambda each: each in instance.routes.suspects)
        failure: BolideError = BolideError(f"topic {topic} has no brokers now")
        for address in addresses:
            try:
                reply = await instance.call(
                    address,
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                    ConsumerGroupHeader(self._member.group),
                )
                return address, sorted(fastjson.decode(reply.body, ConsumerIds).consumer_id_list)
            except ServerError:
                return address, []  # the broker does not know the group yet
            except BolideError as exc:
                failure = exc
                if isinstance(exc, RemotingError):
                    instance.broker_failed(address, topic)
        raise failure

    async def _apply(
        self, topic: str, queues: Collection[MessageQueue], mine: Collection[MessageQueue]
    ) -> bool:
        before = self._target.of_topic(topic)
        complete = await self._target.assign(topic, mine)
        after = self._target.of_topic(topic)
        if before != after:
            log.info(
                "%s: %d of %d queues of %s", self._member.group, len(after), len(queues), topic
            )
            self._changes.put_nowait((topic, frozenset(queues), after))
        return complete

    async def _notify_listener(self) -> None:
        while True:
            change = await self._changes.get()
            if self._listener is None:
                continue
            try:
                result = self._listener(*change)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("the assignment listener failed")


class ChosenQueues:
    """Holds the queues a user chose. `run` acquires those that `choose` could not acquire."""

    def __init__(self, target: AssignmentTarget) -> None:
        self._target = target
        self._chosen: Collection[MessageQueue] = ()
        self._missing = asyncio.Event()
        self._changing = asyncio.Lock()  # each change reads the held queues

    async def choose(self, queues: Collection[MessageQueue]) -> None:
        """Hold exactly these queues; `run` acquires those that are not available now."""
        async with self._changing:
            self._chosen = queues
            await self._change()

    async def run(self) -> None:
        while True:
            await self._missing.wait()
            await asyncio.sleep(CHOICE_RETRY_INTERVAL)
            async with self._changing:
                try:
                    await self._change()
                except Exception:
                    log.exception("chosen queues could not be acquired; trying again")

    async def _change(self) -> None:
        self._missing.set()
        complete = True
        for topic in {queue.topic for queue in self._chosen} | set(self._target.topics()):
            wanted = [queue for queue in self._chosen if queue.topic == topic]
            complete &= await self._target.assign(topic, wanted)
        if complete:
            self._missing.clear()
