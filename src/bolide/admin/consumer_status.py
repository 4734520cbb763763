"""The state of a group's members as they report it, and what is wrong with it.

Members of one group must subscribe alike: the broker keeps one subscription per group and topic,
so that each heartbeat of a differing member changes what all of them get.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bolide.admin.clients import Clients
from bolide.admin.servers import OnFailure, Servers, gather_by_key
from bolide.errors import BolideError
from bolide.protocol.bodies.consumers import Connection, HeldQueue, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumeType, Subscription
from bolide.protocol.bodies.message_queue import MessageQueue

STALLED = 60.0
"""Seconds without consumption after which a queue with buffered messages counts as stalled."""


@dataclass(frozen=True, slots=True)
class SubscriptionDifference:
    """A topic to which the members of a group do not subscribe alike."""

    topic: str
    expressions: Mapping[str, str | None]
    """The expression of each member, by client id; None without a subscription."""


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """A queue that a member does not consume."""

    client_id: str
    queue: MessageQueue
    text: str


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """What the members of a group reported, by client id, and why others did not."""

    connections: list[Connection]
    members: Mapping[str, RunningConsumer]
    failures: Mapping[str, BolideError] = field(default_factory=dict)

    def differences(self) -> list[SubscriptionDifference]:
        """The topics to which push consumers subscribe differently.

        RocketMQ's tools report none in the first two minutes of a group.
        """
        pushing = {name: each for name, each in sorted(self.members.items()) if _pushes(each)}
        expressions = {
            name: {each.topic: _expression(each) for each in member.subscription_set}
            for name, member in pushing.items()
        }
        topics = sorted({topic for found in expressions.values() for topic in found})
        by_topic = (
            SubscriptionDifference(topic, {n: found.get(topic) for n, found in expressions.items()})
            for topic in topics
        )
        return [each for each in by_topic if len({*each.expressions.values()}) > 1]

    def problems(self, now: float | None = None) -> list[QueueProblem]:
        """The queues that a member cannot lock, or whose messages it does not consume."""
        now = time.time() if now is None else now
        return [
            QueueProblem(name, queue, text)
            for name, member in sorted(self.members.items())
            if _pushes(member)
            for queue, text in _problems_of(member, now)
        ]


class ConsumerStatuses:
    """Questions to the members of groups, which their brokers pass on."""

    def __init__(self, servers: Servers) -> None:
        self._clients = Clients(servers)

    async def of(
        self,
        group: str,
        address: str | None = None,
        *,
        stacks: bool = False,
        on_answer: Callable[[], None] = lambda: None,
        on_failure: OnFailure | None = None,
    ) -> GroupStatus:
        """Ask all members of a group.

        Args:
            group: the consumer group.
            address: only the members that are connected to this broker.
            stacks: also ask for the stacks of all threads.
            on_answer: called whenever a member has answered, or failed to.
            on_failure: gets the errors of brokers that cannot be reached, if others can.

        Raises:
            GroupOffline: the group has no members.
        """
        found = await self._clients.consumers(group, address, on_failure=on_failure)
        connections = found.connection_set

        async def ask(client_id: str) -> RunningConsumer | BolideError:
            try:
                return await self._clients.running(group, client_id, stacks=stacks)
            except BolideError as exc:
                return exc
            finally:
                on_answer()

        answers = await gather_by_key([each.client_id or "" for each in connections], ask)
        return GroupStatus(
            connections,
            {n: each for n, each in answers.items() if isinstance(each, RunningConsumer)},
            {n: each for n, each in answers.items() if isinstance(each, BolideError)},
        )


def _pushes(member: RunningConsumer) -> bool:
    return member.properties.get("PROP_CONSUME_TYPE") == ConsumeType.CONSUME_PASSIVELY


def _expression(subscription: Subscription) -> str:
    return f"{subscription.expression_type} {subscription.sub_string}"


def _problems_of(member: RunningConsumer, now: float) -> Iterator[tuple[MessageQueue, str]]:
    ordered = member.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    for queue, held in sorted(member.mq_table.items()):
        text = _lock_problem(held, now) if ordered else _stall(held, now)
        if text is not None:
            yield queue, text


def _lock_problem(held: HeldQueue, now: float) -> str | None:
    if not held.locked:
        return f"can't lock for a while, {_ms_since(held.last_lock_timestamp, now)}ms"
    if held.droped and held.try_unlock_times > 0:
        return f"unlock {held.try_unlock_times} times, still failed"
    return None


def _stall(held: HeldQueue, now: float) -> str | None:
    idle = _ms_since(held.last_consume_timestamp, now)
    if idle > STALLED * 1000 and held.cached_msg_count > 0:
        return f"can't consume for a while, maybe blocked, {idle}ms"
    return None


def _ms_since(timestamp: int, now: float) -> int:
    return int(now * 1000) - timestamp
