"""Keep a held queue fed: pull, hand over, pull again, as fast as its consumer can take it."""

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

log = logging.getLogger(__name__)

AFTER_FAILURE = 1.0
AFTER_FLOW_CONTROL = 0.02
_QUICK = 0.01
_LONGEST_STALL = 1.0
_SMALL_BATCH = 32
"""Messages to ask for where a large batch would go beyond what may be held."""

# A heartbeat tells a broker of the subscription; one that restarted has forgotten it.
_UNHEARD = (SubscriptionNotFound, SubscriptionOutdated, FilterNotFound, FilterOutdated)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """How a consumer pulls; durations in seconds."""

    batch: int = 32
    batch_bytes: int | None = 256 * 1024
    suspend: float = 15.0
    within: float = 30.0
    interval: float = 0.0
    """Between two pulls of one queue."""
    carries_offsets: bool = False
    with_subscription: bool = False
    is_lite: bool = False
    after_failure: float = AFTER_FAILURE


@dataclass(frozen=True, slots=True, kw_only=True)
class PullCallbacks:
    """What the consumer says to a feeder."""

    filter_of: Callable[[HeldQueue], Filter | None]
    is_blocked: Callable[[HeldQueue], bool]
    """Whether to wait: paused, too much held, not locked. `HeldQueue.wake` has it asked again."""
    deliver: Callable[[HeldQueue, Sequence[StoredMessage]], None]
    moved: Callable[[HeldQueue, int], None]
    """The broker refused the offset and told the nearest one there is."""
    room: Callable[[HeldQueue], float] = lambda _held: math.inf
    """How many messages more may be held."""


class PullLoop:
    """Runs one loop for each held queue until it is cancelled."""

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

    async def run(self, held: HeldQueue) -> None:
        stalls = 0
        while not held.is_dropped:
            try:
                pause = await self._feed(held)
            except BolideError as exc:
                pause = self._failed(held, exc)
            except Exception:
                log.exception("a pull of %s failed; it is tried again", held.queue)
                pause = self._options.after_failure
            # Answers at once without progress, again and again, must not become a busy loop.
            stalls = stalls + 1 if pause is None else 0
            if pause := min(_LONGEST_STALL, _QUICK * (stalls - 2)) if stalls > 2 else pause:
                await held.sleep(pause)

    async def _feed(self, held: HeldQueue) -> float | None:
        """Pull once; how long to wait before the next pull, None if nothing at all came of it."""
        while self._callbacks.is_blocked(held):
            await held.wait_for_change()
        wanted = self._callbacks.filter_of(held)
        if wanted is None:
            return self._options.after_failure
        offset, begun = held.process.next_offset, time.monotonic()
        held.last_pull = time.time()
        result = await self._puller.pull(self._pull(held, wanted, offset))
        seconds = time.monotonic() - begun
        self._throttled.forget(_place(held))
        self._accept(held, result, seconds)
        if result.next_offset == offset and seconds < _QUICK:
            return None
        return self._options.interval if result.messages else 0.0

    def _pull(self, held: HeldQueue, wanted: Filter, offset: int) -> Pull:
        options = self._options
        return Pull(
            queue=held.queue,
            filter=wanted,
            offset=offset,
            max_count=self._count(held),
            max_bytes=options.batch_bytes,
            suspend=options.suspend,
            within=options.within,
            commit_offset=held.process.unfinished if options.carries_offsets else 0,
            with_subscription=options.with_subscription,
            is_lite=options.is_lite,
        )

    def _count(self, held: HeldQueue) -> int:
        """One of two numbers: brokers remember what the pulls of a consumer are like."""
        batch = self._options.batch
        return batch if self._callbacks.room(held) >= batch else min(batch, _SMALL_BATCH)

    def _accept(self, held: HeldQueue, result: PullResult, seconds: float) -> None:
        if held.is_dropped:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self._say_moved(held, result)
            self._callbacks.moved(held, result.next_offset)
            return
        if result.status is PullStatus.FOUND:
            self._counters[held.queue.topic].pulled(len(result.messages), seconds)
        if fresh := held.accept(result.messages, result.next_offset):
            self._callbacks.deliver(held, fresh)

    def _say_moved(self, held: HeldQueue, result: PullResult) -> None:
        group, queue, offset = self._member.group, held.queue, result.next_offset
        if result.is_reset:
            log.info("%s: somebody reset %s to offset %d", group, queue, offset)
        else:
            missing = held.process.next_offset
            log.warning("%s: %s has no offset %d; going on at %d", group, queue, missing, offset)

    def _failed(self, held: HeldQueue, exc: BolideError) -> float:
        if isinstance(exc, FlowControl):
            return AFTER_FLOW_CONTROL
        if isinstance(exc, _UNHEARD):
            self._member.instance.heartbeat_soon()
        # One line for all queues of a broker: they fail together.
        self._throttled.warning(
            _place(held), "%s: pulling %s fails: %s", self._member.group, held.queue, exc
        )
        return self._options.after_failure


def start_feeding(pull_loop: PullLoop, held: HeldQueue) -> None:
    held.pulling = asyncio.create_task(pull_loop.run(held), name=f"bolide-pull-{held.queue}")


def _place(held: HeldQueue) -> tuple[str, str]:
    return held.queue.topic, held.queue.broker_name
