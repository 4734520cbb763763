"""When a message may be acknowledged: at once, or once the disk has it.

With ASYNC_FLUSH an appended message lies in the log's mapping and survives the process, so there
is nothing to wait for. With SYNC_FLUSH whoever waits is kept by position and told when the
flusher's group is on the disk: no task and no thread for each send.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bolide.broker.listeners import Listeners
from bolide.config import ConfigCell
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import ServerError, ServiceNotAvailable
from bolide.remoting.dispatch import DeferredReply, Reply
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed

_SWEEP = 0.1

_GROWING = 0.002
"""Seconds that a group may grow before its flush begins."""

OnDurable = Callable[[int | StoreUnwritable], None]
"""Called with the response code of a message that is kept, or with why it is not."""


class DurabilityWaiter(Protocol):
    """What waits for all that lies before a position of the log."""

    @property
    def end(self) -> int: ...

    @property
    def generation(self) -> int: ...

    @property
    def since(self) -> float:
        """When it began to wait, by `Durability.now`."""
        ...

    def complete(self, outcome: int | StoreUnwritable, /) -> None: ...


class _CallbackWaiter(NamedTuple):
    end: int
    generation: int
    since: float
    complete: OnDurable


class Durability:
    """Tells senders when their messages are safe; belongs to one event loop."""

    def __init__(self, store: Store, config: ConfigCell[StoreConfig]) -> None:
        self.waits = config.value.flush_mode is FlushMode.SYNC
        """Whether an append is not safe at once."""
        self.on_progress: Listeners[int] = Listeners()
        """The log has become readable up to a position."""
        self.on_taken_back: Listeners[int, int] = Listeners()
        """Messages behind a position, older than a generation, were taken back by the store."""
        self._store = store
        self._config = config
        self._durable_end = 0
        self._waiting: deque[DurabilityWaiter] = deque()
        self._begun = 0.0
        """When the first was appended that no flush was begun for."""
        self._seen = 0
        self._failures = 0
        self._sweeper: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to listen to the flusher; call it on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._durable_end = self._store.flushed
        if self.waits:
            self._store.on_flushed(self._flushed_on_thread)

    def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def when_durable(self, appended: Appended, complete: OnDurable) -> None:
        """Have `tell` called once: now, when the disk has it, or when that takes too long."""
        if self.is_durable(appended):
            complete(ResponseCode.SUCCESS)
        else:
            self.add_waiter(
                _CallbackWaiter(appended.end, appended.generation, self.now(), complete)
            )

    def now(self) -> float:
        return self._loop.time()

    def add_waiter(self, waiting: DurabilityWaiter) -> None:
        """Have `tell` of what waits called once: when the disk has it, or that takes too long."""
        self._waiting.append(waiting)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP, self._sweep)

    def is_growing(self) -> bool:
        """Whether more senders have come to wait since it was asked last: more may be on their way.

        Those who were answered together send again together. Were the first of them flushed alone,
        all others would wait for two flushes; so a flush begins when a turn of the loop brings no
        one more, or when the first has waited for long enough.
        """
        if self._waiting and self._waiting[-1].end != self._seen:
            self._seen, now = self._waiting[-1].end, self._loop.time()
            self._begun = self._begun or now
            if now - self._begun < _GROWING:
                return True
        self._begun = 0.0
        return False

    def is_durable(self, appended: Appended) -> bool:
        """Whether a message that was not taken back is where it should be."""
        return not self.waits or appended.end <= self._durable_end

    async def wait_durable(self, appended: Appended) -> int:
        """Wait until a message is safe; returns the response code that says how it is.

        Raises:
            StoreUnwritable: it was taken back.
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
        # The loop may be closed already when the store flushes for the last time.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._flushed, flushed)

    def _flushed(self, flushed: Flushed) -> None:
        self._durable_end = flushed.position
        if flushed.failure is not None:
            self._failures += 1
            self.on_taken_back(flushed.position, self._failures)
            self._refuse(flushed.position, flushed.failure)
        waiting = self._waiting
        while waiting and waiting[0].end <= flushed.position:
            waiting.popleft().complete(ResponseCode.SUCCESS)
        self.on_progress(flushed.position)

    def _refuse(self, position: int, failure: StoreUnwritable) -> None:
        """Those behind the position were taken back; what was appended since then was not."""
        kept: deque[DurabilityWaiter] = deque()
        for each in self._waiting:
            if each.end > position and each.generation < self._failures:
                each.complete(failure)
            else:
                kept.append(each)
        self._waiting = kept

    def _sweep(self) -> None:
        """Answer those who have waited too long: their messages are kept, but not yet safe."""
        oldest = self._loop.time() - self._config.value.sync_flush_timeout
        while self._waiting and self._waiting[0].since <= oldest:
            self._waiting.popleft().complete(ResponseCode.FLUSH_DISK_TIMEOUT)
        again = self._loop.call_later(_SWEEP, self._sweep) if self._waiting else None
        self._sweeper = again


def unavailable(reason: Exception) -> ServiceNotAvailable:
    """The refusal of a message that the store did not take or took back."""
    return ServiceNotAvailable(f"service not available now: {reason}")


class ReplyWhenDurable:
    """Gives an answer when so many have been told of.

    Args:
        even_late: it is the same when the disk takes long, and a crash might undo it.
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


def complete_deferred(later: DeferredReply) -> Callable[[Reply | Exception], None]:
    def give(outcome: Reply | Exception) -> None:
        if isinstance(outcome, Exception):
            later.fail(outcome)
        else:
            later.answer(outcome)

    return give


def complete_future(done: asyncio.Future[Reply]) -> Callable[[Reply | Exception], None]:
    def give(outcome: Reply | Exception) -> None:
        if done.done():
            return
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)

    return give
