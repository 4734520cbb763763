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

log = logging.getLogger("bolide.client.consuming.rebalance")  # documented in docs/how-to/logging.md

EVERY = 20.0
SOON = 1.0
"""Seconds to the next round after one that did not get all it should."""

SETTLE = 3.0
"""Seconds that members have to tell a broker of themselves after it was gone."""

_MISSES = 10

AssignmentListener = Callable[
    [str, frozenset[MessageQueue], frozenset[MessageQueue]], Awaitable[object] | object
]
"""Called with a topic, all its queues and those that are ours now, whenever ours change."""


_News = tuple[str, frozenset[MessageQueue], frozenset[MessageQueue]]


class Holder(Protocol):
    """Holds queues and gives them up."""

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        """The queues of a topic that are held."""

    def topics(self) -> Collection[str]:
        """Topics of which a queue is held."""

    async def change(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Hold these queues of a topic and no others; False if one of them is yet to come."""


class Rebalancer:
    """Looks every 20 seconds, and when the membership says that something changed."""

    def __init__(
        self,
        member: Membership,
        strategy: Strategy,
        holder: Holder,
        listener: AssignmentListener | None = None,
    ) -> None:
        self._member = member
        self._strategy = strategy
        self._holder = holder
        self._listener = listener
        self._rare = ThrottledLog(log)
        self._misses = 0
        self._known: set[str] = set()  # the members of the last round
        self._round = asyncio.Lock()  # one round at a time: each reads what is held and changes it
        # Told outside of rounds: a listener may subscribe, and that takes a round of its own.
        self._news: asyncio.Queue[_News] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_news(), name="bolide-assignment-listener")
            await self._run_rounds()

    def between_rounds(self) -> asyncio.Lock:
        """To be held by those who change what a round reads."""
        return self._round

    async def _run_rounds(self) -> None:
        while True:
            self._member.wanted.clear()
            balanced = await self._guarded_round()
            try:
                async with asyncio.timeout(EVERY if balanced else SOON):
                    await self._member.wanted.wait()
            except TimeoutError:
                pass

    async def balance(self) -> bool:
        """One round; False if something could not be found out or got yet."""
        async with self._round:
            return await self._balance_all()

    async def join(self, *filters: Filter) -> None:
        """Subscribe, tell the brokers, and take the first share of the queues.

        Failures are logged: what could not be done now is tried again by and by.
        """
        member = self._member
        for wanted in filters:
            try:
                await member.instance.routes.require(wanted.topic)
            except BolideError as exc:
                if not wanted.topic.startswith(RETRY_PREFIX):
                    log.warning("%s waits for topic %s: %s", member.group, wanted.topic, exc)
        async with self._round:  # no broker is asked for messages before it knows of us
            member.filters.update({wanted.topic: wanted for wanted in filters})
            await member.instance.heartbeat()
            if not await self._balance_all():
                member.rebalance_soon()

    async def leave(self, *topics: str) -> None:
        """Give the queues of these topics up, and tell the brokers."""
        async with self._round:
            for topic in topics:
                self._member.filters.pop(topic, None)
            await self._balance_all()
            await self._member.instance.heartbeat()

    async def _balance_all(self) -> bool:
        outcomes = [await self._balance(topic) for topic in list(self._member.filters)]
        for topic in set(self._holder.topics()) - self._member.filters.keys():
            await self._apply(topic, [], [])
        return all(outcomes)

    async def _guarded_round(self) -> bool:
        try:
            return await self.balance()
        except Exception:
            log.exception("%s: sharing out the queues failed", self._member.group)
            return False

    async def _balance(self, topic: str) -> bool:
        try:
            queues = await self._member.instance.routes.subscribe_queues(topic)
            mine = await self._share(topic, queues)
        except BolideError as exc:
            return self._missed(topic, exc)
        self._rare.forget(topic)
        return mine is not None and await self._apply(topic, queues, mine)

    def _missed(self, topic: str, exc: BolideError) -> bool:
        """Say that queues cannot be had; True if that is not pressing."""
        if topic.startswith(RETRY_PREFIX):
            # The broker makes it when it first hears of the group.
            self._misses += 1
            return self._misses > _MISSES
        self._rare.warning(topic, "%s: no queues of %s: %s", self._member.group, topic, exc)
        return False

    async def _share(
        self, topic: str, queues: Sequence[MessageQueue]
    ) -> Collection[MessageQueue] | None:
        """The queues that are ours; None if that cannot be said now."""
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
        """Who is in the group; None if the broker does not know us, or all of the others, yet.

        What we hold stays ours meanwhile.
        """
        instance = self._member.instance
        address, client_ids = await self._ask_ids(topic)
        if instance.client_id not in client_ids:
            await instance.heartbeat()
            address, client_ids = await self._ask_ids(topic)
        if instance.client_id not in client_ids or self._is_too_early(address, client_ids):
            return None
        self._known = set(client_ids)
        return client_ids

    def _is_too_early(self, address: str, client_ids: Collection[str]) -> bool:
        """Whether members are missing because the broker has only just come back."""
        now = asyncio.get_running_loop().time()
        since = self._member.instance.remoting.reconnected_at(address)
        return now - since < SETTLE and not self._known.issubset(client_ids)

    async def _ask_ids(self, topic: str) -> tuple[str, list[str]]:
        """Ask the brokers of the topic one after the other. Raises the last one's error.

        Returns:
            Who answered, and the members he knows.
        """
        instance = self._member.instance
        route = await instance.routes.require(topic)
        addresses = [a for broker in route.broker_datas for a in broker.broker_addrs.values()]
        random.shuffle(addresses)  # the question is spread over the brokers
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
                return address, []  # it has not heard of the group yet
            except BolideError as exc:
                failure = exc
        raise failure

    async def _apply(
        self, topic: str, queues: Collection[MessageQueue], mine: Collection[MessageQueue]
    ) -> bool:
        before = self._holder.of_topic(topic)
        complete = await self._holder.change(topic, mine)
        after = self._holder.of_topic(topic)
        if before != after:
            log.info(
                "%s: %d of %d queues of %s", self._member.group, len(after), len(queues), topic
            )
            self._news.put_nowait((topic, frozenset(queues), after))
        return complete

    async def _tell_news(self) -> None:
        while True:
            news = await self._news.get()
            if self._listener is None:
                continue
            try:
                heard = self._listener(*news)
                if inspect.isawaitable(heard):
                    await heard
            except Exception:
                log.exception("the listener for assigned queues failed")


AGAIN = 0.5
"""Seconds until queues that could not be had are tried for again."""


class ChosenQueues:
    """Has exactly the chosen queues held. `run` gets those that `choose` did not get at once."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._chosen: Collection[MessageQueue] = ()
        self._missing = asyncio.Event()
        self._changing = asyncio.Lock()  # each change reads what is held

    async def choose(self, queues: Collection[MessageQueue]) -> None:
        """Hold these and no others; some may come later."""
        async with self._changing:
            self._chosen = queues
            await self._change()

    async def run(self) -> None:
        while True:
            await self._missing.wait()
            await asyncio.sleep(AGAIN)
            async with self._changing:
                try:
                    await self._change()
                except Exception:
                    log.exception("queues could not be got; they are tried for again")

    async def _change(self) -> None:
        self._missing.set()
        complete = True
        for topic in {queue.topic for queue in self._chosen} | set(self._holder.topics()):
            wanted = [queue for queue in self._chosen if queue.topic == topic]
            complete &= await self._holder.change(topic, wanted)
        if complete:
            self._missing.clear()
