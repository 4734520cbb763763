"""What a push consumer answers when its client instance or a broker asks."""

import logging
import time
from typing import Protocol

from bolide.client.consuming.consume import Handler
from bolide.client.consuming.consume_counters import ConsumptionCounters
from bolide.client.consuming.consumer_settings import PushSettings
from bolide.client.consuming.direct import consume_directly
from bolide.client.consuming.holdings import Holdings
from bolide.client.consuming.membership import Membership
from bolide.client.consuming.pop_engine import PopEngine
from bolide.client.consuming.running_info import running_consumer
from bolide.client.consuming.start_position import StartPosition
from bolide.client.consuming.workers import Workers
from bolide.client.instance import ClientInstance
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumeType

log = logging.getLogger(__name__)


class Engine(Protocol):
    """The parts of a push consumer that are shown."""

    is_paused: bool
    holdings: Holdings
    workers: Workers
    pops: PopEngine | None

    @property
    def handlers(self) -> dict[str, Handler]: ...


class PushMember(Membership):
    """A member that can be reset, and be given a message to try."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PushSettings,
        start: StartPosition,
        engine: Engine,
        counters: ConsumptionCounters,
    ) -> None:
        super().__init__(
            instance,
            group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            model=settings.message_model,
            begin=start.begin,
        )
        self._settings = settings
        self._engine = engine
        self._counters = counters
        self._started = time.time()

    def progress(self) -> dict[MessageQueue, int]:
        return self._engine.holdings.progress()

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
            "clientRebalance": not settings.asks_brokers,
            "popInvisibleTime": int(settings.pop_invisible * 1000),
            "popBatchNums": settings.pop_batch_size,
            "popThresholdForQueue": settings.pop_threshold,
            "maxReconsumeTimes": -1 if times is None else times,
            "pause": self._engine.is_paused,
            "PROP_THREADPOOL_CORE_SIZE": limit,
            "PROP_CONSUMEORDERLY": any(h.is_ordered for h in self._engine.handlers.values()),
        }
        running = running_consumer(
            self, self._engine.holdings, self._counters, properties, started=self._started
        )
        if self._engine.pops is not None:
            popped = self._engine.pops.holdings
            running.mq_pop_table = {held.queue: held.shown_pop() for held in popped}
        return running

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        holdings = self._engine.holdings
        for queue, offset in offsets.items():
            held = holdings.find(queue)
            if held is not None and topic == queue.topic:
                log.info("%s: %s is reset to %d", self.group, queue, offset)
                holdings.restart(held, offset)

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption:
        return await consume_directly(self._engine.handlers.get(message.topic), message)
