"""What consumptions become in the trace, as Java's clients tell it."""

import time
from typing import NamedTuple
from uuid import uuid4

from bolide.client.consuming.consume import Outcome, Retry
from bolide.client.consuming.consumption import ConsumeContext
from bolide.client.tracing.sender import TraceSender
from bolide.model.message import StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol.trace import DEFAULT_REGION, SUB_AFTER, SUB_BEFORE, TraceRecord

_NOTE = "bolide-trace"


class _Began(NamedTuple):
    """What was told before the handler was called."""

    request_id: str
    time_ms: int


class ConsumeTrace:
    """A consume hook.

    Args:
        group: of the consumer, as its user calls it.
        timeout: seconds after which a consumption counts as timed out.
    """

    def __init__(self, sender: TraceSender, group: str, timeout: float) -> None:
        self._sender = sender
        self._group = group
        self._timeout = timeout

    def before(self, context: ConsumeContext) -> None:
        began = _Began(uuid4().hex.upper(), _now_ms())
        context.state[_NOTE] = began
        for message in filter(self._is_traced, context.messages):
            self._sender.add(
                TraceRecord(
                    kind=SUB_BEFORE,
                    time_ms=began.time_ms,
                    region=message.properties.get(PropertyName.REGION, DEFAULT_REGION),
                    group=self._group,
                    request_id=began.request_id,
                    message_id=message.message_id,
                    retry_times=message.reconsume_times,
                    keys=message.properties.get(PropertyName.KEYS),
                )
            )

    def after(self, context: ConsumeContext) -> None:
        began, outcome = context.state.get(_NOTE), context.outcome
        if not isinstance(began, _Began) or outcome is None:
            return
        now = _now_ms()
        took = now - began.time_ms
        for number, message in enumerate(context.messages):
            if self._is_traced(message):
                success = number < outcome.done
                self._sender.add(
                    TraceRecord(
                        kind=SUB_AFTER,
                        request_id=began.request_id,
                        message_id=message.message_id,
                        cost_ms=took // len(context.messages),
                        success=success,
                        keys=message.properties.get(PropertyName.KEYS),
                        outcome=_outcome(outcome, success, took >= self._timeout * 1000),
                        time_ms=now,
                        group=self._group,
                    )
                )

    def _is_traced(self, message: StoredMessage) -> bool:
        on = message.properties.get(PropertyName.TRACE_ON) != "false"
        return on and not self._sender.is_told_on(message.topic)


def _outcome(outcome: Outcome, success: bool, late: bool) -> str:
    if not success and not isinstance(outcome.error, Retry):
        return "EXCEPTION"
    if late:
        return "TIME_OUT"
    return "SUCCESS" if success else "FAILED"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
