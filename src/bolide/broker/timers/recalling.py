"""Takes back what waits, RocketMQ's way: by a message that is due with it and names it."""

from bolide.broker.timers.hand import recall_key
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import RecordDraft

_TAG = "_RECALL_TAG_"
_BODY = b"0"


def recall_draft(  # noqa: PLR0913  what it names, and who says so
    topic: str,
    unique_id: str,
    *,
    names_topic: bool,
    out_ms: int,
    group: str | None,
    born_ms: int,
    born_host: bytes,
    store_host: bytes,
) -> RecordDraft:
    """What takes back the message of a topic that waits until a time in milliseconds."""
    properties = {
        PropertyName.TAGS: _TAG,
        PropertyName.TIMER_DELETE_UNIQUE_ID: (
            recall_key(topic, unique_id) if names_topic else unique_id
        ),
        PropertyName.UNIQUE_ID: unique_id,
        PropertyName.TIMER_DELIVER_MS: str(out_ms + 1),
        PropertyName.BORN_TIMESTAMP: str(born_ms),
        PropertyName.TIMER_OUT_MS: str(out_ms),
        PropertyName.REAL_TOPIC: topic,
        PropertyName.REAL_QUEUE_ID: "0",
    }
    if group:
        properties[PropertyName.PRODUCER_GROUP] = group
    text = encode_properties(properties).encode()
    return RecordDraft(TIMER_TOPIC.encode(), _BODY, text, 0, born_ms, born_host, store_host)
