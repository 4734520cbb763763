"""Handlers that run on the event loop.

One worker makes all the calls that end at once; when one of them takes a while others come to its
side, up to the limit.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import CoroutineType

from bolide.client.consuming.consume import Outcome
from bolide.client.consuming.jobs import Job, Run, without
from bolide.model.message import StoredMessage

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
