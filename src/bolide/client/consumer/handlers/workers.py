"""Workers that run handlers: tasks on the event loop, or threads of a pool.

A worker makes calls until none wait and then ends, so a burst of messages costs one task or one
thread hand-over rather than one per message. A single worker makes all calls that return without
waiting; when a call waits, more workers start, up to the concurrency limit.
"""

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from types import CoroutineType
from typing import Any, Protocol

from bolide.client.consumer.handlers.handler import Handler, Outcome, RunsOn
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)

_TIME_SLICE = 0.005
"""Seconds for which inline handlers may occupy the event loop before a worker yields."""

_MAX_THREADS = 4096
_THREAD_RETRY_DELAY = 1.0
"""Seconds before a thread is requested again after the system refused one."""


class HandlerCall(Protocol):
    """One call of a handler. `complete` runs on the loop, once, unless the call is withdrawn."""

    handler: Handler
    messages: Sequence[StoredMessage]
    started: float | None
    """When the call began, by the loop's clock."""

    def invoke(self) -> Any:
        """Call the handler where it belongs; the result is a value or an awaitable."""

    def complete(self, outcome: Outcome) -> None: ...


class CallSource(Protocol):
    """Calls of one handler for many messages; workers start them one after the other."""

    handler: Handler
    waiting: deque[StoredMessage]
    """Messages without a call so far; the creator of the source may take them back."""
    is_plain: bool
    """Whether each call takes one message and successful calls may be reported together."""

    def begin(self) -> HandlerCall | None:
        """Make the next call, in any thread; None if no message waits."""

    def done(self, messages: Sequence[StoredMessage], seconds: float) -> None:
        """Report successful calls, one per message, that took `seconds` in total."""

    def leave(self, call: HandlerCall) -> None:
        """End a call whose messages were all reported with `done`."""

    def complete_all(self, calls: Sequence[HandlerCall]) -> None:
        """Complete successful calls."""


class Workers:
    """Task and thread workers of one consumer.

    `limit` applies to tasks and to threads separately and may change at any time.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._tasks = TaskWorkers(limit)
        self._threads = ThreadWorkers(limit, name)

    @property
    def limit(self) -> int:
        return self._tasks.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"concurrency is {limit}, at least 1 is wanted")
        self._tasks.set_limit(limit)
        self._threads.set_limit(limit)

    def submit(self, call: HandlerCall) -> None:
        self.submit_source(SingleCall(call))

    def submit_source(self, source: CallSource) -> None:
        in_thread = source.handler.runs_on is RunsOn.THREAD
        self._threads.submit(source) if in_thread else self._tasks.submit(source)

    def withdraw(self, unwanted: Callable[[HandlerCall], bool]) -> list[HandlerCall]:
        """Take back single calls that have not begun.

        Messages that wait in other sources are withdrawn by the creators of those sources.
        """
        return self._tasks.withdraw(unwanted) + self._threads.withdraw(unwanted)

    async def close(self) -> None:
        """Stop: cancel handlers that still run on the loop; threads end by themselves."""
        self._threads.close()
        await self._tasks.close()


class SingleCall:
    """A source of exactly one call."""

    __slots__ = ("call", "handler", "waiting")

    is_plain = False

    def __init__(self, call: HandlerCall) -> None:
        self.call: HandlerCall | None = call
        self.handler = call.handler
        self.waiting: deque[StoredMessage] = deque()

    def begin(self) -> HandlerCall | None:
        call, self.call = self.call, None
        return call

    def done(self, messages: Sequence[StoredMessage], seconds: float) -> None:
        raise NotImplementedError

    def leave(self, call: HandlerCall) -> None:
        raise NotImplementedError

    def complete_all(self, calls: Sequence[HandlerCall]) -> None:
        raise NotImplementedError


def _without(
    sources: Iterable[CallSource], unwanted: Callable[[HandlerCall], bool]
) -> tuple[list[HandlerCall], deque[CallSource]]:
    """Split off the single calls that are unwanted."""
    removed: list[HandlerCall] = []
    kept: deque[CallSource] = deque()
    for source in sources:
        call = source.call if isinstance(source, SingleCall) else None
        removed.append(call) if call is not None and unwanted(call) else kept.append(source)
    return removed, kept


class TaskWorkers:
    """Workers that are asyncio tasks.

    A task that a handler wakes finds the handler's call completed: calls that return without
    waiting are completed together before any other task runs, the others one by one.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._sources: deque[CallSource] = deque()
        self._running = 0
        self._starting = 0  # of the running workers: just created, or yielding to other tasks
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_turns = 0
        self._turn_handle: asyncio.Handle | None = None
        self._streak: _Streak | None = None  # of the worker that occupies the loop

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        if self._sources:
            self._start(limit)

    def submit(self, source: CallSource) -> None:
        self._sources.append(source)
        if not self._starting:
            self._start(1)

    def withdraw(self, unwanted: Callable[[HandlerCall], bool]) -> list[HandlerCall]:
        removed, self._sources = _without(self._sources, unwanted)
        return removed

    async def close(self) -> None:
        self._sources.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, count: int) -> None:
        for _ in range(min(count, self.limit - self._running)):
            self._running += 1
            self._starting += 1
            task = asyncio.create_task(self._work(), name="bolide-consume")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        self._starting -= 1
        until = monotonic() + _TIME_SLICE
        try:
            while self._sources and self._running <= self.limit:
                await self._call_next(self._sources[0], until)
                if monotonic() > until:
                    self._starting += 1
                    await asyncio.sleep(0)
                    self._starting -= 1
                    until = monotonic() + _TIME_SLICE
        finally:
            self._running -= 1

    async def _call_next(self, source: CallSource, until: float) -> None:
        """Make the next call of a source, or several."""
        call = source.begin()
        if call is None:
            self._sources.popleft()
            return
        if self._turn_handle is None:
            self._turn_handle = asyncio.get_running_loop().call_soon(self._next_turn)
        if source.is_plain:
            await self._call_each(_Streak(source, call), until)
        else:
            call.started = monotonic()
            call.complete(await _run_here(call))

    def _next_turn(self) -> None:
        """Run before any task that a handler woke, and before a waiting handler continues."""
        self._turn_handle = None
        self._loop_turns += 1
        self._end_streak()
        if self._sources and not self._starting:  # all existing workers wait inside handlers
            self._start(max(self._running, 1))

    async def _call_each(self, streak: "_Streak", until: float) -> None:
        """Make one call after the other as long as they return without waiting."""
        self._end_streak()  # of a worker that waits now
        self._streak = streak
        call, waiting, turn = streak.call, streak.source.waiting, self._loop_turns
        function, message, now = call.handler.function, call.messages[0], streak.since
        try:
            while True:
                call.started = now
                returned = function(message)
                if returned is not None and (
                    type(returned) is CoroutineType or inspect.isawaitable(returned)
                ):
                    await returned
                now = monotonic()
                if self._loop_turns != turn:
                    break
                streak.done.append(message)
                if not waiting or now > until or self._running > self.limit:
                    call.started = now
                    self._end_streak()
                    streak.source.leave(call)
                    return
                message = waiting.popleft()
                call.messages = (message,)
            outcome = Outcome(1)
        except asyncio.CancelledError as exc:
            if _is_cancelled():
                raise
            outcome = Outcome(0, exc)
        except Exception as exc:  # noqa: BLE001  the boundary to the user's code
            outcome = Outcome(0, exc)
        call.complete(outcome)

    def _end_streak(self) -> None:
        streak, self._streak = self._streak, None
        if streak is not None and streak.done:
            streak.source.done(streak.done, (streak.call.started or 0.0) - streak.since)


class _Streak:
    """Consecutive calls that return without waiting; one call object serves all messages."""

    __slots__ = ("call", "done", "since", "source")

    def __init__(self, source: CallSource, call: HandlerCall) -> None:
        self.source = source
        self.call = call
        self.done: list[StoredMessage] = []
        self.since = monotonic()


async def _run_here(call: HandlerCall) -> Outcome:
    """Turn every error into an outcome, except the cancellation of the worker itself."""
    try:
        returned = call.invoke()
        if inspect.isawaitable(returned):
            returned = await returned
        return call.handler.outcome(returned, len(call.messages))
    except asyncio.CancelledError as exc:
        if _is_cancelled():
            raise
        return Outcome(0, exc)
    except Exception as exc:  # noqa: BLE001  the boundary to the user's code
        return Outcome(0, exc)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ThreadWorkers:
    """Workers that are threads of a pool; outcomes return to the loop in groups.

    Each worker that finds a call starts another worker, up to the limit.
    """

    def __init__(self, limit: int, name: str) -> None:
        self.limit = limit
        self._name = name
        self._is_closed = False
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()  # guards the three below
        self._sources: deque[CallSource] = deque()
        self._running = 0
        self._starting = 0  # of the running workers: have not asked for a call yet
        self._finished: deque[tuple[CallSource, HandlerCall, Outcome]] = deque()
        self._is_wakeup_scheduled = False

    def set_limit(self, limit: int) -> None:
        with self._lock:
            self.limit = limit
            self._start()

    def submit(self, source: CallSource) -> None:
        with self._lock:
            self._sources.append(source)
            self._start()

    def withdraw(self, unwanted: Callable[[HandlerCall], bool]) -> list[HandlerCall]:
        with self._lock:
            removed, self._sources = _without(self._sources, unwanted)
        return removed

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            self._sources.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _start(self) -> None:
        if self._sources and self._running < self.limit and not self._starting:
            self._running += 1
            self._starting += 1
            self._submit_to_pool(self._work)

    def _submit_to_pool(self, work: Callable[[], None]) -> None:
        pool, loop = self._require_pool(), self._loop
        assert loop is not None
        try:
            pool.submit(work)
        except RuntimeError as exc:  # the pool keeps the work for its next thread
            if self._is_closed:
                return
            log.warning("%s: no thread for another handler: %s", self._name, exc)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(
                    loop.call_later, _THREAD_RETRY_DELAY, self._submit_to_pool, _nothing
                )

    def _require_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._loop = asyncio.get_running_loop()
            self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=self._name)
        return self._pool

    def _work(self) -> None:
        with self._lock:
            self._starting -= 1
            begun = self._next()
            self._start()
        while begun is not None:
            source, call = begun
            call.started = monotonic()
            self._finish(source, call, _outcome(call))
            with self._lock:
                begun = self._next()

    def _next(self) -> tuple[CallSource, HandlerCall] | None:
        while self._sources and self._running <= self.limit:
            source = self._sources[0]
            if (call := source.begin()) is not None:
                return source, call
            self._sources.popleft()
        self._running -= 1
        return None

    def _finish(self, source: CallSource, call: HandlerCall, outcome: Outcome) -> None:
        # Append first: `_complete_finished` clears the flag and then reads the queue.
        self._finished.append((source, call, outcome))
        if not self._is_wakeup_scheduled:
            self._is_wakeup_scheduled = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._complete_finished)
            except RuntimeError:  # the loop is closed, and with it every waiter
                log.debug("a handler outlived its event loop")

    def _complete_finished(self) -> None:
        self._is_wakeup_scheduled = False
        successful: dict[CallSource, list[HandlerCall]] = {}
        for _ in range(len(self._finished)):
            source, call, outcome = self._finished.popleft()
            if source.is_plain and outcome.error is None:
                successful.setdefault(source, []).append(call)
            else:
                call.complete(outcome)
        for source, calls in successful.items():
            source.complete_all(calls)


def _nothing() -> None:
    """Work that only makes the pool start a thread."""


def _outcome(call: HandlerCall) -> Outcome:
    try:
        returned = call.invoke()
    except BaseException as exc:  # noqa: BLE001  sys.exit in a handler must not end a pool thread
        return Outcome(0, exc)
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        return Outcome(0, TypeError("a plain function returned a coroutine: make it async def"))
    return call.handler.outcome(returned, len(call.messages))
