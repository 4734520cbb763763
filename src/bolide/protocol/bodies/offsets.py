"""Offsets of consumer groups, by queue."""

from msgspec import field

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class ConsumerOffsets(Struct, kw_only=True):
    """Answer to GET_ALL_CONSUMER_OFFSET, by "topic@group" and queue id."""

    offset_table: dict[str, dict[int, Long]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class ResetOffsets(Struct, kw_only=True):
    """Answer to INVOKE_BROKER_TO_RESET_OFFSET, body of RESET_CONSUMER_CLIENT_OFFSET."""

    offset_table: dict[MessageQueue, Long] = field(default_factory=dict)


class QueueOffset(Struct, kw_only=True):
    """A queue and its offset (`MessageQueueForC`)."""

    topic: str
    broker_name: str
    queue_id: Int
    offset: Long


class ResetOffsetsForC(Struct, kw_only=True):
    """Body of RESET_CONSUMER_CLIENT_OFFSET to a C++ client, which has no maps by queue."""

    offset_table: list[QueueOffset] = field(default_factory=list)


class ConsumerStatus(Struct, kw_only=True):
    """Answer to 221, where the client fills the queues, and to 223, where the broker fills them
    by client id."""

    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Long]] = field(default_factory=dict)


class CorrectionOffsets(Struct, kw_only=True):
    """Answer to QUERY_CORRECTION_OFFSET, by queue id."""

    correction_offsets: dict[int, Long] = field(default_factory=dict)


class QueueTimeSpan(Struct, kw_only=True):
    """Store times of a queue's messages; the texts repeat them in readable form."""

    message_queue: MessageQueue
    min_time_stamp: Long = 0
    max_time_stamp: Long = 0
    consume_time_stamp: Long = 0
    delay_time: Long = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class ConsumeTimeSpans(Struct, kw_only=True):
    """Answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)
