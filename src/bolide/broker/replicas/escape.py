"""Sends messages to other broker groups of the cluster (`EscapeBridge`).

The log of a slave is a prefix of its master's, so an acting master appends nothing to it. A message
that is due goes to a queue of another group that has its topic. It keeps its properties, except
those that would delay it again.
"""

import logging
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from bolide.broker.settings.config import BrokerConfig
from bolide.broker.static_topics.peers import Peers
from bolide.broker.timers.timetable import TIMER_PROPERTIES, due_of
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.message import TransactionType, with_transaction_type
from bolide.model.names import TIMER_TOPIC, WRITE, is_retry_topic
from bolide.model.properties import INT_DIGITS, PropertyName, parse_number
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import RecordDraft
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

_MASTER = 0
_TIMEOUT = 3.0
_ROUTE_AGE = 3.0
"""Seconds for which a route is used again."""
_UNLIMITED = 2**31 - 1
_STORED = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
"""Answers to sends that were stored all the same."""
_SET_BY_BROKER = (PropertyName.REGION, PropertyName.TRACE_ON, PropertyName.CLUSTER)
_MEANS_LATER = (PropertyName.DELAY_LEVEL, PropertyName.TRANSACTION_PREPARED)
"""What would make another broker delay a message, or take it for a half message."""
_SET_BY_TIMER = (
    *TIMER_PROPERTIES,
    PropertyName.TIMER_OUT_MS,
    PropertyName.TIMER_ENQUEUE_MS,
    PropertyName.TIMER_DEQUEUE_MS,
    PropertyName.TIMER_ROLL_TIMES,
    PropertyName.SERIES_TURN,
    PropertyName.REAL_TOPIC,
    PropertyName.REAL_QUEUE_ID,
)


class NoOtherGroup(BolideError):
    """No other broker group can take a message now."""


class Target(NamedTuple):
    """The queues of a topic in another broker group."""

    address: str
    queues: int


class Escape:
    """Delivers messages through other broker groups; belongs to one event loop."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        peers: Peers,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cell = cell
        self._peers = peers
        self._now = now
        self._client: RemotingClient | None = None
        self._targets: dict[str, tuple[float, list[Target]]] = {}
        self._turns = count()
        self._failing: set[str] = set()
        """Topics whose failure is logged already."""
        self.sent = 0
        """Messages that other groups have taken since the start."""

    def use(self, client: RemotingClient) -> None:
        self._client = client

    def start(self) -> None:
        """Forget what was true when this broker acted before."""
        self._targets.clear()
        self._failing.clear()
        self.sent = 0

    async def send(self, draft: RecordDraft, *, beside: str | None = None) -> None:
        """Have another group store a message.

        One that is addressed to the timer topic becomes a timer of that group.

        Args:
            beside: for a message of a retry topic of POP, the topic that the group must have too:
                consumers find the one by the other.

        Raises:
            NoOtherGroup: no other group has the topic, or none takes the message.
        """
        if draft.topic == TIMER_TOPIC.encode():
            message = _rescheduled(draft, self._cell.value.timer_precision_ms)
        else:
            message = _without(draft, _MEANS_LATER)
        topic = message.topic.decode()
        try:
            await self._send_to_one(topic, message, beside)
        except BolideError as exc:
            self._report(topic, exc)
            raise NoOtherGroup(str(exc)) from exc
        self.sent += 1
        self._failing.discard(topic)

    def _report(self, topic: str, exc: BolideError) -> None:
        if topic not in self._failing:
            self._failing.add(topic)
            log.warning("due messages of topic %s wait: %s", topic, exc)

    async def _send_to_one(self, topic: str, message: RecordDraft, beside: str | None) -> None:
        assert self._client is not None
        failure: BolideError | None = None
        for target in self._in_turn(await self._find_targets(topic, beside)):
            header = _header(message, target, self._cell.value)
            try:
                await self._client.call(
                    target.address,
                    RequestCode.SEND_MESSAGE_V2,
                    header.to_short(),
                    body=bytes(message.body),
                    within=_TIMEOUT,
                    accept=_STORED,
                )
            except BolideError as exc:
                failure = exc
                self._targets.pop(topic, None)
            else:
                return
        raise failure or NoOtherGroup("no other broker group of the cluster has the topic")

    def _in_turn(self, targets: list[Target]) -> Iterator[Target]:
        first = next(self._turns)
        for step in range(len(targets)):
            yield targets[(first + step) % len(targets)]

    async def _find_targets(self, topic: str, beside: str | None) -> list[Target]:
        age, targets = self._targets.get(topic, (0.0, []))
        if targets and self._now() - age < _ROUTE_AGE:
            return targets
        if beside is None:
            targets = await self._targets_with(topic)
        else:
            targets = [each._replace(queues=1) for each in await self._targets_with(beside)]
        self._targets[topic] = self._now(), targets
        return targets

    async def _targets_with(self, topic: str) -> list[Target]:
        config = self._cell.value
        try:
            route = await self._peers.route(topic)
        except BolideError:
            if not is_retry_topic(topic):
                raise
            route = TopicRoute()
        targets = targets_of(route, config.broker_cluster_name, config.broker_name)
        if not targets and is_retry_topic(topic):
            # Any broker makes the retry topic of a group, and its consumers find it there.
            masters = await self._peers.masters(config.broker_cluster_name)
            targets = [
                Target(address, 1)
                for name, address in masters.items()
                if name != config.broker_name
            ]
        return targets


def targets_of(route: TopicRoute, cluster: str, own: str) -> list[Target]:
    """The groups of a cluster, except this broker's own, whose master takes messages of a topic."""
    masters = {
        each.broker_name: each.broker_addrs[_MASTER]
        for each in route.broker_datas
        if each.cluster == cluster and each.broker_name != own and _MASTER in each.broker_addrs
    }
    return [
        Target(masters[each.broker_name], each.write_queue_nums)
        for each in route.queue_datas
        if each.broker_name in masters and each.perm & WRITE and each.write_queue_nums > 0
    ]


def _header(message: RecordDraft, target: Target, config: BrokerConfig) -> SendHeader:
    return SendHeader(
        producer_group=f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
        topic=message.topic.decode(),
        queue_id=message.queue_id % target.queues,
        sys_flag=with_transaction_type(message.sys_flag, TransactionType.NONE),
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=bytes(message.properties).decode(),
        reconsume_times=message.reconsume_times,
        max_reconsume_times=_UNLIMITED,  # it was decided before that this retry takes place
    )


def _rescheduled(draft: RecordDraft, precision_ms: int) -> RecordDraft:
    """A message of the timer topic, as its producer would send it to its real topic.

    A recurring one gets its next occurrence from the broker that takes it.
    """
    properties = decode_properties(bytes(draft.properties).decode(errors="replace"))
    topic = properties.get(PropertyName.REAL_TOPIC, "")
    queue_id = parse_number(properties.get(PropertyName.REAL_QUEUE_ID), INT_DIGITS) or 0
    moved = _without(draft, _SET_BY_TIMER)._replace(topic=topic.encode(), queue_id=queue_id)
    due = due_of(properties, precision_ms)
    if PropertyName.CRON in properties or due is None:
        return moved
    return _with(moved, {PropertyName.TIMER_DELIVER_MS: str(due)})


def _without(draft: RecordDraft, names: tuple[str, ...]) -> RecordDraft:
    properties = decode_properties(bytes(draft.properties).decode(errors="replace"))
    dropped = (*names, *_SET_BY_BROKER)
    kept = {name: text for name, text in properties.items() if name not in dropped}
    return draft._replace(properties=encode_properties(kept).encode())


def _with(draft: RecordDraft, added: dict[str, str]) -> RecordDraft:
    properties = decode_properties(bytes(draft.properties).decode(errors="replace"))
    return draft._replace(properties=encode_properties(properties | added).encode())
