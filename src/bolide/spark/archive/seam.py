"""Where the log goes on from an archive, and whether it does."""

from collections.abc import Mapping

from bolide.arrow.ranges import Bounds
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.errors import SeamGap
from bolide.spark.archive.manifest import State


def refuse_other_log(state: State, bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises SeamGap if a queue ends before the archive of it does: it is not the same queue."""
    for queue, (oldest, end) in sorted(bounds.items()):
        if queue in state.covered and end < state.covered[queue]:
            raise SeamGap(queue, state.covered[queue], oldest, end)


def refuse_hole(state: State, bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises SeamGap if messages between archive and log are in neither."""
    refuse_other_log(state, bounds)
    for queue, (oldest, end) in sorted(bounds.items()):
        if queue in state.covered and oldest > state.covered[queue]:
            raise SeamGap(queue, state.covered[queue], oldest, end)


def live_start(state: State, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
    """From where to read queues so that together with the archive each message comes once."""
    return {
        queue: max(oldest, state.covered.get(queue, 0)) for queue, (oldest, _) in bounds.items()
    }
