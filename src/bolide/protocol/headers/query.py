"""Headers of lookups of single messages and queue entries."""

from typing import Final

from msgspec import field

from bolide.protocol.header import Header, Int, Long


class IndexType:
    """What the key of a QUERY_MESSAGE is; 4.9 knows no other types than `KEYS`."""

    KEYS: Final = "K"
    TAGS: Final = "T"


class QueryMessageHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE, by a user's key, by the tags or by the unique id."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None
    by_unique_key: bool = field(name="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageReply(Header, frozen=True):
    """End of the key index."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageHeader(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID; the offset is a physical offset."""

    topic: str | None = None
    offset: Long


class ConsumeQueueHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_QUEUE."""

    topic: str
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None
