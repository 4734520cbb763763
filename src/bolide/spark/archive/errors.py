"""Errors of archives.

BolideError
├── TableBusy            another run writes the table
├── LeaseLost            another run has taken the table over
├── ArchiveGap           rows are missing between the table and the next batch
├── SeamGap              the log no longer reaches back to the end of the archive
├── OtherLog             an archived message differs from the message in the log
└── ConfigError
    ├── NoArchive        there is no archive at the path
    └── OtherSettings    the table was created with other columns
"""

from bolide.errors import BolideError, ConfigError
from bolide.model.message_queue import MessageQueue


class TableBusy(BolideError):
    """Another run holds the lease of the table."""

    def __init__(self, url: str, holder: str, stale_after: float) -> None:
        super().__init__(
            f"the archive at {url} is being written by {holder}; stop that run first. If it has"
            f" died, its lease expires {stale_after:.0f} s after its last heartbeat"
        )


class LeaseLost(BolideError):
    """Another run took the lease over after missing heartbeats."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"the archive at {url} was taken over by another run, because this run sent no"
            " heartbeat for too long; its change in progress was discarded. Start it again when"
            " the other run has ended"
        )


class ArchiveGap(BolideError):
    """Offsets are missing: an archive must be dense."""

    def __init__(self, queue: MessageQueue, expected: int, found: int, missing: int) -> None:
        if missing < 0:
            text = f"a batch has {-missing} rows more than offsets up to {found}"
        else:
            text = (
                f"{missing} messages are missing between offset {expected}, which comes next in"
                f" the archive, and {found}: the log has lost them, or a checkpoint of another"
                " table is in use. To continue without them, allow data loss (failOnDataLoss=false)"
            )
        super().__init__(f"{queue}: {text}")
        self.queue, self.expected, self.found, self.missing = queue, expected, found, missing


class SeamGap(BolideError):
    """The log does not continue where the archive ends."""

    def __init__(self, queue: MessageQueue, archived: int, oldest: int, end: int) -> None:
        if end < archived:
            why = f"the log ends at {end} already: the topic was recreated, use another archive"
        else:
            why = (
                f"the log begins at {oldest}: {oldest - archived} messages are in neither. To see"
                " what there is all the same, allow gaps (--allow-gaps, allow_gaps=True)"
            )
        super().__init__(f"{queue}: the archive ends before offset {archived}, but {why}")
        self.queue, self.archived, self.oldest, self.end = queue, archived, oldest, end


class OtherLog(BolideError):
    """A topic was deleted and created again, so that its offsets name other messages."""

    def __init__(self, queue: MessageQueue, offset: int, archived: str, logged: str) -> None:
        super().__init__(
            f"{queue}: offset {offset} is message {archived} in the archive, but {logged} in the"
            " log: the topic was recreated, use another archive"
        )
        self.queue, self.offset = queue, offset


class NoArchive(ConfigError):
    """There is no archive at the path."""

    def __init__(self, url: str) -> None:
        super().__init__(f"there is no archive at {url}; `bolide pipeline run archive` makes one")


class OtherSettings(ConfigError):
    """The columns of a table are fixed when it is created."""

    def __init__(self, url: str, name: str, table: object, given: object) -> None:
        super().__init__(
            f"{name}={given!r}: the archive at {url} was made with {table!r}; leave it so, or"
            " archive to another path"
        )
