"""Headers about the topics of a broker."""

from msgspec import field

from bolide.protocol.header import Header, Int


class CreateTopicHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC and UPDATE_AND_CREATE_STATIC_TOPIC.

    `attributes` lists changes, as in "+message.type=FIFO,-reserve.time".
    """

    topic: str
    default_topic: str = ""
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class TopicHeader(Header, frozen=True):
    """A request about one topic: 202, 215, 300."""

    topic: str


class TopicConfigHeader(Header, frozen=True, kw_only=True):
    """GET_TOPIC_CONFIG; `logical` asks for the queue mapping of a static topic too."""

    topic: str
    logical: bool = field(name="lo", default=False)


class AllTopicsHeader(Header, frozen=True, kw_only=True):
    """GET_ALL_TOPIC_CONFIG from a slave that reads page by page (develop); others send nothing."""

    topic_seq: Int | None = None
    data_version: str | None = None
    max_topic_num: Int | None = None


class AllTopicsReply(Header, frozen=True):
    """Number of all topics; a peer that reads pages stops when it has so many."""

    total_topic_num: Int | None = None
