"""Group members of push and pull consumers: status, offset resets, direct consumption."""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from bolide.client.consumer.counters import TopicCounters
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.group.held_queues import HeldQueues
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.start_position import StartPosition
from bolide.client.consumer.handlers.handler import Handler, RunsOn
from bolide.client.consumer.handlers.workers import Workers
from bolide.client.consumer.pop.engine import PopEngine
from bolide.client.consumer.settings import ConsumerSettings, PushSettings
from bolide.client.instance.instance import ClientInstance
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import ConsumeVerdict, DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumeType
from bolide.protocol.refusals import ServerError
from bolide.version import ROCKETMQ_VERSION_NAME

log = logging.getLogger(__name__)


def running_consumer(
    member: Membership,
    helds: Iterable[HeldQueue],
    counters: TopicCounters,
    properties: Mapping[str, object],
    *,
    started: float,
) -> RunningConsumer:
    """The status of a consumer; RocketMQ's tools require all properties named PROP_*.

    `started` is in seconds since 1970.
    """
    servers = "".join(f"{address};" for address in member.instance.name_servers.addresses)
    shown = {
        "consumerGroup": member.group,
        "messageModel": member.model.value,
        "instanceName": member.instance.settings.instance_name,
        "clientIP": member.instance.settings.client_ip,
        "PROP_NAMESERVER_ADDR": servers,
        "PROP_CONSUME_TYPE": member.consume_type.value,
        "PROP_CLIENT_VERSION": ROCKETMQ_VERSION_NAME,
        "PROP_CONSUMER_START_TIMESTAMP": int(started * 1000),
        "PROP_CONSUMEORDERLY": False,
        "PROP_THREADPOOL_CORE_SIZE": 0,
        **properties,
    }
    return RunningConsumer(
        properties={name: _text(value) for name, value in shown.items()},
        subscription_set=[wanted.subscription() for wanted in member.filters.values()],
        mq_table={held.queue: held.status() for held in helds},
        status_table={topic: counters[topic].status() for topic in member.filters},
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def consume_directly(handler: Handler | None, message: StoredMessage) -> DirectConsumption:
    """Call the handler and return its verdict; nothing is committed or sent back.

    Raises:
        ServerError: the consumer has no handler for the topic.
    """
    if handler is None:
        raise ServerError(f"there is no handler for topic {message.topic} here")
    began = time.monotonic()
    verdict, remark = await _verdict(handler, message)
    return DirectConsumption(
        order=handler.is_ordered,
        consume_result=verdict,
        remark=remark,
        spent_time_mills=int((time.monotonic() - began) * 1000),
    )


async def _verdict(handler: Handler, message: StoredMessage) -> tuple[ConsumeVerdict, str | None]:
    try:
        if handler.runs_on is RunsOn.THREAD:
            returned = await asyncio.to_thread(handler.call, [message])
        else:
            returned = handler.call([message])
            if inspect.isawaitable(returned):
                returned = await returned
    except Exception as exc:  # noqa: BLE001  the boundary to the user's code
        return ConsumeVerdict.CR_THROW_EXCEPTION, f"{type(exc).__name__}: {exc}"
    outcome = handler.outcome(returned, 1)
    return (ConsumeVerdict.CR_SUCCESS if outcome.done else ConsumeVerdict.CR_LATER), None


class Engine(Protocol):
    """The parts of `PushEngine` that a member uses."""

    is_paused: bool
    held_queues: HeldQueues
    workers: Workers
    pops: PopEngine | None

    @property
    def handlers(self) -> dict[str, Handler]: ...


class PushMember(Membership):
    """Member of a push consumer: its offsets can be reset and its handlers called directly."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PushSettings,
        start: StartPosition,
        engine: Engine,
        counters: TopicCounters,
    ) -> None:
        super().__init__(
            instance,
            group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            model=settings.message_model,
            consume_from=start.consume_from,
        )
        self._settings = settings
        self._engine = engine
        self._counters = counters
        self._started = time.time()

    def progress(self) -> dict[MessageQueue, int]:
        return self._engine.held_queues.progress()

    def running(self) -> RunningConsumer:
        settings, limit = self._settings, self._engine.workers.limit
        times = settings.max_reconsume_times
        properties = {
            "consumeThreadMin": limit,
            "consumeThreadMax": limit,
            "consumeTimeout": int(settings.consume_timeout // 60),
            "pullBatchSize": settings.pull_batch_size,
            "pullInterval": int(settings.pull_interval * 1000),
            "pullThresholdForQueue": settings.flow_limits.count,
            "clientRebalance": not settings.is_balanced_by_broker,
            "popInvisibleTime": int(settings.pop_invisible * 1000),
            "popBatchNums": settings.pop_batch_size,
            "popThresholdForQueue": settings.pop_threshold,
            "maxReconsumeTimes": -1 if times is None else times,
            "pause": self._engine.is_paused,
            "PROP_THREADPOOL_CORE_SIZE": limit,
            "PROP_CONSUMEORDERLY": any(h.is_ordered for h in self._engine.handlers.values()),
        }
        running = running_consumer(
            self, self._engine.held_queues, self._counters, properties, started=self._started
        )
        if self._engine.pops is not None:
            popped = self._engine.pops.held_queues
            running.mq_pop_table = {held.queue: held.pop_status() for held in popped}
        return running

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        held_queues = self._engine.held_queues
        for queue, queue_offset in offsets.items():
            held = held_queues.find(queue)
            if held is not None and topic == queue.topic:
                log.info("%s: %s is reset to %d", self.group, queue, queue_offset)
                held_queues.restart(held, queue_offset)

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption:
        return await consume_directly(self._engine.handlers.get(message.topic), message)


class PullMember(Membership):
    """Member of a consumer without handlers.

    Args:
        progress: returns the consumed offset of each queue.
        helds: returns the held queues.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: ConsumerSettings,
        *,
        progress: Callable[[], Mapping[MessageQueue, int]],
        helds: Callable[[], Iterable[HeldQueue]] = tuple,
    ) -> None:
        super().__init__(
            instance,
            group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            model=settings.message_model,
            consume_from=settings.start(time.time()).consume_from,
        )
        self.counters = TopicCounters(time.time)
        self._progress = progress
        self._helds = helds
        self._started = time.time()

    def progress(self) -> dict[MessageQueue, int]:
        return dict(self._progress())

    def running(self) -> RunningConsumer:
        return running_consumer(self, self._helds(), self.counters, {}, started=self._started)
