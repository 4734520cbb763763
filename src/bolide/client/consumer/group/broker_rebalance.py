"""Queues as brokers share them out: to be pulled, or to be popped."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from bolide.client.consumer.group.assignment import STRATEGY_NAMES, Strategy
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.rebalance import SETTLE, AssignmentListener, Rebalancer
from bolide.client.consumer.pop.popped_queues import ModalHoldings
from bolide.client.consumer.subscription import Filter
from bolide.client.errors import RouteNotFound
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX, pop_retry_topics
from bolide.protocol import fastjson
from bolide.protocol.bodies.pop import Assignment, AssignmentQuery, Assignments, RequestMode
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import RequestCodeNotSupported

log = logging.getLogger(__name__)

Modes = dict[MessageQueue, RequestMode]


class BrokerRebalancer(Rebalancer):
    """Asks a broker of each topic what is ours.

    Topics with ordered handlers are shared out by the members themselves, as RocketMQ's do it:
    their order hangs on locks that have one owner.
    """

    def __init__(
        self,
        member: Membership,
        strategy: Strategy,
        holder: ModalHoldings,
        listener: AssignmentListener | None,
        is_ordered: Callable[[str], bool],
    ) -> None:
        super().__init__(member, strategy, holder, listener)
        self._modal = holder
        self._strategy_name = STRATEGY_NAMES[strategy]
        self._is_ordered = is_ordered
        self._modes: dict[str, RequestMode] = {}  # of topics that are not retries

    async def leave(self, *topics: str) -> None:
        retries = [each for t in topics for each in pop_retry_topics(self._member.group, t)]
        for topic in topics:
            self._modes.pop(topic, None)
        await super().leave(*topics, *retries)

    async def _balance(self, topic: str) -> bool:
        if self._is_ordered(topic):
            return await self._balance_here(topic)
        try:
            found = await self._ask(topic)
        except RequestCodeNotSupported:
            self._rare.warning(
                "unsupported",
                "%s: the brokers of %s do not share queues out, they are too old: the members do",
                self._member.group,
                topic,
            )
            return await self._balance_here(topic)
        except BolideError as exc:
            return self._missed(topic, exc)
        if found is None and self._modal.of_topic(topic):
            return False  # what we have stays ours meanwhile
        if found is None:
            return self._missed(topic, BolideError("no broker says which of them are ours"))
        self._rare.forget(topic)
        modes = {each.message_queue: each.mode for each in found}
        await self._follow(topic, modes)
        self._modal.expect(topic, modes)
        return await self._apply(topic, modes.keys(), modes.keys())

    async def _balance_here(self, topic: str) -> bool:
        self._modal.expect(topic, {})
        return await super()._balance(topic)

    async def _ask(self, topic: str) -> list[Assignment] | None:
        """None if the broker cannot say. Raises the last one's error."""
        member = self._member
        query = AssignmentQuery(
            topic=topic,
            consumer_group=member.group,
            client_id=member.instance.client_id,
            strategy_name=self._strategy_name,
            message_model=member.model,
        )
        body, code = fastjson.encode(query), RequestCode.QUERY_ASSIGNMENT
        failure: BolideError = BolideError(f"topic {topic} has no brokers now")
        for address in await self._addresses(topic):
            try:
                reply = await member.instance.call(address, code, body=body)
                if self._has_just_come_back(address, topic):
                    return None
                return fastjson.decode(reply.body, Assignments).message_queue_assignments
            except BolideError as exc:
                failure = exc
        raise failure

    async def _addresses(self, topic: str) -> Iterable[str]:
        """Of its brokers in any order, so that the question is spread over them."""
        route = await self._member.instance.routes.require(topic)
        brokers = [each.broker_addrs for each in route.broker_datas if each.broker_addrs]
        random.shuffle(brokers)
        return [addresses[min(addresses)] for addresses in brokers]

    def _has_just_come_back(self, address: str, topic: str) -> bool:
        """A broker that was gone shares out among those it has heard of since: not all of us."""
        now = asyncio.get_running_loop().time()
        since = self._member.instance.remoting.reconnected_at(address)
        return now - since < SETTLE and bool(self._modal.of_topic(topic))

    async def _follow(self, topic: str, modes: Modes) -> None:
        """When a topic is pulled, pull what is left of the retries of its pops too."""
        if topic.startswith(RETRY_PREFIX) or not modes:
            return
        mode = RequestMode.POP if RequestMode.POP in modes.values() else RequestMode.PULL
        if self._modes.get(topic) is mode:
            return
        self._modes[topic] = mode
        log.info("%s: messages of %s come by %s", self._member.group, topic, mode)
        for retries in pop_retry_topics(self._member.group, topic):
            if mode is RequestMode.POP:
                self._member.filters.pop(retries, None)
            elif await self._is_there(retries):
                self._member.filters[retries] = Filter.of(retries, "*", 0)
                self._member.instance.heartbeat_soon()
                self._member.rebalance_soon()

    async def _is_there(self, topic: str) -> bool:
        try:
            await self._member.instance.routes.require(topic)
        except RouteNotFound:
            return False
        return True
