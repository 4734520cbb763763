"""Run handlers, so many at a time: as tasks on the loop, or in threads.

A worker takes jobs until none wait and then ends, so a burst of messages costs one task or one
thread hand-over, not one for each message.
"""

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from bolide.client.consuming.consume import Handler, Outcome, Place
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)

_TURN = 0.005
"""Seconds that inline handlers may keep the loop before others have a turn."""

_MOST_THREADS = 4096


class Job(Protocol):
    """One call of a handler. `settle` is called on the loop, once, unless the job is withdrawn."""

    handler: Handler
    messages: Sequence[StoredMessage]
    started: float | None
    """When the call began, by the loop's clock."""

    def call(self) -> Any:
        """What the handler returns, or an awaitable of it; runs where the handler belongs."""

    def settle(self, outcome: Outcome) -> None: ...


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
        in_thread = job.handler.place is Place.THREAD
        self._threads.submit(job) if in_thread else self._tasks.submit(job)

    def withdraw(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        """Take back jobs that have not begun."""
        return self._tasks.withdraw(unwanted) + self._threads.withdraw(unwanted)

    async def close(self) -> None:
        """Stop; handlers on the loop that still run are cancelled, threads end by themselves."""
        self._threads.close()
        await self._tasks.close()


class TaskWorkers:
    """Workers that are tasks."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self._start()

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        if self._running < self.limit:
            self._start()

    def withdraw(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        gone, self._waiting = _split(self._waiting, unwanted)
        return gone

    async def close(self) -> None:
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self) -> None:
        for _ in range(min(self.limit - self._running, len(self._waiting))):
            self._running += 1
            task = asyncio.create_task(self._work(), name="bolide-consume")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            while self._waiting and self._running <= self.limit:
                job = self._waiting.popleft()
                job.started = loop.time()
                job.settle(await _run_here(job))
                if loop.time() - since > _TURN:
                    await asyncio.sleep(0)
                    since = loop.time()
        finally:
            self._running -= 1


class ThreadWorkers:
    """Workers that are threads of a pool; outcomes come back to the loop in groups."""

    def __init__(self, limit: int, name: str) -> None:
        self.limit = limit
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()  # guards all below
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._finished: list[tuple[Job, Outcome]] = []

    def set_limit(self, limit: int) -> None:
        with self._lock:
            self.limit = limit
            self._start(len(self._waiting))

    def submit(self, job: Job) -> None:
        with self._lock:
            self._waiting.append(job)
            self._start(1)

    def withdraw(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        with self._lock:
            gone, self._waiting = _split(self._waiting, unwanted)
        return gone

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _start(self, count: int) -> None:
        for _ in range(min(count, self.limit - self._running)):
            self._running += 1
            self._threads().submit(self._work)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._loop = asyncio.get_running_loop()
            self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix=self._name)
        return self._pool

    def _work(self) -> None:
        assert self._loop is not None
        while (job := self._next()) is not None:
            job.started = self._loop.time()
            outcome = _run_in_thread(job)
            with self._lock:
                is_first = not self._finished
                self._finished.append((job, outcome))
            if is_first:
                self._tell(self._loop)

    def _next(self) -> Job | None:
        with self._lock:
            if self._waiting and self._running <= self.limit:
                return self._waiting.popleft()
            self._running -= 1
            return None

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(self._settle)
        except RuntimeError:  # the loop is closed: nobody waits any more
            log.debug("a handler outlived its event loop")

    def _settle(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
        for job, outcome in finished:
            job.settle(outcome)


def _split(waiting: deque[Job], unwanted: Callable[[Job], bool]) -> tuple[list[Job], deque[Job]]:
    gone = [job for job in waiting if unwanted(job)]
    return gone, deque(job for job in waiting if not unwanted(job))


async def _run_here(job: Job) -> Outcome:
    """Every error is an outcome, but for the cancelling of the worker itself."""
    try:
        returned = job.call()
        if inspect.isawaitable(returned):
            returned = await returned
        return job.handler.outcome(returned, len(job.messages))
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Outcome(0, exc)
    except Exception as exc:  # noqa: BLE001  the boundary to the user's code
        return Outcome(0, exc)


def _run_in_thread(job: Job) -> Outcome:
    try:
        returned = job.call()
    except BaseException as exc:  # noqa: BLE001  sys.exit in a handler must not end a pool thread
        return Outcome(0, exc)
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        return Outcome(0, TypeError("a plain function returned a coroutine: make it async def"))
    return job.handler.outcome(returned, len(job.messages))
