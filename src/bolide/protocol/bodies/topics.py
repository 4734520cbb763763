"""Bodies about topics: configuration, tables, statistics."""

from enum import StrEnum

from msgspec import field

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.queues import QueueMapping, QueueMappingDetail
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long

MAX_QUEUES = 65_536
"""Maximum number of queues of a topic: each needs files, and clients list all of them."""


class TopicFilterType(StrEnum):
    """Whether a message has one tag or several. The order is Java's."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(Struct, kw_only=True):
    """Configuration of a topic at a broker; 4.9 has no `attributes`."""

    topic_name: str
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


class MappedTopicConfig(TopicConfig, kw_only=True):
    """Answer to GET_TOPIC_CONFIG; only static topics have a mapping."""

    mapping_detail: QueueMappingDetail | None = None


class TopicConfigList(Struct):
    """UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig]


class TopicConfigTable(Struct, kw_only=True):
    """All topics of a broker, without the mapping of static ones (4.9)."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class MappedTopicConfigTable(TopicConfigTable, kw_only=True):
    """All topics of a broker. Answer to GET_ALL_TOPIC_CONFIG, part of a registration."""

    topic_queue_mapping_info_map: dict[str, QueueMapping] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, QueueMappingDetail] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)


class TopicOffset(Struct, kw_only=True):
    """Minimum and maximum offset of a queue, and its last update time."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


class TopicStats(Struct, kw_only=True):
    """Answer to GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class QueueMappingTable(Struct, kw_only=True):
    """All queue mappings of a broker, `config/topicQueueMapping.json`."""

    topic_queue_mapping_info_map: dict[str, QueueMappingDetail] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class MappingPlan(Struct, kw_only=True):
    """The mapping of a static topic on all brokers (`TopicRemappingDetailWrapper`).

    What `updateStaticTopic` and `remappingStaticTopic` compute, and the content of the files
    that they write and that `--mapFile` reads.
    """

    topic: str
    type: str
    epoch: Long
    broker_config_map: dict[str, MappedTopicConfig]
    broker_to_map_in: list[str] = field(default_factory=list)
    broker_to_map_out: list[str] = field(default_factory=list)
