"""What workers are given to do: single calls of handlers, and runs of them."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from bolide.client.consuming.consume import Handler, Outcome
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
