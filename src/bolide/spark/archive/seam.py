"""Where the log goes on from an archive, and whether it does."""

from collections.abc import Mapping

from bolide.arrow.offsets import Bounds, QueueRange
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.errors import SeamGap
from bolide.spark.archive.manifest import State


def find_shorter(state: State, bounds: Mapping[MessageQueue, Bounds]) -> list[SeamGap]:
    """Queues that end before the archive of them does: they are not the same queues."""
    return [
        SeamGap(queue, state.next_of(queue), oldest, end)
        for queue, (oldest, end) in sorted(bounds.items())
        if end < state.next_of(queue)
    ]


def refuse_other_log(state: State, bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises SeamGap if a queue ends before the archive of it does."""
    for gap in find_shorter(state, bounds):
        raise gap


def refuse_hole(state: State, bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises SeamGap if messages between archive and log are in neither."""
    refuse_other_log(state, bounds)
    known = {*state.begin, *state.covered}
    for queue, (oldest, end) in sorted(bounds.items()):
        if queue in known and oldest > state.next_of(queue):
            raise SeamGap(queue, state.next_of(queue), oldest, end)


def live_start(state: State, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
    """From where to read queues so that together with the archive each message comes once."""
    return {queue: max(oldest, state.next_of(queue)) for queue, (oldest, _) in bounds.items()}


def live_before(state: State, bounds: Mapping[MessageQueue, Bounds]) -> list[QueueRange]:
    """What the log has from before the archive: older than its start, or deleted from it."""
    firsts = {queue: state.next_of(queue) for queue in bounds}
    for file in state.files_of({queue.topic for queue in bounds}):
        for span in file.spans:
            queue = file.queue_of(span)
            if queue in firsts:
                firsts[queue] = min(firsts[queue], span.first)
    return [
        QueueRange(queue, oldest, max(oldest, min(firsts[queue], end)))
        for queue, (oldest, end) in sorted(bounds.items())
    ]
