"""Headers about the consumer groups of a broker."""

from bolide.protocol.header import Header, Int


class GroupHeader(Header, frozen=True):
    """A request about one group: 343, 352."""

    group: str


class TopicGroupHeader(Header, frozen=True):
    """A request about one group and topic: 303, 345."""

    topic: str
    group: str


REMOVE_OFFSET = "removeOffset"
"""The name of `clean_offset` in RocketMQ 4.9."""


class DeleteGroupHeader(Header, frozen=True, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    clean_offset: bool = False


class GroupForbiddenHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN; without `readable` it is a query."""

    group: str
    topic: str
    readable: bool | None = None


class AllGroupsHeader(Header, frozen=True, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG, page by page in develop; others send nothing."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


class AllGroupsReply(Header, frozen=True):
    """Number of all groups; a peer that reads pages stops when it has so many."""

    total_group_num: Int | None = None


class ConsumeStatsHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUME_STATS; `topic_list` is separated by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
