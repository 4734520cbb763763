"""What reading log files without a broker fails at.

BolideError
├── ConfigError
│   └── NoCommitLog    there is no log to read
└── LogLost            records of the log are gone or damaged
    ├── LogFileGone    a file was deleted before it was read, or is missing between others
    └── LogDamaged     no sound record lies where one must be
"""

from pathlib import Path

from bolide.errors import BolideError, ConfigError

_GO_ON = (
    "To go on with what is there, allow data loss (failOnDataLoss=false, fail_on_data_loss=False)"
)


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
    """Records that were to be read cannot be."""

    def __init__(self, path: Path | str, at: int, reason: str) -> None:
        super().__init__(f"{path}, physical offset {at}: {reason}. {_GO_ON}")
        self.path, self.at, self.reason = path, at, reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.at, self.reason)


class LogFileGone(LogLost):
    """Retention deletes the oldest files; copies may miss some."""


class LogDamaged(LogLost):
    """There is no record, or another one than was written."""
