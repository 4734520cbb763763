"""Bodies and files about static topics as a whole."""

from msgspec import field

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.queues import QueueMappingDetail
from bolide.protocol.bodies.topics import MappedTopicConfig
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Long


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
