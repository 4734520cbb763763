"""Headers about positions in queues and the offsets of consumer groups."""

from enum import StrEnum

from bolide.protocol.header import Header, Int, Long


class Boundary(StrEnum):
    """Which message a search by time returns if several have that time."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class QueryOffsetHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET. Unless disabled, a new group on a young queue starts at zero."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class OffsetReply(Header, frozen=True):
    """Reply with one offset: 14, 29, 30, 31."""

    offset: Long


class CommitOffsetHeader(Header, frozen=True):
    """UPDATE_CONSUMER_OFFSET, usually one-way."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class SearchOffsetHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: Boundary = Boundary.LOWER


class MaxOffsetHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET."""

    topic: str
    queue_id: Int
    committed: bool = True


class QueueHeader(Header, frozen=True):
    """GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int


class StoreTimeReply(Header, frozen=True):
    """Answer to GET_EARLIEST_MSG_STORETIME."""

    timestamp: Long


class ResetOffsetHeader(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET and, broker to client, RESET_CONSUMER_CLIENT_OFFSET.

    Queue -1 means all queues, timestamp -1 the end of the queue.
    """

    topic: str
    group: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool = False


class ConsumerStatusHeader(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS and, to the client, GET_CONSUMER_STATUS_FROM_CLIENT."""

    topic: str
    group: str
    client_addr: str | None = None  # a client id, in spite of its name


class CloneOffsetsHeader(Header, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class CorrectionOffsetHeader(Header, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET."""

    filter_groups: str | None = None
    compare_group: str
    topic: str
