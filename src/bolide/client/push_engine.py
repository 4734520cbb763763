"""The inside of a running push consumer: its parts, put together, started and stopped."""

import asyncio
import logging
import time
from collections.abc import Sequence

from bolide.client.concurrent import ConcurrentConsumption
from bolide.client.consume import Handler
from bolide.client.consume_counters import SAMPLE_EVERY, ConsumptionCounters
from bolide.client.consumer_settings import PushSettings
from bolide.client.consumption import Consumption, Hooks
from bolide.client.direct import consume_directly
from bolide.client.feeding import Feeder, FeedOptions, FeedPoint, start_feeding
from bolide.client.held_queue import HeldQueue
from bolide.client.holdings import Holdings, Tenancy, wake_all
from bolide.client.instance import ClientInstance
from bolide.client.keepers import Keepers
from bolide.client.lock_keeper import EVERY as LOCK_EVERY
from bolide.client.lock_keeper import LockKeeper
from bolide.client.membership import Membership
from bolide.client.namespace import RETRY_PREFIX
from bolide.client.offsets import LocalOffsets, OffsetStore, RemoteOffsets
from bolide.client.ordered import OrderedConsumption, OrderedJob
from bolide.client.pulling import Puller
from bolide.client.queue_locks import QueueLocks
from bolide.client.rebalance import Rebalancer
from bolide.client.running_info import running_consumer
from bolide.client.send_back import SendBack
from bolide.client.start_position import From
from bolide.client.subscription import Filter
from bolide.client.workers import Job, Workers
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import DirectConsumption, RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumeType

log = logging.getLogger(__name__)


class PushEngine:
    """Everything between an instance and the user's handlers. Topics carry their namespace."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PushSettings,
        handlers: dict[str, Handler],
    ) -> None:
        self.settings = settings
        self.instance = instance
        self.is_paused = False
        self.started = time.time()
        self.member = PushMember(self, instance, group)
        self.handlers = handlers
        self.workers = Workers(settings.concurrency, f"consume-{group}")
        self.counters = ConsumptionCounters(time.time)
        self.send_back = SendBack(instance, group, settings.sent_back_times)
        self.offsets = _offset_store(instance, group, settings)
        self.puller = Puller(instance, group, settings.filter_hooks)
        locks = None if settings.is_broadcasting else QueueLocks(instance, group)
        self.holdings = Holdings(self.offsets, self._tenancy(), locks)
        self.lock_keeper = LockKeeper(locks, self.offsets, self.holdings) if locks else None
        common = self._consumption(group)
        self.concurrent = ConcurrentConsumption(common)
        self.ordered = OrderedConsumption(
            common,
            locks=self.lock_keeper,
            max_reconsume_times=settings.max_reconsume_times,
            suspend=settings.ordered_suspend,
        )
        self.feeder = Feeder(
            self.member, self.puller, self._feed_options(), self._feed_point(), self.counters
        )
        self.rebalancer = Rebalancer(
            self.member, settings.allocate, self.holdings, settings.on_assignment
        )
        self._keepers = Keepers()

    def start(self) -> None:
        settings, keepers = self.settings, self._keepers
        keepers.run(self.rebalancer.run())
        keepers.every(settings.commit_interval, self.holdings.commit)
        keepers.every(min(60.0, settings.consume_timeout / 4), self._expire)
        keepers.every(SAMPLE_EVERY, self.counters.sample)
        if self.lock_keeper is not None:
            keepers.every(LOCK_EVERY, self.lock_keeper.renew)

    async def close(self) -> None:
        """Wait for handlers at work, commit, unlock; what still runs then is cancelled."""
        await self._keepers.close()
        await self.holdings.close(self.settings.close_timeout)
        await self.concurrent.close()
        await self.workers.close()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        wake_all(self.holdings)

    def is_ordered(self, topic: str) -> bool:
        """Retries are never: they come after what they once stood before."""
        handler = self.handlers.get(self.instance.settings.unwrap(topic))
        return handler is not None and handler.is_ordered and not topic.startswith(RETRY_PREFIX)

    def is_retry(self, held: HeldQueue) -> bool:
        return held.queue.topic.startswith(RETRY_PREFIX)

    def progress(self) -> dict[MessageQueue, int]:
        return self.holdings.progress()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            held = self.holdings.find(queue)
            if held is not None and topic == queue.topic:
                log.info("%s: %s is reset to %d", self.member.group, queue, offset)
                self.holdings.restart(held, offset)

    def shown(self) -> RunningConsumer:
        settings = self.settings
        properties = {
            "consumeFromWhere": settings.start.begin.announced.value,
            "consumeThreadMin": self.workers.limit,
            "consumeThreadMax": self.workers.limit,
            "consumeTimeout": int(settings.consume_timeout // 60),
            "pullBatchSize": settings.pull_batch_size,
            "pullInterval": int(settings.pull_interval * 1000),
            "pullThresholdForQueue": settings.flow_limits.count,
            "maxReconsumeTimes": -1
            if settings.max_reconsume_times is None
            else settings.max_reconsume_times,
            "pause": self.is_paused,
            "PROP_THREADPOOL_CORE_SIZE": self.workers.limit,
            "PROP_CONSUMEORDERLY": any(h.is_ordered for h in self.handlers.values()),
        }
        return running_consumer(
            self.member, self.holdings, self.counters, properties, started=self.started
        )

    def _begin(self, held: HeldQueue, before: HeldQueue | None) -> None:
        topic = held.queue.topic
        if self.is_ordered(topic):
            work = self.ordered.run(held, self.instance.settings.unwrap(topic), before)
            held.consuming = asyncio.create_task(work, name=f"bolide-ordered-{held.queue}")
        start_feeding(self.feeder, held)

    def _deliver(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        if held.consuming is None:
            self.concurrent.take(held, messages)

    def _is_blocked(self, held: HeldQueue) -> bool:
        if self.is_paused:
            return True
        if held.consuming is not None and self.lock_keeper is not None and not held.is_locked:
            return True
        limits = self.settings.flow_limits
        if limits.is_shared:
            limits = limits.shared(len(self.holdings.of_topic(held.queue.topic)))
        reason = limits.reached(held.process, in_order=held.consuming is not None)
        if reason:
            log.debug("%s waits with pulling %s: %s", self.member.group, held.queue, reason)
        return reason is not None

    def _withdraw(self, held: HeldQueue) -> None:
        def unwanted(job: Job) -> bool:
            return job in held.jobs

        for job in self.workers.withdraw(unwanted):
            held.end(job)
            if isinstance(job, OrderedJob):
                job.settle(None)

    def _expire(self) -> None:
        oldest = asyncio.get_running_loop().time() - self.settings.consume_timeout
        self.concurrent.expire(self.holdings, oldest)

    def _consumption(self, group: str) -> Consumption:
        send_back = None if self.settings.is_broadcasting else self.send_back
        hooks = Hooks(self.settings.consume_hooks)
        return Consumption(group, self.handlers, self.workers, send_back, self.counters, hooks)

    def _tenancy(self) -> Tenancy:
        return Tenancy(
            locate=self.locate,
            begin=self._begin,
            withdraw=self._withdraw,
            is_ordered=self.is_ordered,
        )

    def _feed_options(self) -> FeedOptions:
        settings = self.settings
        return FeedOptions(
            batch=settings.pull_batch_size,
            batch_bytes=settings.pull_batch_bytes,
            suspend=settings.suspend,
            within=settings.suspend + 15.0,
            interval=settings.pull_interval,
            carries_offsets=isinstance(self.offsets, RemoteOffsets),
            with_subscription=settings.post_subscription_when_pull,
        )

    def _feed_point(self) -> FeedPoint:
        return FeedPoint(
            filter_of=self._filter_of,
            is_blocked=self._is_blocked,
            deliver=self._deliver,
            moved=self.holdings.restart,
        )

    def _filter_of(self, held: HeldQueue) -> Filter | None:
        return self.member.filters.get(held.queue.topic)


class PushMember(Membership):
    """A push consumer answers more: it can be reset, and given a message to try."""

    def __init__(self, engine: PushEngine, instance: ClientInstance, group: str) -> None:
        super().__init__(
            instance,
            group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            model=engine.settings.model,
            begin=engine.settings.start.begin,
            progress=engine.progress,
            show=engine.shown,
        )
        self._engine = engine

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        await self._engine.reset_offsets(topic, offsets)

    async def consume_directly(self, message: StoredMessage) -> DirectConsumption:
        return await consume_directly(self._engine.handlers.get(message.topic), message)


def _offset_store(instance: ClientInstance, group: str, settings: PushSettings) -> OffsetStore:
    if settings.offset_store is not None:
        return settings.offset_store
    if settings.is_broadcasting:
        return LocalOffsets(settings.offset_directory, instance.client_id, group)
    return RemoteOffsets(instance, group)
