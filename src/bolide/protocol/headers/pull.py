"""Headers of pulls."""

from bolide.protocol.header import Header, Int, Long


class PullHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE.

    The flag's bits: 1 commit, 2 suspend, 4 subscription in the request, 8 class filter, 16 lite.
    """

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long = -1
    suspend_timeout_millis: Long = 0
    subscription: str | None = None
    sub_version: Long = 0
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None  # RocketMQ's spelling


class PullReply(Header, frozen=True, kw_only=True):
    """Answer to a pull, required also if no message was found."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None
