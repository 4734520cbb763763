"""What a reset does, or did, to the committed offset of a group in one queue."""

from collections.abc import Iterable
from dataclasses import dataclass

from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.stats import QueueProgress
from bolide.protocol.bodies.topics import TopicStats


@dataclass(frozen=True, slots=True)
class Rollback:
    """The result of a reset for one queue."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    """The offset of the requested time."""
    reset_offset: int
    """The committed offset after the reset."""


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A change of the committed offset of a group in one queue, before it is made."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    before: int | None
    """None if the group has not committed an offset in this queue."""
    after: int

    @property
    def redelivered(self) -> int:
        """The number of stored messages that will be delivered again."""
        return 0 if self.before is None else max(self._stored(self.before, self.after), 0)

    @property
    def skipped(self) -> int | None:
        """The number of stored messages that will never be delivered.

        None if it is not known: a group without an offset begins where its first member says.
        """
        if self.before is None:
            return None if self.skipped_at_most else 0
        return self.skipped_at_most

    @property
    def skipped_at_most(self) -> int:
        """As `skipped`; of a group without an offset, if it would begin with the oldest message."""
        before = self.min_offset if self.before is None else self.before
        return max(self._stored(self.after, before), 0)

    def _stored(self, end: int, begin: int) -> int:
        """The number of messages from one offset to another that the queue has."""
        return self._limited(end) - self._limited(begin)

    def _limited(self, offset: int) -> int:
        return max(min(offset, self.max_offset), self.min_offset)


def beginnings(stats: TopicStats) -> Iterable[tuple[MessageQueue, QueueProgress]]:
    """The progress of a group that starts with the oldest message of each queue."""
    for queue, ends in sorted(stats.offset_table.items()):
        yield (
            queue,
            QueueProgress(broker_offset=ends.max_offset, consumer_offset=ends.min_offset),
        )
