"""Long polling: pulls wait by queue until messages arrive or their deadline passes.

A waiter is a small object and not a task, so that many thousands can wait at once. Deadlines are
grouped into buckets of a tenth of a second, which a single timer sweeps. Due waiters are retried
for at most `_TURN` seconds per iteration of the event loop, so that other work is not delayed.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypeVar

from bolide.events import Listeners

log = logging.getLogger(__name__)

_TICK = 0.1
"""Width of a deadline bucket in seconds."""

_TURN = 0.002
"""Seconds for which retries may occupy the event loop before they yield."""

K = TypeVar("K")

QueueKey = tuple[str, int]
"""Topic and queue id."""


class PullWaiter(Protocol):
    """A waiting pull: `CallbackWaiter`, or an object that needs no callback."""

    key: QueueKey
    tick: int
    """Bucket of its deadline, set by `LongPolling.hold`."""

    def retry(self, is_last: bool, /) -> bool:
        """Try again to answer; returns whether the waiter is done.

        With `is_last` the deadline has passed and the waiter must answer.
        """
        ...


PullWaiters = dict[PullWaiter, None]
"""FIFO: waiters are retried in arrival order."""


class CallbackWaiter:
    """A waiting pull that is retried by a callback, see `PullWaiter.retry`."""

    __slots__ = ("key", "retry", "tick")

    def __init__(self, key: QueueKey, retry: Callable[[bool], bool]) -> None:
        self.key = key
        self.retry = retry
        self.tick = 0


class LongPolling:
    """Waiting pulls by queue and by deadline; not thread-safe, one event loop."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._by_tick.values()))

    def __init__(self) -> None:
        self._by_queue: dict[QueueKey, PullWaiters] = {}
        self._by_tick: dict[int, PullWaiters] = {}
        self._done_ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due: OrderedDict[PullWaiter, bool] = OrderedDict()
        """Waiters to retry next, in FIFO order, and whether their deadline has passed."""
        self._revoked: set[PullWaiter] = set()
        """Waiters of `revoke_all` that are not answered yet."""
        self.revocations = 0
        """How often `revoke_all` was called."""
        self.withholds = False
        """Whether the waiter that is being retried must get no message."""
        self.on_arrival: Listeners[Collection[QueueKey]] = Listeners()
        """Emitted with the queues in which messages have arrived."""
        self._next_turn: asyncio.Handle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    @property
    def is_awaited(self) -> bool:
        """Whether any pull is waiting."""
        return bool(self._by_queue)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done_ticks = self._tick_of(self._loop.time())

    def stop(self) -> None:
        """Answer all waiters; from now on `hold` answers at once."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        for waiter in [waiter for held in self._by_queue.values() for waiter in held]:
            self._retry(waiter, is_last=True)

    def hold(self, waiter: PullWaiter, seconds: float) -> None:
        """Hold a waiter until messages arrive in its queue or `seconds` have passed."""
        if self._stopped:
            self._retry(waiter, is_last=True)
            return
        # One tick more: a bucket is swept only after its whole interval has passed.
        waiter.tick = max(self._tick_of(self._loop.time() + seconds) + 1, self._done_ticks + 1)
        self._by_queue.setdefault(waiter.key, {})[waiter] = None
        self._by_tick.setdefault(waiter.tick, {})[waiter] = None
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK, self._sweep)

    def drop(self, waiter: PullWaiter) -> None:
        """Remove a waiter; no-op if it is not held."""
        _discard(self._by_queue, waiter.key, waiter)
        _discard(self._by_tick, waiter.tick, waiter)
        self._due.pop(waiter, None)
        self._revoked.discard(waiter)

    def arrived(self, keys: Collection[QueueKey]) -> None:
        """Retry the waiters of these queues."""
        for key in keys:
            for waiter in self._by_queue.get(key, ()):
                self._due.setdefault(waiter, False)
        self.on_arrival(keys)
        if self._next_turn is None:
            self._retry_due()

    def arrived_in(self, topic: str, queue_ids: Iterable[int]) -> None:
        """As `arrived`, for some queues of a topic."""
        self.arrived([(topic, queue_id) for queue_id in queue_ids])

    def release(self, keys: Iterable[QueueKey]) -> None:
        """Answer the waiters of these queues as if their deadline had passed."""
        for key in keys:
            self._due.update(dict.fromkeys(self._by_queue.get(key, ()), True))
        if self._next_turn is None:
            self._retry_due()

    def revoke_all(self) -> None:
        """Answer all waiters without messages: their clients ask again and are decided anew.

        Those who are answered in a later turn get no message that arrives in between.
        """
        self.revocations += 1
        for held in self._by_queue.values():
            self._revoked.update(held)
            self._due.update(dict.fromkeys(held, True))
        if self._next_turn is None:
            self._retry_due()

    def wake(self, waiter: PullWaiter) -> None:
        """Retry one waiter in the next iteration of the event loop, if it is still held then."""
        if waiter in self._by_queue.get(waiter.key, ()):
            self._due.setdefault(waiter, False)
            self._wait_for_next_turn()

    def _retry_due(self) -> None:
        end = time.monotonic() + _TURN
        while self._due:
            waiter, is_last = self._due.popitem(last=False)
            self._retry(waiter, is_last=is_last)
            if self._due and time.monotonic() > end:
                self._wait_for_next_turn()
                return

    def _wait_for_next_turn(self) -> None:
        if self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._run_next_turn)

    def _run_next_turn(self) -> None:
        self._next_turn = None
        self._retry_due()

    def _retry(self, waiter: PullWaiter, *, is_last: bool) -> None:
        self.withholds = waiter in self._revoked
        try:
            is_done = waiter.retry(is_last)
        except Exception:  # boundary: one failing pull must not block the others
            log.exception("a waiting pull of %s failed", waiter.key)
            is_done = True
        if is_done or is_last:
            self.drop(waiter)

    def _sweep(self) -> None:
        self._done_ticks = now = self._tick_of(self._loop.time())
        for tick in [tick for tick in self._by_tick if tick <= now]:
            self._due.update(dict.fromkeys(self._by_tick.pop(tick), True))
        if self._next_turn is None:
            self._retry_due()
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
