"""The inside of a running push consumer: its parts, put together, started and stopped."""

import asyncio
import logging
import time
from collections.abc import Sequence

from msgspec import structs

from bolide.client.consumer.consumer import PeriodicTasks
from bolide.client.consumer.counters import SAMPLE_EVERY, ConsumptionCounters
from bolide.client.consumer.group.broker_rebalance import BrokerRebalancer
from bolide.client.consumer.group.held_queue import FlowLimits, HeldQueue
from bolide.client.consumer.group.holdings import Holdings, Tenancy, wake_all
from bolide.client.consumer.group.offsets import RemoteOffsets, offset_store
from bolide.client.consumer.group.queue_locks import EVERY as LOCK_EVERY
from bolide.client.consumer.group.queue_locks import LockKeeper, QueueLocks
from bolide.client.consumer.group.rebalance import AssignmentListener, Rebalancer
from bolide.client.consumer.group.start_position import Locator
from bolide.client.consumer.handlers.concurrent import ConcurrentConsumption
from bolide.client.consumer.handlers.handler import Handler
from bolide.client.consumer.handlers.invocation import Consumption, Hooks
from bolide.client.consumer.handlers.keyed import OrderedHandling
from bolide.client.consumer.handlers.ordered import OrderedJob
from bolide.client.consumer.handlers.workers import Job, Workers
from bolide.client.consumer.member import PushMember
from bolide.client.consumer.pop.engine import PopEngine
from bolide.client.consumer.pop.popped_queues import ModalHoldings
from bolide.client.consumer.pull.feeder import Feeder, FeedOptions, FeedPoint, start_feeding
from bolide.client.consumer.pull.pull_request import Puller
from bolide.client.consumer.send_back import SendBack
from bolide.client.consumer.settings import PushSettings
from bolide.client.consumer.subscription import Filter
from bolide.client.instance.instance import ClientInstance
from bolide.model.message import StoredMessage
from bolide.model.names import RETRY_PREFIX
from bolide.protocol.pop_info import normal_topic

log = logging.getLogger(__name__)

_CALL_GRACE = 15.0
"""Seconds that an answer may take beyond the time for which the broker may hold a pull."""


class PushEngine:
    """Everything between a client instance and handlers. Names are those on the wire."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PushSettings,
        handlers: dict[str, Handler],
        listener: AssignmentListener | None = None,
    ) -> None:
        self.settings = settings
        self.is_paused = False
        self._instance = instance
        self._group = group
        self._handlers = handlers
        self._keepers = PeriodicTasks()
        start = settings.start(time.time())
        self.workers = Workers(settings.concurrency, f"consume-{group}")
        self._counters = ConsumptionCounters(time.time)
        self._offsets = offset_store(instance, group, settings)
        self._locator = Locator(instance, self._offsets, start)
        locks = None if settings.is_broadcasting else QueueLocks(instance, group)
        self.holdings = Holdings(self._offsets, self._tenancy(), locks)
        self._lock_keeper = LockKeeper(locks, self._offsets, self.holdings) if locks else None
        self.member = PushMember(instance, group, settings, start, self, self._counters)
        self._concurrent, self._ordered = self._consumptions()
        self.pops = self._pop_engine() if settings.asks_brokers else None
        self.rebalancer = self._rebalancer(listener)
        self._feeder = self._make_feeder()

    def start(self) -> None:
        keepers, settings = self._keepers, self.settings
        keepers.run(self.rebalancer.run())
        keepers.every(settings.commit_interval, self.holdings.commit_by_the_way)
        keepers.every(min(60.0, settings.consume_timeout / 4), self._expire)
        keepers.every(SAMPLE_EVERY, self._counters.sample)
        if self._lock_keeper is not None:
            keepers.every(LOCK_EVERY, self._lock_keeper.renew)
        if self.pops is not None:
            self.pops.start(keepers)

    async def close(self) -> None:
        """Wait for handlers at work, commit, unlock; what still runs then is cancelled."""
        await self._keepers.close()
        if self.pops is not None:
            await self.pops.close(self.settings.close_timeout)
        await self.holdings.close(self.settings.close_timeout)
        await self._concurrent.close()
        await self.workers.close()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        wake_all(self.holdings)
        if self.pops is not None:
            self.pops.wake()

    @property
    def handlers(self) -> dict[str, Handler]:
        """By topic, as users call it."""
        return self._handlers

    def is_ordered(self, topic: str) -> bool:
        """Retries are never: they come after what they once stood before."""
        handler = self._handlers.get(self._instance.settings.unwrap(topic))
        return handler is not None and handler.is_ordered and not topic.startswith(RETRY_PREFIX)

    def _begin(self, held: HeldQueue, before: HeldQueue | None) -> None:
        topic = held.queue.topic
        if self.is_ordered(topic):
            work = self._ordered.run(held, self._instance.settings.unwrap(topic), before)
            held.consuming = asyncio.create_task(work, name=f"bolide-ordered-{held.queue}")
        start_feeding(self._feeder, held)

    def _deliver(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        if held.consuming is None:
            is_retry = held.queue.topic.startswith(RETRY_PREFIX)
            self._concurrent.take(held, self._of_pops(messages) if is_retry else messages)
        else:
            held.arrived(messages)

    def _of_pops(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """The same; retries of pops, when pulled, do not say by themselves what they are of."""
        if not any(each.topic.startswith(RETRY_PREFIX) for each in messages):
            return messages
        group = self._instance.settings.unwrap(self._group)
        return [structs.replace(m, topic=normal_topic(m.topic, group)) for m in messages]

    def _is_blocked(self, held: HeldQueue) -> bool:
        in_order = held.consuming is not None
        if in_order and self._lock_keeper is not None and not held.is_locked:
            held.wake()  # for the loop that consumes: it gets the lock back
            return True
        if self.is_paused:
            return True
        reason = self._limits(held).reached(held.process, in_order=in_order and not held.is_keyed)
        if reason:
            log.debug("%s waits with pulling %s: %s", self._group, held.queue, reason)
        return reason is not None

    def _limits(self, held: HeldQueue) -> FlowLimits:
        limits = self.settings.flow_limits
        if limits.is_shared:
            limits = limits.shared(len(self.holdings.of_topic(held.queue.topic)))
        return limits

    def _withdraw(self, held: HeldQueue) -> None:
        def unwanted(job: Job) -> bool:
            return job in held.jobs

        for job in self.workers.withdraw(unwanted):
            held.end(job)
            if isinstance(job, OrderedJob):
                job.settle(None)
        self._concurrent.withdraw(held)

    def _expire(self) -> None:
        oldest = asyncio.get_running_loop().time() - self.settings.consume_timeout
        self._concurrent.expire(self.holdings, oldest)
        if self.pops is not None:
            self.pops.expire(oldest)

    def _filter_of(self, held: HeldQueue) -> Filter | None:
        return self.member.filters.get(held.queue.topic)

    def _rebalancer(self, listener: AssignmentListener | None) -> Rebalancer:
        strategy = self.settings.allocate
        if self.pops is None:
            return Rebalancer(self.member, strategy, self.holdings, listener)
        holder = ModalHoldings(self.holdings, self.pops.holdings)
        return BrokerRebalancer(self.member, strategy, holder, listener, self.is_ordered)

    def _pop_engine(self) -> PopEngine:
        common = self._concurrent.common
        return PopEngine(self.member, self.settings, common, lambda: self.is_paused)

    def _tenancy(self) -> Tenancy:
        return Tenancy(
            locate=self._locator.locate,
            begin=self._begin,
            withdraw=self._withdraw,
            is_ordered=self.is_ordered,
        )

    def _consumptions(self) -> tuple[ConcurrentConsumption, OrderedHandling]:
        settings = self.settings
        send_back = SendBack(self._instance, self._group, settings.sent_back_times)
        common = Consumption(
            self._group,
            self._handlers,
            self.workers,
            None if settings.is_broadcasting else send_back,
            self._counters,
            Hooks(settings.consume_hooks),
        )
        ordered = OrderedHandling(self._instance, common, self._lock_keeper, settings)
        return ConcurrentConsumption(common), ordered

    def _make_feeder(self) -> Feeder:
        settings = self.settings
        options = FeedOptions(
            batch=settings.pull_batch_size,
            batch_bytes=settings.pull_batch_bytes,
            suspend=settings.suspend,
            within=settings.suspend + _CALL_GRACE,
            interval=settings.pull_interval,
            carries_offsets=isinstance(self._offsets, RemoteOffsets),
            with_subscription=settings.post_subscription_when_pull,
        )
        point = FeedPoint(
            filter_of=self._filter_of,
            is_blocked=self._is_blocked,
            room=lambda held: self._limits(held).room(held.process),
            deliver=self._deliver,
            moved=self.holdings.restart,
        )
        puller = Puller(self._instance, self._group, settings.filter_hooks)
        return Feeder(self.member, puller, options, point, self._counters)
