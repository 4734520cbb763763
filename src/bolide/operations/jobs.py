"""Jobs: changes of many messages that run on after the request which started them.

A job belongs to this process. It goes on when the page that started it is closed, and ends with the
process. `start` begins one; its work reports what became of each message with `Job.record`, and
polls nothing: a cancelled job is a cancelled task. Jobs and their results are kept in memory, the
last ones only. An identity sees its own jobs alone, for results name messages.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import uuid4

from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change, read
from bolide.operations.errors import Conflict, NotFound
from bolide.operations.views import Page, now_ms, page_of, reason_of

log = logging.getLogger(__name__)

MAX_RESULTS = 20_000
"""Of one job; later results are counted only."""
MAX_KEPT_RESULTS = 60_000
"""Of all ended jobs; the oldest jobs are dropped first."""
MAX_ENDED = 50
MAX_RUNNING = 20


class JobState(StrEnum):
    """How far a job is."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    """It stopped before its end; `error` tells why. What it has done stays done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What became of one message."""

    subject: str
    """Which one: a message id."""
    outcome: str
    detail: str = ""
    """Why it failed, or where its copy is."""
    target: str = ""
    """Where it was sent."""
    position: str = ""
    """Where the message itself is: topic/broker/queue@offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job, and how far it is; times are milliseconds since 1970."""

    id: str
    kind: str
    """Such as `dead_letters.redrive`."""
    target: str
    """What it works on: a group or a topic."""
    state: JobState
    scanned: int
    """How many messages were looked at."""
    to_scan: int | None
    """How many will have been at the end; None if unknown."""
    outcomes: dict[str, int]
    """How many results there are of each outcome."""
    results: int
    results_left_out: int
    """Counted in `outcomes`, but not kept."""
    started_ms: int
    ended_ms: int | None
    error: str = ""
    note: str = ""
    """What to know of its end, such as that a limit was reached."""


@dataclass(slots=True, eq=False)
class Job:
    """A job as its work sees it."""

    kind: str
    target: str
    owner: tuple[str, str | None]
    lane: str = ""
    """Only one job of a lane runs at a time."""
    to_scan: int | None = None
    scanned: int = 0
    note: str = ""
    error: str = ""
    id: str = field(default_factory=lambda: uuid4().hex[:12])
    state: JobState = JobState.RUNNING
    started_ms: int = field(default_factory=now_ms)
    ended_ms: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    results: list[JobResult] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def record(self, result: JobResult) -> None:
        self.outcomes[result.outcome] += 1
        if len(self.results) < MAX_RESULTS:
            self.results.append(result)

    def advance(self, scanned: int) -> None:
        self.scanned += scanned

    @property
    def is_running(self) -> bool:
        return self.state is JobState.RUNNING

    @property
    def view(self) -> JobView:
        return JobView(
            id=self.id,
            kind=self.kind,
            target=self.target,
            state=self.state,
            scanned=self.scanned,
            to_scan=self.to_scan,
            outcomes=dict(self.outcomes),
            results=len(self.results),
            results_left_out=self.outcomes.total() - len(self.results),
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            error=self.error,
            note=self.note,
        )


class Jobs:
    """The jobs of this process."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def start(
        self,
        cluster: Cluster,
        work: Callable[[Job], Awaitable[None]],
        *,
        kind: str,
        target: str,
        lane: str = "",
        to_scan: int | None = None,
    ) -> Job:
        """Start a job on this event loop.

        Args:
            cluster: whose job it is; the work needs connections of its own to outlive it.
            work: does it, and records the results in the job.
            kind: the operation.
            target: what it works on.
            lane: a job is refused while another one of the lane runs, whoever started that.
            to_scan: how many messages will be looked at.

        Raises:
            Conflict: a job of this lane runs, or too many jobs run.
        """
        running = [job for job in self._jobs.values() if job.is_running]
        if len(running) >= MAX_RUNNING:
            raise Conflict(f"{len(running)} jobs are running: wait until one ends, or cancel one")
        if lane and any(job.lane == lane for job in running):
            raise Conflict(f"a job for {target} is running: wait until it ends, or cancel it")
        job = Job(kind=kind, target=target, owner=_owner(cluster), lane=lane, to_scan=to_scan)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, work))
        return job

    def of(self, cluster: Cluster) -> list[Job]:
        """The jobs of an identity, newest first."""
        owner = _owner(cluster)
        return [job for job in reversed(self._jobs.values()) if job.owner == owner]

    def require(self, cluster: Cluster, job_id: str) -> Job:
        """Raises NotFound."""
        job = self._jobs.get(job_id)
        if job is None or job.owner != _owner(cluster):
            raise NotFound(f"there is no job {job_id!r}: jobs end with the process that runs them")
        return job

    async def cancel(self, job: Job) -> None:
        """Cancel a job and wait until it has stopped."""
        if job.task is not None and not job.task.done():
            job.task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.shield(job.task)
        if job.is_running:  # it was cancelled before its first step
            self._end(job, JobState.CANCELLED)

    async def close(self) -> None:
        """Cancel all jobs: the process ends."""
        for job in list(self._jobs.values()):
            await self.cancel(job)

    async def _run(self, job: Job, work: Callable[[Job], Awaitable[None]]) -> None:
        try:
            await work(job)
            self._end(job, JobState.DONE)
        except asyncio.CancelledError:
            self._end(job, JobState.CANCELLED)
        except BolideError as error:
            self._end(job, JobState.FAILED, reason_of(error))
        except Exception as error:  # the boundary of a job
            log.exception("job %s (%s of %s) failed", job.id, job.kind, job.target)
            self._end(job, JobState.FAILED, f"{type(error).__name__}: {reason_of(error)}")

    def _end(self, job: Job, state: JobState, error: str = "") -> None:
        job.state, job.error, job.ended_ms = state, error, now_ms()
        ended = [each for each in self._jobs.values() if not each.is_running]
        kept = sum(len(each.results) for each in ended)
        while len(ended) > 1 and (len(ended) > MAX_ENDED or kept > MAX_KEPT_RESULTS):
            oldest = ended.pop(0)
            kept -= len(oldest.results)
            del self._jobs[oldest.id]


JOBS = Jobs()


@read("/jobs")
async def list_jobs(
    cluster: Cluster, *, kind: str = "", target: str = "", page: int = 1, size: int = 50
) -> Page[JobView]:
    """List jobs that run or have ended, newest first.

    They are those that you have started in this process, through the console, its API or MCP.
    """
    found = [
        job for job in JOBS.of(cluster) if kind in {"", job.kind} and target in {"", job.target}
    ]
    cut = page_of(found, page=page, size=size)
    views = [job.view for job in cut.items]
    return Page(items=views, total=cut.total, page=cut.page, size=cut.size)


@read("/jobs/{job}")
async def show_job(cluster: Cluster, *, job: str) -> JobView:
    """Show a job: its state, how far it is, and how many messages had each outcome."""
    return JOBS.require(cluster, job).view


@read("/jobs/{job}/results")
async def job_results(
    cluster: Cluster, *, job: str, outcome: str = "", page: int = 1, size: int = 50
) -> Page[JobResult]:
    """List what became of each message of a job, in the order of the work."""
    results = JOBS.require(cluster, job).results
    found = [each for each in results if outcome in {"", each.outcome}] if outcome else results
    return page_of(found, page=page, size=size)


@change("POST", "/jobs/{job}/cancel", target="job {job}")
async def cancel_job(cluster: Cluster, *, job: str) -> JobView:
    """Cancel a running job. What it has done stays done; its results tell what that is."""
    found = JOBS.require(cluster, job)
    await JOBS.cancel(found)
    return found.view


def _owner(cluster: Cluster) -> tuple[str, str | None]:
    return cluster.name_servers, cluster.identity.access_key
