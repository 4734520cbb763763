"""Sends to topics with `cleanup.policy=COMPACTION`: what they must have and what they may lack."""

from collections.abc import Iterable

from bolide.broker.metadata.topic_attributes import is_compacted
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.record import RecordDraft, decode_property_bytes
from bolide.protocol.refusals import MessageIllegal

_ROOM = 1024
"""Bytes of a record besides body, topic and the sender's properties: its head, and what the broker
adds to the properties."""


def deletes_key(header: SendHeader, topic: TopicConfig | None) -> bool:
    """Whether a message without a body deletes its key; RocketMQ refuses it before it looks."""
    return topic is not None and is_compacted(topic) and not header.batch


def check_compacted(drafts: Iterable[RecordDraft], max_size: int) -> None:
    """Check that a compaction log can keep each message: it has keys and fits into a file.

    RocketMQ accepts a message without keys inside a batch and never delivers it, and loses one that
    is larger than a file of the log; both are refused here.

    Raises:
        MessageIllegal: a message has no keys or is too large.
    """
    for draft in drafts:
        properties = decode_property_bytes(draft.properties)
        if not properties.get(PropertyName.KEYS, "").strip():
            raise MessageIllegal("Required message key is missing")
        size = len(draft.body) + len(draft.topic) + len(draft.properties) + _ROOM
        if size > max_size:
            raise MessageIllegal(
                f"a message of about {size} bytes does not fit into a compaction log file: send"
                " less, or raise compactionMappedFileSize"
            )
