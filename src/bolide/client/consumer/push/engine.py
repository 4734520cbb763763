"""The components of a running push consumer, and their start and stop."""

import asyncio
import logging
import time
from collections.abc import Sequence

from msgspec import structs

from bolide.client.consumer.consumer import PeriodicTasks
from bolide.client.consumer.counters import SAMPLE_INTERVAL, TopicCounters
from bolide.client.consumer.group.broker_rebalance import BrokerRebalancer
from bolide.client.consumer.group.held_queue import FlowLimits, HeldQueue
from bolide.client.consumer.group.held_queues import HeldQueues, QueueCallbacks, wake_all
from bolide.client.consumer.group.offsets import RemoteOffsets, offset_store
from bolide.client.consumer.group.queue_locks import RENEW_INTERVAL, LockRenewer, QueueLocks
from bolide.client.consumer.group.rebalance import AssignmentListener, Rebalancer
from bolide.client.consumer.group.start_position import StartOffsetResolver
from bolide.client.consumer.handlers.concurrent import ConcurrentDelivery
from bolide.client.consumer.handlers.handler import Handler
from bolide.client.consumer.handlers.invocation import ConsumerRuntime, Hooks
from bolide.client.consumer.handlers.keyed import OrderedDelivery
from bolide.client.consumer.handlers.ordered import OrderedCall
from bolide.client.consumer.handlers.workers import HandlerCall, Workers
from bolide.client.consumer.member import PushMember
from bolide.client.consumer.pop.engine import PopEngine
from bolide.client.consumer.pop.popped_queues import MixedQueues
from bolide.client.consumer.pull.pull_loop import (
    PullCallbacks,
    PullLoop,
    PullOptions,
)
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
"""Seconds that a reply may take beyond the time for which the broker may suspend a pull."""


class PushEngine:
    """Connects a client instance with the handlers. Topic names include the namespace."""

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
        self._periodic = PeriodicTasks()
        start = settings.start(time.time())
        self.workers = Workers(settings.concurrency, f"consume-{group}")
        self._counters = TopicCounters(time.time)
        self._offsets = offset_store(instance, group, settings)
        self._start_offsets = StartOffsetResolver(instance, self._offsets, start)
        locks = None if settings.is_broadcasting else QueueLocks(instance, group)
        self.held_queues = HeldQueues(self._offsets, self._queue_callbacks(), locks)
        self._lock_renewer = LockRenewer(locks, self._offsets, self.held_queues) if locks else None
        self.member = PushMember(instance, group, settings, start, self, self._counters)
        self._concurrent, self._ordered = self._deliveries()
        self.pops = self._pop_engine() if settings.is_balanced_by_broker else None
        self.rebalancer = self._rebalancer(listener)
        self._pull_loop = self._make_pull_loop()

    def start(self) -> None:
        periodic, settings = self._periodic, self.settings
        periodic.run(self.rebalancer.run())
        periodic.every(settings.commit_interval, self.held_queues.try_commit)
        periodic.every(min(60.0, settings.consume_timeout / 4), self._expire)
        periodic.every(SAMPLE_INTERVAL, self._counters.sample)
        if self._lock_renewer is not None:
            periodic.every(RENEW_INTERVAL, self._lock_renewer.renew)
        if self.pops is not None:
            self.pops.start(periodic)

    async def close(self) -> None:
        """Wait for handler calls in flight, commit and unlock; then cancel calls still running."""
        await self._periodic.close()
        if self.pops is not None:
            await self.pops.close(self.settings.close_timeout)
        await self.held_queues.close(self.settings.close_timeout)
        await self._concurrent.close()
        await self.workers.close()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        wake_all(self.held_queues)
        if self.pops is not None:
            self.pops.wake()

    @property
    def handlers(self) -> dict[str, Handler]:
        """By topic name without namespace."""
        return self._handlers

    def is_ordered(self, topic: str) -> bool:
        """Retry topics are never ordered: a retry arrives after messages that it preceded."""
        handler = self._handlers.get(self._instance.settings.unwrap(topic))
        return handler is not None and handler.is_ordered and not topic.startswith(RETRY_PREFIX)

    def _start_queue(self, held: HeldQueue, before: HeldQueue | None) -> None:
        topic = held.queue.topic
        if self.is_ordered(topic):
            work = self._ordered.run(held, self._instance.settings.unwrap(topic), before)
            held.consuming = asyncio.create_task(work, name=f"bolide-ordered-{held.queue}")
        self._pull_loop.start(held)

    def _deliver(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        if held.consuming is None:
            is_retry = held.queue.topic.startswith(RETRY_PREFIX)
            self._concurrent.deliver(
                held, self._with_original_topics(messages) if is_retry else messages
            )
        else:
            held.on_arrival(messages)

    def _with_original_topics(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Restore the topics of POP retries, which do not carry it when they are pulled."""
        if not any(each.topic.startswith(RETRY_PREFIX) for each in messages):
            return messages
        group = self._instance.settings.unwrap(self._group)
        return [structs.replace(m, topic=normal_topic(m.topic, group)) for m in messages]

    def _is_blocked(self, held: HeldQueue) -> bool:
        in_order = held.consuming is not None
        if in_order and self._lock_renewer is not None and not held.is_locked:
            held.wake()  # the delivery loop regains the lock
            return True
        if self.is_paused:
            return True
        reason = self._limits(held).reached(held.process, in_order=in_order and not held.is_keyed)
        if reason:
            log.debug("%s: flow control stops the pulls of %s: %s", self._group, held.queue, reason)
        return reason is not None

    def _limits(self, held: HeldQueue) -> FlowLimits:
        limits = self.settings.flow_limits
        if limits.is_shared:
            limits = limits.shared(len(self.held_queues.of_topic(held.queue.topic)))
        return limits

    def _withdraw(self, held: HeldQueue) -> None:
        def unwanted(call: HandlerCall) -> bool:
            return call in held.in_flight

        for call in self.workers.withdraw(unwanted):
            held.end(call)
            if isinstance(call, OrderedCall):
                call.complete(None)
        self._concurrent.withdraw(held)

    def _expire(self) -> None:
        oldest = asyncio.get_running_loop().time() - self.settings.consume_timeout
        self._concurrent.expire(self.held_queues, oldest)
        if self.pops is not None:
            self.pops.expire(oldest)

    def _filter_of(self, held: HeldQueue) -> Filter | None:
        return self.member.filters.get(held.queue.topic)

    def _rebalancer(self, listener: AssignmentListener | None) -> Rebalancer:
        strategy = self.settings.allocate
        if self.pops is None:
            return Rebalancer(self.member, strategy, self.held_queues, listener)
        target = MixedQueues(self.held_queues, self.pops.held_queues)
        return BrokerRebalancer(self.member, strategy, target, listener, self.is_ordered)

    def _pop_engine(self) -> PopEngine:
        runtime = self._concurrent.runtime
        return PopEngine(self.member, self.settings, runtime, lambda: self.is_paused)

    def _queue_callbacks(self) -> QueueCallbacks:
        return QueueCallbacks(
            start_offset=self._start_offsets.resolve,
            start=self._start_queue,
            withdraw=self._withdraw,
            is_ordered=self.is_ordered,
        )

    def _deliveries(self) -> tuple[ConcurrentDelivery, OrderedDelivery]:
        settings = self.settings
        send_back = SendBack(self._instance, self._group, settings.sent_back_times)
        runtime = ConsumerRuntime(
            self._group,
            self._handlers,
            self.workers,
            None if settings.is_broadcasting else send_back,
            self._counters,
            Hooks(settings.consume_hooks),
        )
        ordered = OrderedDelivery(self._instance, runtime, self._lock_renewer, settings)
        return ConcurrentDelivery(runtime), ordered

    def _make_pull_loop(self) -> PullLoop:
        settings = self.settings
        options = PullOptions(
            batch=settings.pull_batch_size,
            batch_bytes=settings.pull_batch_bytes,
            suspend=settings.suspend,
            within=settings.suspend + _CALL_GRACE,
            interval=settings.pull_interval,
            carries_offsets=isinstance(self._offsets, RemoteOffsets),
            with_subscription=settings.post_subscription_when_pull,
        )
        callbacks = PullCallbacks(
            filter_of=self._filter_of,
            is_blocked=self._is_blocked,
            room=lambda held: self._limits(held).room(held.process),
            deliver=self._deliver,
            on_offset_moved=self.held_queues.restart,
        )
        puller = Puller(self._instance, self._group, settings.filter_hooks)
        return PullLoop(self.member, puller, options, callbacks, self._counters)
