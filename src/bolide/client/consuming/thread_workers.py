"""Handlers that run in threads."""

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic

from bolide.client.consuming.consume import Outcome
from bolide.client.consuming.jobs import Job, Run, without

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
