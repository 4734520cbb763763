"""The end of a slave's log, which its master sends again so that the two logs are compared.

In the plain dialect a slave says only where its log ends. If the master has lost the end of its
own log, in a power cut for example, the slave has other bytes there than the master writes next,
and both ends may be equal by chance. So a slave asks for the last part of what it has, compares
it, and reports its end only then. Records have times and ids: two of different masters differ.
"""

from dataclasses import dataclass, replace

from bolide.protocol.ha import Transfer
from bolide.store.commit_log import CommitLog
from bolide.store.replica_log import LogMismatch

_SIZE = 256 * 1024
_ADVICE = (
    "the master has lost the end of its log, or this slave followed another master. Stop this"
    " slave, move its store away and start it: it copies the log of the master"
)


@dataclass(slots=True)
class Overlap:
    """Bytes of a log from `position` on, up to its end, that the master has not sent again yet."""

    position: int
    data: bytes

    @property
    def end(self) -> int:
        return self.position + len(self.data)

    def compare(self, transfer: Transfer) -> Transfer:
        """Compare what a master sent; returns the part of it that follows this log.

        The first transfer may begin later than `position`, because of the master's retention.

        Raises:
            LogMismatch: the logs differ.
        """
        at = transfer.offset - self.position
        if transfer.offset >= self.end:
            self.position, self.data = self.end, b""
            return transfer
        known = self.data[max(at, 0) :]
        if at < 0 or not _is_continued(known, transfer.data):
            raise LogMismatch(f"this log and the master's differ before {self.end}: {_ADVICE}")
        size = min(len(known), len(transfer.data))
        self.position, self.data = transfer.offset + size, known[size:]
        return replace(transfer, offset=transfer.offset + size, data=transfer.data[size:])

    def is_missing(self) -> LogMismatch:
        """The reason to leave a master that does not send these bytes."""
        return LogMismatch(
            f"this log ends at {self.end}, but the master does not send what it has from"
            f" {self.position} on: {_ADVICE}"
        )


def read_overlap(commit_log: CommitLog) -> Overlap:
    """Read the end of a log. Blocks.

    Raises:
        OSError: retention has just removed a part of it.
    """
    end = commit_log.end
    # Never 0, for which RocketMQ's master sends its newest file.
    start = min(max(end - _SIZE, commit_log.min_offset, 1), end)
    parts: list[memoryview] = []
    at = start
    while at < end:
        part = commit_log.read_block(at, 1, end - at, may_block=True)
        if part is None:
            raise OSError(f"the log has no bytes at {at} any more")
        parts.append(part)
        at += len(part)
    return Overlap(start, b"".join(parts))


def _is_continued(known: bytes, sent: bytes) -> bool:
    """Whether one of the two begins with the other."""
    return known.startswith(sent) or sent.startswith(known)
