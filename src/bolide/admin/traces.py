"""Message traces: what clients told of a message."""

from dataclasses import dataclass

from bolide.admin.errors import MessageNotFound
from bolide.admin.messages import DEFAULT_LIMIT, Messages
from bolide.model.names import TRACE_TOPIC
from bolide.protocol.trace import (
    END_TRANSACTION,
    PUB,
    RECALL,
    SUB_AFTER,
    SUB_BEFORE,
    TraceRecord,
    read_records,
)

_STEPS = (PUB, END_TRANSACTION, RECALL, SUB_BEFORE, SUB_AFTER)
"""In the order in which they happen: all may be within the same millisecond."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One record of a message's trace."""

    record: TraceRecord
    client_host: str
    """The address that the record came from."""
    stored_ms: int
    """When the broker stored it, by its own clock."""

    @property
    def time_ms(self) -> int:
        """When it happened, by the client's clock; clients before 4.8 do not tell it of all."""
        return self.stored_ms if self.record.time_ms is None else self.record.time_ms


class Traces:
    """Traces as our clients write them, and Java's of all ages."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    async def of(
        self,
        message_id: str,
        *,
        topic: str = TRACE_TOPIC,
        begin: int = 0,
        end: int | None = None,
        limit: int = DEFAULT_LIMIT,
        cluster: str | None = None,
    ) -> list[Traced]:
        """The records of one message in the order of time.

        Args:
            message_id: the id that its sender was told.
            topic: the trace topic.
            begin: trace messages stored from then on, in ms.
            end: and until then.
            limit: trace messages to look at, of each broker.
            cluster: only the brokers of this one.

        Raises:
            MessageNotFound: nobody told of it.
            Refusal: there is no such topic.
        """
        found = await self._messages.by_key(
            topic, message_id, limit=limit, begin=begin, end=end, cluster=cluster
        )
        traced = [
            Traced(record, message.born_host.ip, message.store_timestamp)
            for message in found
            for record in read_records(message.body.decode("utf-8", "replace"))
            if isinstance(record, TraceRecord) and _tells_of(record, message_id)
        ]
        if not traced:  # it is the key of another message, or nobody can read what was told
            raise MessageNotFound(topic, f"id {message_id}")
        return sorted(traced, key=lambda each: (each.time_ms, _STEPS.index(each.record.kind)))


def _tells_of(record: TraceRecord, message_id: str) -> bool:
    """Java's clients tell of a batch as one, with commas between the ids."""
    return message_id in {record.message_id, *(record.message_id or "").split(",")}
