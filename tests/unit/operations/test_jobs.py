"""Jobs: what they record, how they end, and which ones are kept."""

import asyncio

import pytest

from bolide.admin import AdminClient
from bolide.operations import jobs
from bolide.operations.cluster import Cluster
from bolide.operations.errors import Conflict, OperationError
from bolide.operations.jobs import Job, JobResult, Jobs, JobState
from tests.support.aio import on_loop, until


def cluster() -> Cluster:
    return Cluster(admin=AdminClient("127.0.0.1:1"), name_servers="127.0.0.1:1")


async def finished(kept: Jobs, shown: Cluster, *outcomes: str, error: BaseException | None) -> Job:
    async def work(job: Job) -> None:
        for number, outcome in enumerate(outcomes):
            job.record(JobResult(subject=str(number), outcome=outcome))
            job.advance(1)
        if error is not None:
            raise error

    job = kept.start(shown, work, kind="test", target="g", to_scan=len(outcomes))
    await until(lambda: not job.is_running)
    return job


@on_loop
async def test_a_job_tells_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    kept, shown = Jobs(), cluster()

    done = await finished(kept, shown, "SENT", "SENT", "FAILED", error=None)
    failed = await finished(kept, shown, "SENT", error=OperationError("no more"))
    broken = await finished(kept, shown, error=KeyError("x"))

    assert done.view.outcomes == {"SENT": 2, "FAILED": 1}
    assert (done.view.state, done.view.scanned, done.view.to_scan) == (JobState.DONE, 3, 3)
    assert (failed.view.state, failed.view.error) == (JobState.FAILED, "no more")
    assert failed.view.results == 1, "what was done stays done"
    assert broken.view.error == "KeyError: 'x'"
    assert "test of g" in caplog.text
    assert kept.of(shown) == [broken, failed, done]


@on_loop
async def test_results_and_ended_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_RESULTS", 2)
    monkeypatch.setattr(jobs, "MAX_KEPT_RESULTS", 3)
    kept, shown = Jobs(), cluster()

    first = await finished(kept, shown, "SENT", "SENT", "SENT", error=None)
    second = await finished(kept, shown, "SENT", "SENT", error=None)

    assert (first.view.results, first.view.results_left_out) == (2, 1)
    assert first.view.outcomes == {"SENT": 3}
    assert kept.of(shown) == [second]


@on_loop
async def test_too_many_jobs_are_refused_and_all_end_with_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "MAX_RUNNING", 2)
    kept, shown = Jobs(), cluster()

    async def wait(_: Job) -> None:
        await asyncio.Event().wait()

    running = [kept.start(shown, wait, kind="test", target=name) for name in "ab"]
    with pytest.raises(Conflict, match="2 jobs are running"):
        kept.start(shown, wait, kind="test", target="c")
    await kept.close()

    assert {job.state for job in running} == {JobState.CANCELLED}
