"""Checks of messages for topics with `cleanup.policy=COMPACTION`."""

from collections.abc import Iterable

from bolide.model.properties import PropertyName
from bolide.protocol.record import RecordDraft, decode_property_bytes
from bolide.protocol.refusals import MessageIllegal

_ROOM = 1024
"""Bytes of a record besides body, topic and the sender's properties: its head, and what the broker
adds to the properties."""


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
