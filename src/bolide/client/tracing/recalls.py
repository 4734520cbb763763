"""What recalls become in the trace, as Java's clients tell it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bolide.client.tracing.sender import TraceSender
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.refusals import Refusal
from bolide.protocol.trace import DEFAULT_REGION, RECALL, TraceRecord


@contextmanager
def traced_recall(
    sender: TraceSender | None, group: str, topic: str, handle: str
) -> Iterator[None]:
    """Surrounds a recall; told of once the broker has answered."""
    began = time.time_ns() // 1_000_000
    try:
        yield
    except Refusal:
        _tell(sender, began, group, topic, handle, success=False)
        raise
    _tell(sender, began, group, topic, handle, success=True)


def _tell(
    sender: TraceSender | None, began: int, group: str, topic: str, handle: str, *, success: bool
) -> None:
    if sender is None or sender.is_told_on(topic):
        return
    message_id = RecallHandle.decode(handle).unique_id
    sender.add(
        TraceRecord(
            kind=RECALL,
            time_ms=began,
            region=DEFAULT_REGION,
            group=group,
            topic=topic,
            message_id=message_id,
            success=success,
        )
    )
