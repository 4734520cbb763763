"""Workers that run handlers: tasks on the loop, or threads.

One worker makes all the calls that end at once; when one of them takes a while others come to its
side, up to the limit.

A worker takes jobs until none wait and then ends, so a burst of messages costs one task or one
thread hand-over, not one for each message.
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

from bolide.client.consumer.handlers.handler import Handler, Outcome, Place
from bolide.model.message import StoredMessage


class Job(Protocol):
    """One call of a handler. `settle` is called on the loop, once, unless the job is withdrawn."""

    handler: Handler
    messages: Sequence[StoredMessage]
    started: float | None
    """When the call began, by the loop's clock."""

    def call(self) -> Any:
        """What the handler returns, or an awaitable of it; runs where the handler belongs."""

    def settle(self, outcome: Outcome) -> None: ...


class Run(Protocol):
    """Calls of one handler for many messages, begun one after the other by whoever has time."""

    handler: Handler
    waiting: deque[StoredMessage]
    """Those without a call so far; whoever made the run may take them back."""
    is_plain: bool
    """Each call takes one message, and calls that end well may be told of together."""

    def begin(self) -> Job | None:
        """Make the next call, in any thread; None if nothing waits."""

    def done(self, messages: Sequence[StoredMessage], seconds: float) -> None:
        """Calls for these messages ended well, one call for each, and took so long in all."""

    def leave(self, job: Job) -> None:
        """The job is over, and its messages were told to be done."""

    def settle_done(self, jobs: Sequence[Job]) -> None:
        """Settle jobs that ended well."""


class Single:
    """A job as a run of one call."""

    __slots__ = ("handler", "job", "waiting")

    is_plain = False

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.handler = job.handler
        self.waiting: deque[StoredMessage] = deque()

    def begin(self) -> Job | None:
        job, self.job = self.job, None
        return job

    def done(self, messages: Sequence[StoredMessage], seconds: float) -> None:
        raise NotImplementedError

    def leave(self, job: Job) -> None:
        raise NotImplementedError

    def settle_done(self, jobs: Sequence[Job]) -> None:
        raise NotImplementedError


def without(
    waiting: Iterable[Run], unwanted: Callable[[Job], bool]
) -> tuple[list[Job], deque[Run]]:
    """Split off the single jobs that are unwanted."""
    gone: list[Job] = []
    left: deque[Run] = deque()
    for run in waiting:
        job = run.job if isinstance(run, Single) else None
        gone.append(job) if job is not None and unwanted(job) else left.append(run)
    return gone, left


_TURN = 0.005
"""Seconds that inline handlers may keep the loop before others have a turn."""


class TaskWorkers:
    """Workers that are tasks.

    Whoever is woken by a handler finds its call settled: those that end at once are settled
    together before anybody else has a turn, those that took a while one by one.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._waiting: deque[Run] = deque()
        self._running = 0
        self._coming = 0  # of those that run: just created, or letting others have a turn
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = 0
        self._watch: asyncio.Handle | None = None
        self._stretch: _Stretch | None = None  # of the worker that has its turn

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        if self._waiting:
            self._start(limit)

    def submit(self, run: Run) -> None:
        self._waiting.append(run)
        if not self._coming:
            self._start(1)

    def withdraw(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        gone, self._waiting = without(self._waiting, unwanted)
        return gone

    async def close(self) -> None:
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, count: int) -> None:
        for _ in range(min(count, self.limit - self._running)):
            self._running += 1
            self._coming += 1
            task = asyncio.create_task(self._work(), name="bolide-consume")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        self._coming -= 1
        until = monotonic() + _TURN
        try:
            while self._waiting and self._running <= self.limit:
                await self._take(self._waiting[0], until)
                if monotonic() > until:
                    self._coming += 1
                    await asyncio.sleep(0)
                    self._coming -= 1
                    until = monotonic() + _TURN
        finally:
            self._running -= 1

    async def _take(self, run: Run, until: float) -> None:
        """Make the next call of a run, or several."""
        job = run.begin()
        if job is None:
            self._waiting.popleft()
            return
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_soon(self._look)
        if run.is_plain:
            await self._call_each(_Stretch(run, job), until)
        else:
            job.started = monotonic()
            job.settle(await _run_here(job))

    def _look(self) -> None:
        """Called before anything that a handler woke, and before one that waits goes on."""
        self._watch = None
        self._turns += 1
        self._end_stretch()
        if self._waiting and not self._coming:  # the workers that there are wait in handlers
            self._start(max(self._running, 1))

    async def _call_each(self, stretch: "_Stretch", until: float) -> None:
        """Make one call after the other as long as they end at once."""
        self._end_stretch()  # of one that waits now
        self._stretch = stretch
        job, waiting, turn = stretch.job, stretch.run.waiting, self._turns
        call, message, now = job.handler.function, job.messages[0], stretch.since
        try:
            while True:
                job.started = now
                returned = call(message)
                if returned is not None and (
                    type(returned) is CoroutineType or inspect.isawaitable(returned)
                ):
                    await returned
                now = monotonic()
                if self._turns != turn:
                    break
                stretch.done.append(message)
                if not waiting or now > until or self._running > self.limit:
                    job.started = now
                    self._end_stretch()
                    stretch.run.leave(job)
                    return
                message = waiting.popleft()
                job.messages = (message,)
            outcome = Outcome(1)
        except asyncio.CancelledError as exc:
            if _is_cancelled():
                raise
            outcome = Outcome(0, exc)
        except Exception as exc:  # noqa: BLE001  the boundary to the user's code
            outcome = Outcome(0, exc)
        job.settle(outcome)

    def _end_stretch(self) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch is not None and stretch.done:
            stretch.run.done(stretch.done, (stretch.job.started or 0.0) - stretch.since)


class _Stretch:
    """Calls of a run that end at once, made with one job that gets one message after the other."""

    __slots__ = ("done", "job", "run", "since")

    def __init__(self, run: Run, job: Job) -> None:
        self.run = run
        self.job = job
        self.done: list[StoredMessage] = []
        self.since = monotonic()


async def _run_here(job: Job) -> Outcome:
    """Every error is an outcome, but for the cancelling of the worker itself."""
    try:
        returned = job.call()
        if inspect.isawaitable(returned):
            returned = await returned
        return job.handler.outcome(returned, len(job.messages))
    except asyncio.CancelledError as exc:
        if _is_cancelled():
            raise
        return Outcome(0, exc)
    except Exception as exc:  # noqa: BLE001  the boundary to the user's code
        return Outcome(0, exc)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


log = logging.getLogger(__name__)

_MOST_THREADS = 4096
_AGAIN = 1.0
"""Seconds after which the system is asked again for a thread that it did not have."""


class ThreadWorkers:
    """Workers that are threads of a pool; outcomes come back to the loop in groups.

    Each one that finds work has another one come, up to the limit.
    """

    def __init__(self, limit: int, name: str) -> None:
        self.limit = limit
        self._name = name
        self._is_closed = False
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()  # guards the three below
        self._waiting: deque[Run] = deque()
        self._running = 0
        self._coming = 0  # of those that run: have not looked for work yet
        self._finished: deque[tuple[Run, Job, Outcome]] = deque()
        self._is_told = False

    def set_limit(self, limit: int) -> None:
        with self._lock:
            self.limit = limit
            self._start()

    def submit(self, run: Run) -> None:
        with self._lock:
            self._waiting.append(run)
            self._start()

    def withdraw(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        with self._lock:
            gone, self._waiting = without(self._waiting, unwanted)
        return gone

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _start(self) -> None:
        if self._waiting and self._running < self.limit and not self._coming:
            self._running += 1
            self._coming += 1
            self._hand_over(self._work)

    def _hand_over(self, work: Callable[[], None]) -> None:
        pool, loop = self._threads(), self._loop
        assert loop is not None
        try:
            pool.submit(work)
        except RuntimeError as exc:  # the pool keeps it for the next thread
            if self._is_closed:
                return
            log.warning("%s: no thread for another handler: %s", self._name, exc)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(loop.call_later, _AGAIN, self._hand_over, _nothing)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._loop = asyncio.get_running_loop()
            self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix=self._name)
        return self._pool

    def _work(self) -> None:
        with self._lock:
            self._coming -= 1
            taken = self._next()
            self._start()
        while taken is not None:
            run, job = taken
            job.started = monotonic()
            self._finish(run, job, _outcome(job))
            with self._lock:
                taken = self._next()

    def _next(self) -> tuple[Run, Job] | None:
        while self._waiting and self._running <= self.limit:
            run = self._waiting[0]
            if (job := run.begin()) is not None:
                return run, job
            self._waiting.popleft()
        self._running -= 1
        return None

    def _finish(self, run: Run, job: Job, outcome: Outcome) -> None:
        self._finished.append((run, job, outcome))  # first: `_settle` resets the mark, then looks
        if not self._is_told:
            self._is_told = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._settle)
            except RuntimeError:  # the loop is closed: nobody waits any more
                log.debug("a handler outlived its event loop")

    def _settle(self) -> None:
        self._is_told = False
        done: dict[Run, list[Job]] = {}
        for _ in range(len(self._finished)):
            run, job, outcome = self._finished.popleft()
            if run.is_plain and outcome.error is None:
                done.setdefault(run, []).append(job)
            else:
                job.settle(outcome)
        for run, jobs in done.items():
            run.settle_done(jobs)


def _nothing() -> None:
    """Work for the sake of a thread."""


def _outcome(job: Job) -> Outcome:
    try:
        returned = job.call()
    except BaseException as exc:  # noqa: BLE001  sys.exit in a handler must not end a pool thread
        return Outcome(0, exc)
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        return Outcome(0, TypeError("a plain function returned a coroutine: make it async def"))
    return job.handler.outcome(returned, len(job.messages))


class Workers:
    """Both kinds behind one door. `limit` counts for each kind and may change at any time."""

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

    def submit(self, job: Job) -> None:
        self.submit_run(Single(job))

    def submit_run(self, run: Run) -> None:
        in_thread = run.handler.place is Place.THREAD
        self._threads.submit(run) if in_thread else self._tasks.submit(run)

    def withdraw(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        """Take back jobs that have not begun; what waits in runs is their makers' to take back."""
        return self._tasks.withdraw(unwanted) + self._threads.withdraw(unwanted)

    async def close(self) -> None:
        """Stop; handlers on the loop that still run are cancelled, threads end by themselves."""
        self._threads.close()
        await self._tasks.close()
