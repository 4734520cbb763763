"""Headers of POP consumption (5.x)."""

from bolide.protocol.header import Header, Int, Long


class PopHeader(Header, frozen=True, kw_only=True):
    """POP_MESSAGE. Queue -1 means all; init mode 0 starts at the queue's start, 1 at its end."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    max_msg_nums: Int
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: Int = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopReply(Header, frozen=True, kw_only=True):
    """Answer to POP_MESSAGE and PEEK_MESSAGE; clients read `rest_num` whatever the code."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


NOTHING_POPPED = PopReply(pop_time=0, invisible_time=0, revive_qid=0, rest_num=0)
"""Header of a refused pop or peek."""


class AckHeader(Header, frozen=True):
    """ACK_MESSAGE; `extra_info` is the message's POP_CK."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long


class ChangeInvisibleTimeHeader(Header, frozen=True):
    """CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long


class ChangeInvisibleTimeReply(Header, frozen=True):
    """The values from which the client builds its new POP_CK."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int


class PeekHeader(Header, frozen=True):
    """PEEK_MESSAGE."""

    topic: str
    queue_id: Int
    max_msg_nums: Int
    consumer_group: str


class NotificationHeader(Header, frozen=True, kw_only=True):
    """NOTIFICATION: a long poll that ends when messages can be popped."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    poll_time: Long = 0
    born_time: Long = 0
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationReply(Header, frozen=True, kw_only=True):
    """Answer to NOTIFICATION."""

    has_msg: bool
    polling_full: bool = False


class PollingHeader(Header, frozen=True):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int = 0


class PollingReply(Header, frozen=True):
    """Number of pops pending on this queue."""

    polling_num: Int
