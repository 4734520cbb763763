"""What sends become in the trace, as Java's clients tell it."""

import time
from itertools import zip_longest

from bolide.client.producing.hooks import SendContext, SendKind
from bolide.client.producing.results import SendStatus
from bolide.client.tracing.sender import TraceSender
from bolide.model.properties import PropertyName
from bolide.protocol.trace import PUB, TraceRecord

_NOTE = "bolide-trace"
_TYPES = {SendKind.DELAYED: "Delay", SendKind.HALF: "TransHalf"}


class SendTrace:
    """A send hook. A send is told of when the broker has answered it, and no other one."""

    def __init__(self, sender: TraceSender) -> None:
        self._sender = sender

    def before(self, context: SendContext) -> None:
        context.notes[_NOTE] = _now_ms()

    def after(self, context: SendContext) -> None:
        result = context.result
        topic = context.messages[0].topic
        if result is None or not result.trace_on or self._sender.is_told_on(topic):
            return
        began: int = context.notes[_NOTE]
        cost = (_now_ms() - began) // len(context.messages)
        places = result.offset_message_id.split(",")
        for message, unique_id, place in zip_longest(context.messages, context.unique_ids, places):
            if message is None or unique_id is None:  # of a batch that its sender encoded
                continue
            self._sender.add(
                TraceRecord(
                    kind=PUB,
                    time_ms=began,
                    region=result.region,
                    group=context.group,
                    topic=topic,
                    message_id=unique_id,
                    offset_message_id=place,
                    tags=message.tags,
                    keys=message.properties.get(PropertyName.KEYS),
                    store_host=context.broker_address,
                    body_length=len(message.body),
                    cost_ms=cost,
                    message_type=_TYPES.get(context.kind, "Normal"),
                    success=result.status is SendStatus.SEND_OK,
                )
            )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
