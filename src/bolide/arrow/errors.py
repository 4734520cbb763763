"""Errors of the table readers.

BolideError
├── ConfigError
│   ├── BadPosition      a start or end position is malformed
│   ├── BadValueSchema   a value schema is malformed
│   └── NoCommitLog      the path contains no commit log
├── DataLost             messages of the range were deleted, or the topic was recreated
├── LogLost              records of a log file are missing or damaged
│   ├── LogFileGone      a log file is missing, or was deleted before it was read
│   └── LogDamaged       no valid record at an offset where one must begin
└── OutOfPatience        the cluster was unreachable for too long
"""

from pathlib import Path

from bolide.errors import BolideError, ConfigError
from bolide.model.message_queue import MessageQueue

_GO_ON = (
    "To go on with what is there, allow data loss (failOnDataLoss=false, fail_on_data_loss=False)"
)


class DataLost(BolideError):
    """Messages of the requested range were deleted."""

    def __init__(self, queue: MessageQueue, wanted: int, oldest: int, end: int) -> None:
        super().__init__(
            f"topic {queue.topic!r}, broker {queue.broker_name!r}, queue {queue.queue_id}: offset"
            f" {wanted} was wanted, but the broker has only {oldest} up to {end}: messages were"
            f" deleted before they were read, or the topic was recreated. {_GO_ON}"
        )
        self.queue, self.wanted, self.oldest, self.end = queue, wanted, oldest, end

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.queue, self.wanted, self.oldest, self.end)


class OutOfPatience(BolideError):
    """No request succeeded within the time limit; `cause` is the last failure."""

    def __init__(self, what: str, seconds: float, cause: object) -> None:
        super().__init__(f"{what}: no success for {seconds:.3g} s; the last failure: {cause}")
        self.what, self.seconds, self.cause = what, seconds, cause

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.seconds, str(self.cause))


class BadPosition(ConfigError):
    """A malformed start or end position; the text names the option and the valid forms."""


class BadValueSchema(ConfigError):
    """A malformed list of columns; the text names the position of the error."""


class NoCommitLog(ConfigError):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"path={path!r}: {reason}; name a store directory, its commitlog directory or one log"
            " file, on a disk or a share that every worker has mounted there"
        )
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason)


class LogLost(BolideError):
    """Records of a log file are missing or damaged."""

    def __init__(self, path: Path | str, at: int, reason: str) -> None:
        super().__init__(f"{path}, physical offset {at}: {reason}. {_GO_ON}")
        self.path, self.at, self.reason = path, at, reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.at, self.reason)


class LogFileGone(LogLost):
    """A log file is missing: deleted by retention, or not part of the copy."""


class LogDamaged(LogLost):
    """The bytes at an offset are not a valid record."""
