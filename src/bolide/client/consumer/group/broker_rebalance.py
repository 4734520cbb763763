"""Rebalancing by the broker: it assigns queues and says whether to pull or to pop them."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from bolide.client.consumer.group.assignment import STRATEGY_NAMES, Strategy
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.rebalance import REJOIN_GRACE, AssignmentListener, Rebalancer
from bolide.client.consumer.pop.popped_queues import MixedQueues
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
    """Asks a broker of each topic for this member's assignment.

    Topics with ordered handlers are assigned by the members themselves, as in RocketMQ: ordered
    consumption depends on queue locks, which have a single owner.
    """

    def __init__(
        self,
        member: Membership,
        strategy: Strategy,
        target: MixedQueues,
        listener: AssignmentListener | None,
        is_ordered: Callable[[str], bool],
    ) -> None:
        super().__init__(member, strategy, target, listener)
        self._mixed = target
        self._strategy_name = STRATEGY_NAMES[strategy]
        self._is_ordered = is_ordered
        self._modes: dict[str, RequestMode] = {}  # of topics other than retry topics

    async def leave(self, *topics: str) -> None:
        retries = [each for t in topics for each in pop_retry_topics(self._member.group, t)]
        for topic in topics:
            self._modes.pop(topic, None)
        await super().leave(*topics, *retries)

    async def _balance(self, topic: str) -> bool:
        if self._is_ordered(topic):
            return await self._balance_by_members(topic)
        try:
            assigned = await self._query_assignment(topic)
        except RequestCodeNotSupported:
            self._throttled.warning(
                "unsupported",
                "%s: the brokers of %s are too old to assign queues; the members assign them",
                self._member.group,
                topic,
            )
            return await self._balance_by_members(topic)
        except BolideError as exc:
            return self._missed(topic, exc)
        if assigned is None and self._mixed.of_topic(topic):
            return False  # keep the current queues until a broker answers
        if assigned is None:
            return self._missed(topic, BolideError("no broker returned an assignment"))
        self._throttled.forget(topic)
        modes = {each.message_queue: each.mode for each in assigned}
        await self._switch_mode(topic, modes)
        self._mixed.set_modes(topic, modes)
        return await self._apply(topic, modes.keys(), modes.keys())

    async def _balance_by_members(self, topic: str) -> bool:
        self._mixed.set_modes(topic, {})
        return await super()._balance(topic)

    async def _query_assignment(self, topic: str) -> list[Assignment] | None:
        """None if the broker has no assignment yet. Raises the error of the last broker asked."""
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
                if self._has_just_reconnected(address, topic):
                    return None
                return fastjson.decode(reply.body, Assignments).message_queue_assignments
            except BolideError as exc:
                failure = exc
        raise failure

    async def _addresses(self, topic: str) -> Iterable[str]:
        """One address of each broker of a topic, shuffled to spread the queries.

        It is that of the master, or of the first slave while the master does not answer.
        """
        routes = self._member.instance.routes
        route = await routes.require(topic)
        brokers = [each.broker_addrs for each in route.broker_datas if each.broker_addrs]
        random.shuffle(brokers)

        def order(member: tuple[int, str]) -> tuple[bool, int]:
            return member[1] in routes.suspects, member[0]

        return [min(addresses.items(), key=order)[1] for addresses in brokers]

    def _has_just_reconnected(self, address: str, topic: str) -> bool:
        """A broker that just came back may not have heard of all members yet."""
        now = asyncio.get_running_loop().time()
        since = self._member.instance.remoting.reconnected_at(address)
        return now - since < REJOIN_GRACE and bool(self._mixed.of_topic(topic))

    async def _switch_mode(self, topic: str, modes: Modes) -> None:
        """When a topic changes to pulling, subscribe to the retry topics of its former pops too."""
        if topic.startswith(RETRY_PREFIX) or not modes:
            return
        mode = RequestMode.POP if RequestMode.POP in modes.values() else RequestMode.PULL
        if self._modes.get(topic) is mode:
            return
        self._modes[topic] = mode
        log.info("%s: messages of %s are read by %s", self._member.group, topic, mode)
        for retries in pop_retry_topics(self._member.group, topic):
            if mode is RequestMode.POP:
                self._member.filters.pop(retries, None)
            elif await self._exists(retries):
                self._member.filters[retries] = Filter.of(retries, "*", 0)
                self._member.instance.heartbeat_soon()
                self._member.rebalance_soon()

    async def _exists(self, topic: str) -> bool:
        try:
            await self._member.instance.routes.require(topic)
        except RouteNotFound:
            return False
        return True
