"""Errors of a run, and one-line reasons for failures of Spark."""

import re

from bolide.errors import BolideError

_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)$", re.MULTILINE)
_CALL = re.compile(r"\AAn error occurred while calling \S+\.\s*:\s*")
_QUERY = re.compile(r"\A\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_JAVA_CLASS = re.compile(r"\A(?:[a-z]\w*\.)+[A-Z]\w*: ")
_TRACE = "Traceback (most recent call last):"


class RunFailed(BolideError):
    """A run failed; the message gives the reason."""


class AlreadyRunning(BolideError):
    """Another run of the same name reports that it is running."""

    def __init__(self, pipeline: str, where: str) -> None:
        super().__init__(
            f"pipeline {pipeline!r} runs already, {where}: stop it with"
            f" `bolide pipeline stop {pipeline}`, or use --force if it has died"
        )
        self.pipeline = pipeline


def failure_reason(exc: BaseException) -> str:
    """A one-line reason; for an error in a Python worker, the exception raised there."""
    text = _CALL.sub("", str(exc).strip())
    _, trace, below = text.rpartition(_TRACE)
    if trace and (found := _RAISED.search(below)):
        return f"{found[1]}: {found[2]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _JAVA_CLASS.sub("", _QUERY.sub("", lines[0])) if lines else type(exc).__name__
