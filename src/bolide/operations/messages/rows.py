"""Rows of lists, made of stored messages."""

from bolide.model.message import StoredMessage
from bolide.operations.messages.bodies import kind_of, preview_of
from bolide.operations.messages.views import MessageRow


def row_of(message: StoredMessage) -> MessageRow:
    """The row of a message; its body is not kept."""
    return MessageRow(
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        topic=message.topic,
        broker=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        tags=message.tags,
        keys=list(message.keys),
        born_ms=message.born_timestamp,
        stored_ms=message.store_timestamp,
        size=len(message.body),
        kind=kind_of(message.body),
        preview=preview_of(message.body),
        reconsume_times=message.reconsume_times,
    )
