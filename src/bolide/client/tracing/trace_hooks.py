"""Hooks that create trace records of sends, handler calls, recalls and transactions."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import NamedTuple
from uuid import uuid4

from bolide.client.consumer.handlers.handler import Outcome, Retry
from bolide.client.consumer.handlers.invocation import ConsumeContext
from bolide.client.producer.hooks import EndTransactionContext, SendContext, SendKind
from bolide.client.producer.results import SendStatus, TransactionState
from bolide.client.tracing.sender import TraceSender
from bolide.model.message import StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.refusals import Refusal
from bolide.protocol.trace import (
    DEFAULT_REGION,
    END_TRANSACTION,
    PUB,
    RECALL,
    SUB_AFTER,
    SUB_BEFORE,
    TraceRecord,
)

_STATE_KEY = "bolide-trace"
_TYPES = {SendKind.DELAYED: "Delay", SendKind.HALF: "TransHalf"}


class SendTrace:
    """A send hook; records the sends that a broker has answered."""

    def __init__(self, sender: TraceSender) -> None:
        self._sender = sender

    def before(self, context: SendContext) -> None:
        context.notes[_STATE_KEY] = _now_ms()

    def after(self, context: SendContext) -> None:
        result = context.result
        topic = context.messages[0].topic
        if result is None or not result.trace_on or self._sender.is_trace_topic(topic):
            return
        began: int = context.notes[_STATE_KEY]
        cost = (_now_ms() - began) // len(context.messages)
        offset_ids = result.offset_message_id.split(",")
        sent = zip_longest(context.messages, context.unique_ids, offset_ids)
        for message, unique_id, offset_id in sent:
            if message is None or unique_id is None:  # of a batch sent by `send_encoded`
                continue
            self._sender.add(
                TraceRecord(
                    kind=PUB,
                    time_ms=began,
                    region=result.region,
                    group=context.group,
                    topic=topic,
                    message_id=unique_id,
                    offset_message_id=offset_id,
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


class _Before(NamedTuple):
    """The record made before the handler was called."""

    request_id: str
    time_ms: int


class ConsumeTrace:
    """A consume hook.

    Args:
        group: the consumer group without namespace.
        timeout: seconds after which a handler call counts as timed out.
    """

    def __init__(self, sender: TraceSender, group: str, timeout: float) -> None:
        self._sender = sender
        self._group = group
        self._timeout = timeout

    def before(self, context: ConsumeContext) -> None:
        began = _Before(uuid4().hex.upper(), _now_ms())
        context.state[_STATE_KEY] = began
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
        began, outcome = context.state.get(_STATE_KEY), context.outcome
        if not isinstance(began, _Before) or outcome is None:
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
        return on and not self._sender.is_trace_topic(message.topic)


def _outcome(outcome: Outcome, success: bool, late: bool) -> str:
    if not success and not isinstance(outcome.error, Retry):
        return "EXCEPTION"
    if late:
        return "TIME_OUT"
    return "SUCCESS" if success else "FAILED"


@contextmanager
def traced_recall(
    sender: TraceSender | None, group: str, topic: str, handle: str
) -> Iterator[None]:
    """Surrounds a recall and records it once the broker has answered."""
    began = time.time_ns() // 1_000_000
    try:
        yield
    except Refusal:
        _record_recall(sender, began, group, topic, handle, success=False)
        raise
    _record_recall(sender, began, group, topic, handle, success=True)


def _record_recall(
    sender: TraceSender | None, began: int, group: str, topic: str, handle: str, *, success: bool
) -> None:
    if sender is None or sender.is_trace_topic(topic):
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


_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",  # Java's spelling
}


class EndTransactionTrace:
    """An end-transaction hook."""

    def __init__(self, sender: TraceSender) -> None:
        self._sender = sender

    def ended(self, context: EndTransactionContext) -> None:
        message = context.message
        if self._sender.is_trace_topic(message.topic):
            return
        self._sender.add(
            TraceRecord(
                kind=END_TRANSACTION,
                time_ms=time.time_ns() // 1_000_000,
                region=message.properties.get(PropertyName.REGION) or DEFAULT_REGION,
                group=context.group,
                topic=message.topic,
                message_id=context.unique_id,
                tags=message.tags,
                keys=message.properties.get(PropertyName.KEYS),
                store_host=context.broker_address,
                message_type="TransCommit",
                transaction_id=context.transaction_id,
                transaction_state=_STATES[context.state],
                from_check=context.from_check,
            )
        )
