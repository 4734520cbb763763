"""The pull loop of a held queue: pull, deliver, and pull again unless flow control stops it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bolide.client.consumer.counters import TopicCounters
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.pull.pull_request import Pull, Puller, PullResult, PullStatus
from bolide.client.consumer.subscription import Filter
from bolide.client.errors import BrokerUnknown
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.protocol.refusals import (
    FilterNotFound,
    FilterOutdated,
    FlowControl,
    SubscriptionNotFound,
    SubscriptionOutdated,
)
from bolide.remoting.errors import RemotingError

log = logging.getLogger(__name__)

AFTER_FAILURE = 1.0
AFTER_FLOW_CONTROL = 0.02
_AFTER_LOST_BROKER = 0.1
"""Seconds after the first failure to reach a broker: another may take its place soon."""
_IMMEDIATE = 0.01
"""Seconds below which a reply without progress counts towards the back-off."""
_MAX_BACK_OFF = 1.0
_SMALL_BATCH = 32
"""Messages to request when a full batch would exceed the flow limits."""

# A heartbeat announces the subscription; a restarted broker has lost it.
_SUBSCRIPTION_UNKNOWN = (SubscriptionNotFound, SubscriptionOutdated, FilterNotFound, FilterOutdated)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """Options of the pulls of one consumer; durations in seconds."""

    batch: int = 32
    batch_bytes: int | None = 256 * 1024
    suspend: float = 15.0
    within: float = 30.0
    interval: float = 0.0
    """Pause between two pulls of one queue."""
    carries_offsets: bool = False
    with_subscription: bool = False
    is_lite: bool = False
    after_failure: float = AFTER_FAILURE


@dataclass(frozen=True, slots=True, kw_only=True)
class PullCallbacks:
    """How a pull loop interacts with its consumer."""

    filter_of: Callable[[HeldQueue], Filter | None]
    is_blocked: Callable[[HeldQueue], bool]
    """Whether pulling must wait: paused, flow limit reached, or not locked.

    Evaluated again after `HeldQueue.wake`.
    """
    deliver: Callable[[HeldQueue, Sequence[StoredMessage]], None]
    on_offset_moved: Callable[[HeldQueue, int], None]
    """The broker rejected the offset and returned the nearest valid one."""
    room: Callable[[HeldQueue], float] = lambda _held: math.inf
    """How many more messages may be buffered."""


class PullLoop:
    """Pulls the held queues of one consumer, each in a task of its own."""

    def __init__(
        self,
        member: Membership,
        puller: Puller,
        options: PullOptions,
        callbacks: PullCallbacks,
        counters: TopicCounters,
    ) -> None:
        self._member = member
        self._puller = puller
        self._options = options
        self._callbacks = callbacks
        self._counters = counters
        self._throttled = ThrottledLog(log)

    def start(self, held: HeldQueue) -> None:
        """Start the task that pulls a queue until it is cancelled."""
        held.pulling = asyncio.create_task(self._run(held), name=f"bolide-pull-{held.queue}")

    async def _run(self, held: HeldQueue) -> None:
        stalls = losses = 0
        while not held.is_dropped:
            try:
                pause = await self._pull_once(held)
                losses = 0
            except (RemotingError, BrokerUnknown) as exc:
                pause = min(self._failed(held, exc), _AFTER_LOST_BROKER * 2**losses)
                losses = min(losses + 1, 10)
            except BolideError as exc:
                pause = self._failed(held, exc)
            except Exception:
                log.exception("a pull of %s failed; it is repeated", held.queue)
                pause = self._options.after_failure
            # Back off from immediate replies without progress, to avoid a busy loop.
            stalls = stalls + 1 if pause is None else 0
            if pause := min(_MAX_BACK_OFF, _IMMEDIATE * (stalls - 2)) if stalls > 2 else pause:
                await held.sleep(pause)

    async def _pull_once(self, held: HeldQueue) -> float | None:
        """Pull once; return the seconds until the next pull, or None if there was no progress."""
        while self._callbacks.is_blocked(held):
            await held.wait_for_change()
        wanted = self._callbacks.filter_of(held)
        if wanted is None:
            return self._options.after_failure
        queue_offset, began = held.process.next_offset, time.monotonic()
        held.last_pull = time.time()
        result = await self._puller.pull(self._request(held, wanted, queue_offset))
        seconds = time.monotonic() - began
        self._throttled.forget(_topic_and_broker(held))
        self._accept(held, result, seconds)
        if result.next_offset == queue_offset and seconds < _IMMEDIATE:
            return None
        return self._options.interval if result.messages else 0.0

    def _request(self, held: HeldQueue, wanted: Filter, queue_offset: int) -> Pull:
        options = self._options
        return Pull(
            queue=held.queue,
            filter=wanted,
            queue_offset=queue_offset,
            max_count=self._count(held),
            max_bytes=options.batch_bytes,
            suspend=options.suspend,
            within=options.within,
            commit_offset=held.process.unfinished if options.carries_offsets else 0,
            with_subscription=options.with_subscription,
            is_lite=options.is_lite,
        )

    def _count(self, held: HeldQueue) -> int:
        """One of two sizes only: Bolide brokers keep a prepared plan for each kind of pull."""
        batch = self._options.batch
        return batch if self._callbacks.room(held) >= batch else min(batch, _SMALL_BATCH)

    def _accept(self, held: HeldQueue, result: PullResult, seconds: float) -> None:
        if held.is_dropped:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self._log_offset_moved(held, result)
            self._callbacks.on_offset_moved(held, result.next_offset)
            return
        if result.status is PullStatus.FOUND:
            self._counters[held.queue.topic].pulled(len(result.messages), seconds)
        if fresh := held.accept(result.messages, result.next_offset):
            self._callbacks.deliver(held, fresh)

    def _log_offset_moved(self, held: HeldQueue, result: PullResult) -> None:
        group, queue, offset = self._member.group, held.queue, result.next_offset
        if result.is_reset:
            log.info("%s: %s was reset to offset %d at the broker", group, queue, offset)
        else:
            missing = held.process.next_offset
            log.warning("%s: %s has no offset %d; continuing at %d", group, queue, missing, offset)

    def _failed(self, held: HeldQueue, exc: BolideError) -> float:
        if isinstance(exc, FlowControl):
            return AFTER_FLOW_CONTROL
        if isinstance(exc, _SUBSCRIPTION_UNKNOWN):
            self._member.instance.heartbeat_soon()
        # One log line for all queues of a broker, which fail together.
        self._throttled.warning(
            _topic_and_broker(held), "%s: pulling %s fails: %s", self._member.group, held.queue, exc
        )
        return self._options.after_failure


def _topic_and_broker(held: HeldQueue) -> tuple[str, str]:
    return held.queue.topic, held.queue.broker_name
