"""Durability: report when an appended message may be acknowledged.

With ASYNC_FLUSH a message is acknowledged after the append: it is in the log's memory mapping and
survives a crash of the process. With SYNC_FLUSH it is acknowledged after the fsync of its group
(group commit). Waiters queue by log position and are completed when the flusher reports a position,
so that a send needs neither a task nor a thread of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bolide.config import ConfigCell
from bolide.events import Listeners
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import ServerError, ServiceNotAvailable
from bolide.remoting.dispatch import DeferredReply, Reply
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed

_SWEEP_INTERVAL = 0.1
"""Seconds between two checks for flush timeouts."""

_MAX_GROUP_DELAY = 0.002
"""Seconds for which a flush may be delayed to let its group grow."""

OnDurable = Callable[[int | StoreUnwritable], None]
"""Callback with the response code of a stored message, or the reason why it was rolled back."""


class DurabilityWaiter(Protocol):
    """Waits until the log is durable up to a position."""

    @property
    def end(self) -> int:
        """Log position behind the message."""
        ...

    @property
    def generation(self) -> int:
        """See `Appended.generation`."""
        ...

    @property
    def since(self) -> float:
        """Start of the wait, by `Durability.now`."""
        ...

    def complete(self, outcome: int | StoreUnwritable, /) -> None:
        """Called once, as `OnDurable`."""
        ...


class _CallbackWaiter(NamedTuple):
    end: int
    generation: int
    since: float
    complete: OnDurable


class Durability:
    """Completes waiters when their messages are durable; not thread-safe, one event loop."""

    def __init__(self, store: Store, config: ConfigCell[StoreConfig]) -> None:
        self.waits = config.value.flush_mode is FlushMode.SYNC
        """Whether messages become durable only after a flush (SYNC_FLUSH)."""
        self.on_progress: Listeners[int] = Listeners()
        """Emitted with the position up to which the log has become readable."""
        self.on_rolled_back: Listeners[int, int] = Listeners()
        """Emitted when the store has rolled back messages: those behind the given position and
        older than the given generation."""
        self._store = store
        self._config = config
        self._durable_end = 0
        self._waiting: deque[DurabilityWaiter] = deque()
        self._group_begun = 0.0
        """Time of the first append of the group whose flush has not begun."""
        self._last_seen_end = 0
        self._failures = 0
        self._sweeper: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Subscribe to the flusher. Must be called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._durable_end = self._store.flushed
        if self.waits:
            self._store.on_flushed(self._flushed_on_thread)

    def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def when_durable(self, appended: Appended, on_durable: OnDurable) -> None:
        """Call `on_durable` once: at once, after the flush, or when the flush times out."""
        if self.is_durable(appended):
            on_durable(ResponseCode.SUCCESS)
        else:
            self.add_waiter(
                _CallbackWaiter(appended.end, appended.generation, self.now(), on_durable)
            )

    def now(self) -> float:
        return self._loop.time()

    def add_waiter(self, waiting: DurabilityWaiter) -> None:
        """Complete a waiter once: after the flush, or when the flush times out."""
        self._waiting.append(waiting)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_INTERVAL, self._sweep)

    def is_growing(self) -> bool:
        """Whether waiters were added since the last call, so that delaying the flush may pay off.

        Producers acknowledged by one flush send again at about the same time. If the first of these
        sends were flushed alone, all others would wait for two flushes. The flush therefore begins
        after an iteration of the event loop that adds no waiter, or after `_MAX_GROUP_DELAY`.
        """
        if self._waiting and self._waiting[-1].end != self._last_seen_end:
            self._last_seen_end, now = self._waiting[-1].end, self._loop.time()
            self._group_begun = self._group_begun or now
            if now - self._group_begun < _MAX_GROUP_DELAY:
                return True
        self._group_begun = 0.0
        return False

    def is_durable(self, appended: Appended) -> bool:
        """Whether a message, unless rolled back, is as durable as the flush mode requires."""
        return not self.waits or appended.end <= self._durable_end

    async def wait_durable(self, appended: Appended) -> int:
        """Wait until a message is durable.

        Returns:
            SUCCESS, or FLUSH_DISK_TIMEOUT if the flush timed out.

        Raises:
            StoreUnwritable: the message was rolled back.
        """
        if not self.waits:
            return ResponseCode.SUCCESS
        done: asyncio.Future[int] = self._loop.create_future()

        def complete(outcome: int | StoreUnwritable) -> None:
            if done.done():
                return
            if isinstance(outcome, StoreUnwritable):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

        self.when_durable(appended, complete)
        return await done

    def _flushed_on_thread(self, flushed: Flushed) -> None:
        # The store flushes once more on close, when the loop may be closed already.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._flushed, flushed)

    def _flushed(self, flushed: Flushed) -> None:
        self._durable_end = flushed.position
        if flushed.failure is not None:
            self._failures += 1
            self.on_rolled_back(flushed.position, self._failures)
            self._refuse(flushed.position, flushed.failure)
        waiting = self._waiting
        while waiting and waiting[0].end <= flushed.position:
            waiting.popleft().complete(ResponseCode.SUCCESS)
        self.on_progress(flushed.position)

    def _refuse(self, position: int, failure: StoreUnwritable) -> None:
        """Fail waiters of rolled-back messages: behind the position, of an older generation."""
        kept: deque[DurabilityWaiter] = deque()
        for each in self._waiting:
            if each.end > position and each.generation < self._failures:
                each.complete(failure)
            else:
                kept.append(each)
        self._waiting = kept

    def _sweep(self) -> None:
        """Complete waiters past the flush timeout: their messages are stored but not durable."""
        oldest = self._loop.time() - self._config.value.sync_flush_timeout
        while self._waiting and self._waiting[0].since <= oldest:
            self._waiting.popleft().complete(ResponseCode.FLUSH_DISK_TIMEOUT)
        again = self._loop.call_later(_SWEEP_INTERVAL, self._sweep) if self._waiting else None
        self._sweeper = again


def unavailable(reason: Exception) -> ServiceNotAvailable:
    """The refusal of a message that the store rejected or rolled back."""
    return ServiceNotAvailable(f"service not available now: {reason}")


class ReplyWhenDurable:
    """Gives a reply once a number of appends are durable; `complete` is an `OnDurable`.

    Args:
        give: receives the reply, or the failure of an append.
        awaited: number of appends to wait for.
        then: called after `give`.
        even_late: a flush timeout does not change the reply, although a crash might undo the
            appends.
    """

    def __init__(
        self,
        give: Callable[[Reply | Exception], None],
        *,
        awaited: int = 1,
        reply: Reply | None = None,
        then: Callable[[], None] = lambda: None,
        even_late: bool = False,
    ) -> None:
        self._even_late = even_late
        self._give = give
        self._awaited = awaited
        self._reply = reply or Reply()
        self._then = then
        self._failure: Exception | None = None

    def wait_for(self, more: int) -> None:
        self._awaited += more

    def complete(self, outcome: int | StoreUnwritable) -> None:
        if isinstance(outcome, StoreUnwritable):
            self._failure = unavailable(outcome)
        elif outcome != ResponseCode.SUCCESS and not self._even_late:
            name = ResponseCode(outcome).name
            self._failure = ServerError(f"{name}: the disk takes long; say it again")
        self._awaited -= 1
        if not self._awaited:
            self._give(self._failure or self._reply)
            self._then()


def complete_deferred(deferred: DeferredReply) -> Callable[[Reply | Exception], None]:
    """Return a callback for `ReplyWhenDurable` that completes a deferred reply."""

    def give(outcome: Reply | Exception) -> None:
        if isinstance(outcome, Exception):
            deferred.fail(outcome)
        else:
            deferred.answer(outcome)

    return give


def complete_future(done: asyncio.Future[Reply]) -> Callable[[Reply | Exception], None]:
    """Return a callback for `ReplyWhenDurable` that completes a future, unless cancelled."""

    def give(outcome: Reply | Exception) -> None:
        if done.done():
            return
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)

    return give
