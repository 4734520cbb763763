"""Durability: report when an appended message may be acknowledged.

Three positions in the log decide, as far as the settings ask for them: what is on the disk
(SYNC_FLUSH), what the whole sync-state set has (controller mode), and what enough slaves have
(SYNC_MASTER). With none of them a message is acknowledged after the append: it is in the log's
memory mapping and survives a crash of the process.

A message is *durable* when the first two cover it: only then consumers may read it, and the broker
acts on it. The reply to a producer waits for the first and the third; in controller mode the third
is the second, unless the group asks for less. Waiters queue by log position and are completed when
a position advances, so that a send needs neither a task nor a thread of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bolide.config import ConfigCell
from bolide.events import Listeners
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import Refusal, ServerError, ServiceNotAvailable
from bolide.remoting.dispatch import DeferredReply, Reply
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import ReplicasNotEnough, StoreUnwritable
from bolide.store.flusher import Flushed

_SWEEP_INTERVAL = 0.1
"""Seconds between two checks for timeouts."""

_MAX_GROUP_DELAY = 0.002
"""Seconds for which a flush may be delayed to let its group grow."""

_UNLIMITED = 2**63 - 1

OnDurable = Callable[[int | StoreUnwritable], None]
"""Callback with the response code of a stored message, or the reason why it was rolled back."""


class ReplicaWaits(Protocol):
    """What a master asks of its replicas before it acknowledges a message."""

    @property
    def confirms(self) -> bool:
        """Whether messages become durable only when the whole sync-state set has them."""
        ...

    @property
    def waits(self) -> bool:
        """Whether replies to producers wait for slaves."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds that a message waits for replicas."""
        ...

    def is_available(self, end: int) -> bool:
        """Whether a slave is close enough to be waited for, for a message that ends there."""
        ...


class NoReplicas:
    """A master whose sends wait for no replica."""

    confirms = False
    waits = False
    timeout = 0.0

    def is_available(self, end: int) -> bool:
        return True


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

    def __init__(
        self,
        store: Store,
        config: ConfigCell[StoreConfig],
        replicas: ReplicaWaits | None = None,
    ) -> None:
        self._flushes = config.value.flush_mode is FlushMode.SYNC
        self._replicas = replicas or NoReplicas()
        self.waits = self._flushes or self._replicas.confirms
        """Whether messages become durable, and readable, later than they are appended."""
        self.answers_wait = self._flushes or self._replicas.waits
        """Whether replies to producers wait for the disk or for replicas."""
        self.on_progress: Listeners[int] = Listeners()
        """Emitted with the position up to which the log has become readable."""
        self.on_rolled_back: Listeners[int, int] = Listeners()
        """Emitted when the store has rolled back messages: those behind the given position and
        older than the given generation."""
        self.on_flushed: Listeners[[]] = Listeners()
        """Emitted after a flush, with SYNC_FLUSH."""
        self._store = store
        self._config = config
        self._flushed_end = self._confirmed_end = self._replicated_end = _UNLIMITED
        self._durable: deque[DurabilityWaiter] = deque()
        """Waiters for a message to be durable."""
        self._answers: deque[DurabilityWaiter] = deque()
        """Replies to producers."""
        self._group_begun = 0.0
        """Time of the first append of the group whose flush has not begun."""
        self._newest_end = self._last_seen_end = 0
        self._is_stopped = False
        self._sweeper: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Subscribe to the flusher. Must be called on the event loop."""
        self._loop = asyncio.get_running_loop()
        if self._flushes:
            self._flushed_end = self._store.flushed
            self._store.on_flushed(self._flushed_on_thread)
        if self._replicas.confirms:
            self._confirmed_end = 0
        if self._replicas.waits:
            self._replicated_end = -1

    def stop(self) -> None:
        """Unsubscribe and refuse the remaining replies: their messages have an unknown outcome."""
        if self._flushes:
            self._store.off_flushed(self._flushed_on_thread)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._is_stopped = True
        waiting, self._durable = self._durable, deque()
        for each in waiting:
            each.complete(self._timeout_code(each))
        left, self._answers = self._answers, deque()
        for each in left:
            each.complete(StoreUnwritable("this broker stops or is no longer the master"))

    # ---- waiting

    def when_durable(self, appended: Appended, on_durable: OnDurable) -> None:
        """Call `on_durable` once: at once, when the message is durable, or after a timeout."""
        if self.is_durable(appended):
            on_durable(ResponseCode.SUCCESS)
        else:
            self._add(self._durable, self._waiter(appended, on_durable))

    def when_answerable(self, appended: Appended, on_durable: OnDurable) -> None:
        """As `when_durable`, for the reply to a producer, which slaves may have to have too."""
        if self.answers_wait:
            self.add_waiter(self._waiter(appended, on_durable))
        else:
            on_durable(ResponseCode.SUCCESS)

    def _waiter(self, appended: Appended, on_durable: OnDurable) -> DurabilityWaiter:
        return _CallbackWaiter(appended.end, appended.generation, self.now(), on_durable)

    def now(self) -> float:
        return self._loop.time()

    def add_waiter(self, waiting: DurabilityWaiter) -> None:
        """Complete the waiter of a reply once: when it may be sent, or after a timeout."""
        if waiting.end <= min(self._flushed_end, self._replicated_end):
            waiting.complete(ResponseCode.SUCCESS)  # the repeat of an older message
        elif not self._replicas.waits or self._replicas.is_available(waiting.end):
            self._add(self._answers, waiting)
        elif waiting.end <= self._durable_end:
            waiting.complete(ResponseCode.SLAVE_NOT_AVAILABLE)
        else:
            self._add(self._durable, _without_slave(waiting))

    def _add(self, waiters: deque[DurabilityWaiter], waiting: DurabilityWaiter) -> None:
        if self._is_stopped:
            return
        waiters.append(waiting)
        self._newest_end = waiting.end
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_INTERVAL, self._sweep)

    def is_growing(self) -> bool:
        """Whether waiters were added since the last call, so that delaying the flush may pay off.

        Producers acknowledged by one flush send again at about the same time. If the first of these
        sends were flushed alone, all others would wait for two flushes. The flush therefore begins
        after an iteration of the event loop that adds no waiter, or after `_MAX_GROUP_DELAY`.
        """
        if (self._durable or self._answers) and self._newest_end != self._last_seen_end:
            self._last_seen_end, now = self._newest_end, self._loop.time()
            self._group_begun = self._group_begun or now
            if now - self._group_begun < _MAX_GROUP_DELAY:
                return True
        self._group_begun = 0.0
        return False

    def is_durable(self, appended: Appended) -> bool:
        """Whether a message, unless rolled back, is as durable as the settings require."""
        return not self.waits or appended.end <= self._durable_end

    async def wait_durable(self, appended: Appended) -> int:
        """Wait until a message is durable.

        Returns:
            SUCCESS, or FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT after a timeout.

        Raises:
            StoreUnwritable: the message was rolled back.
        """
        if not self.waits:
            return ResponseCode.SUCCESS
        return await self._outcome(self.when_durable, appended)

    async def wait_answerable(self, appended: Appended) -> int:
        """As `wait_durable`, for the reply to a producer; also SLAVE_NOT_AVAILABLE."""
        if not self.answers_wait:
            return ResponseCode.SUCCESS
        return await self._outcome(self.when_answerable, appended)

    async def _outcome(
        self, when: Callable[[Appended, OnDurable], None], appended: Appended
    ) -> int:
        done: asyncio.Future[int] = self._loop.create_future()

        def complete(outcome: int | StoreUnwritable) -> None:
            if done.done():
                return
            if isinstance(outcome, StoreUnwritable):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

        when(appended, complete)
        return await done

    # ---- progress

    @property
    def _durable_end(self) -> int:
        return min(self._flushed_end, self._confirmed_end)

    def confirmed(self, position: int) -> None:
        """The whole sync-state set has the log up to a position."""
        self._confirmed_end = position
        self._advance()

    def replicated(self, position: int) -> None:
        """Enough slaves have the log up to a position; -1 if there are too few."""
        self._replicated_end = position
        self._complete(self._answers, min(self._flushed_end, position))

    def _flushed_on_thread(self, flushed: Flushed) -> None:
        # The store flushes once more on close, when the loop may be closed already.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._flushed, flushed)

    def _flushed(self, flushed: Flushed) -> None:
        self._flushed_end = flushed.position
        if flushed.failure is not None:
            self.on_rolled_back(flushed.position, flushed.generation)
            self._durable = _refuse(self._durable, flushed, flushed.failure)
            self._answers = _refuse(self._answers, flushed, flushed.failure)
        self.on_flushed()
        self._advance()

    def _advance(self) -> None:
        position = self._durable_end
        self._complete(self._durable, position)
        self._complete(self._answers, min(self._flushed_end, self._replicated_end))
        self.on_progress(position)

    def _complete(self, waiters: deque[DurabilityWaiter], position: int) -> None:
        while waiters and waiters[0].end <= position:
            waiters.popleft().complete(ResponseCode.SUCCESS)

    def _sweep(self) -> None:
        """Complete waiters past their timeout: their messages are stored but not durable."""
        now = self._loop.time()
        for waiters in (self._durable, self._answers):
            while waiters and now - waiters[0].since >= self._timeout(waiters[0]):
                late = waiters.popleft()
                late.complete(self._timeout_code(late))
        waits = self._durable or self._answers
        self._sweeper = self._loop.call_later(_SWEEP_INTERVAL, self._sweep) if waits else None

    def _lacks_replicas(self, waiting: DurabilityWaiter) -> bool:
        return waiting.end > min(self._confirmed_end, self._replicated_end)

    def _timeout(self, waiting: DurabilityWaiter) -> float:
        if self._lacks_replicas(waiting):
            return self._replicas.timeout
        return self._config.value.sync_flush_timeout

    def _timeout_code(self, waiting: DurabilityWaiter) -> int:
        if self._lacks_replicas(waiting):
            return ResponseCode.FLUSH_SLAVE_TIMEOUT
        return ResponseCode.FLUSH_DISK_TIMEOUT


def _refuse(
    waiters: deque[DurabilityWaiter], flushed: Flushed, failure: StoreUnwritable
) -> deque[DurabilityWaiter]:
    """Fail waiters of rolled-back messages; returns the others."""
    kept: deque[DurabilityWaiter] = deque()
    for each in waiters:
        if each.end > flushed.position and each.generation < flushed.generation:
            each.complete(failure)
        else:
            kept.append(each)
    return kept


def _without_slave(waiting: DurabilityWaiter) -> DurabilityWaiter:
    """The same waiter, completed with SLAVE_NOT_AVAILABLE once its message is on the disk."""

    def complete(outcome: int | StoreUnwritable) -> None:
        is_stored = outcome == ResponseCode.SUCCESS
        waiting.complete(ResponseCode.SLAVE_NOT_AVAILABLE if is_stored else outcome)

    return _CallbackWaiter(waiting.end, waiting.generation, waiting.since, complete)


def unavailable(reason: Exception) -> Refusal:
    """The refusal of a message that the store rejected or rolled back."""
    if isinstance(reason, ReplicasNotEnough):
        return ServerError(str(reason))
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
            self._failure = ServerError(f"{name}: the disk or a replica takes long; say it again")
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
