"""Pulls that wait for messages, by queue; woken by what arrives, or by their deadline.

A waiter is a small record and not a task: many thousand may wait at once. Deadlines are kept in
buckets of a tenth of a second, which one timer walks through. Those who are due are asked for a
short while at a time, so that others get their turn in between.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypeVar

from bolide.broker.listeners import Listeners

log = logging.getLogger(__name__)

_TICK = 0.1

_TURN = 0.002
"""Seconds that waiters may keep the event loop busy before others are looked after."""

K = TypeVar("K")

QueueKey = tuple[str, int]
"""Topic and queue id."""


class PullWaiter(Protocol):
    """What waits: `CallbackWaiter`, or who does without its callable."""

    key: QueueKey
    tick: int

    def retry(self, is_last: bool, /) -> bool: ...


PullWaiters = dict[PullWaiter, None]
"""FIFO: waiters are retried in arrival order."""


class CallbackWaiter:
    """One pull that waits. `look` is asked again and says whether the pull was answered."""

    __slots__ = ("key", "retry", "tick")

    def __init__(self, key: QueueKey, retry: Callable[[bool], bool]) -> None:
        self.key = key
        self.retry = retry
        """Called with True when there is no more time: it must answer then."""
        self.tick = 0


class LongPolling:
    """Who waits for which queue; belongs to one event loop."""

    def __init__(self) -> None:
        self._by_queue: dict[QueueKey, PullWaiters] = {}
        self._by_tick: dict[int, PullWaiters] = {}
        self._done_ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due: OrderedDict[PullWaiter, bool] = OrderedDict()
        """Who is to be asked next, and whether for the last time."""
        self.on_arrival: Listeners[Collection[QueueKey]] = Listeners()
        """Messages arrived in these queues."""
        self._next_turn: asyncio.Handle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    @property
    def is_awaited(self) -> bool:
        """Somebody waits."""
        return bool(self._by_queue)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done_ticks = self._tick_of(self._loop.time())

    def stop(self) -> None:
        """Answer all who wait; from now on nobody does."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        for waiter in [waiter for held in self._by_queue.values() for waiter in held]:
            self._ask(waiter, is_last=True)

    def hold(self, waiter: PullWaiter, seconds: float) -> None:
        """Keep a waiter until something arrives or the time is up."""
        if self._stopped:
            self._ask(waiter, is_last=True)
            return
        # One tick more: the bucket of a moment is walked through when the moment has passed.
        waiter.tick = max(self._tick_of(self._loop.time() + seconds) + 1, self._done_ticks + 1)
        self._by_queue.setdefault(waiter.key, {})[waiter] = None
        self._by_tick.setdefault(waiter.tick, {})[waiter] = None
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK, self._sweep)

    def drop(self, waiter: PullWaiter) -> None:
        """Forget a waiter, if it is still there."""
        _discard(self._by_queue, waiter.key, waiter)
        _discard(self._by_tick, waiter.tick, waiter)
        self._due.pop(waiter, None)

    def arrived(self, keys: Collection[QueueKey]) -> None:
        """Have the waiters of these queues look again."""
        for key in keys:
            for waiter in self._by_queue.get(key, ()):
                self._due.setdefault(waiter, False)
        self.on_arrival(keys)
        if self._next_turn is None:
            self._ask_the_due()

    def arrived_in(self, topic: str, queue_ids: Iterable[int]) -> None:
        """As `arrived`, for some queues of a topic."""
        self.arrived([(topic, queue_id) for queue_id in queue_ids])

    def wake(self, waiter: PullWaiter) -> None:
        """Have one waiter look again, in the next turn of the loop, if it still waits then."""
        if waiter in self._by_queue.get(waiter.key, ()):
            self._due.setdefault(waiter, False)
            self._wait_for_next_turn()

    def _ask_the_due(self) -> None:
        end = time.monotonic() + _TURN
        while self._due:
            waiter, is_last = self._due.popitem(last=False)
            self._ask(waiter, is_last=is_last)
            if self._due and time.monotonic() > end:
                self._wait_for_next_turn()
                return

    def _wait_for_next_turn(self) -> None:
        if self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._take_next_turn)

    def _take_next_turn(self) -> None:
        self._next_turn = None
        self._ask_the_due()

    def _ask(self, waiter: PullWaiter, *, is_last: bool) -> None:
        try:
            answered = waiter.retry(is_last)
        except Exception:  # one broken pull must not keep the others asleep
            log.exception("a waiting pull of %s failed", waiter.key)
            answered = True
        if answered or is_last:
            self.drop(waiter)

    def _sweep(self) -> None:
        self._done_ticks = now = self._tick_of(self._loop.time())
        for tick in [tick for tick in self._by_tick if tick <= now]:
            self._due.update(dict.fromkeys(self._by_tick.pop(tick), True))
        if self._next_turn is None:
            self._ask_the_due()
        self._timer = self._loop.call_later(_TICK, self._sweep) if self._by_tick else None

    @staticmethod
    def _tick_of(seconds: float) -> int:
        return int(seconds / _TICK)


def _discard(table: dict[K, PullWaiters], key: K, waiter: PullWaiter) -> None:
    held = table.get(key)
    if held is None:
        return
    held.pop(waiter, None)
    if not held:
        del table[key]
