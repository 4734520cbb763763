"""What the ends of transactions become in the trace, as Java's clients tell it."""

import time

from bolide.client.producing.hooks import EndTransactionContext
from bolide.client.producing.results import TransactionState
from bolide.client.tracing.sender import TraceSender
from bolide.model.properties import PropertyName
from bolide.protocol.trace import DEFAULT_REGION, END_TRANSACTION, TraceRecord

_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",  # Java's spelling
}


class EndTransactionTrace:
    """A hook of ended transactions."""

    def __init__(self, sender: TraceSender) -> None:
        self._sender = sender

    def ended(self, context: EndTransactionContext) -> None:
        message = context.message
        if self._sender.is_told_on(message.topic):
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
