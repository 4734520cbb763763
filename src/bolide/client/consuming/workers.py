"""Run handlers, so many at a time: as tasks on the loop, or in threads.

A worker takes jobs until none wait and then ends, so a burst of messages costs one task or one
thread hand-over, not one for each message.
"""

from collections.abc import Callable

from bolide.client.consuming.consume import Place
from bolide.client.consuming.jobs import Job, Run, Single
from bolide.client.consuming.task_workers import TaskWorkers
from bolide.client.consuming.thread_workers import ThreadWorkers


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
