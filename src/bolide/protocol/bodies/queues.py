"""The queue mapping of static topics, and entries of a consume queue."""

from msgspec import field

from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class QueueMapping(Struct, kw_only=True):
    """Current location of the logical queues of a static topic, as a NameServer stores it."""

    topic: str
    scope: str = "__global__"
    total_queues: Int = 0
    bname: str
    epoch: Long = 0
    dirty: bool = False
    curr_id_map: dict[int, Int] = field(default_factory=dict)


class QueueMappingItem(Struct, kw_only=True):
    """The range of a logical queue in one physical queue (`LogicQueueMappingItem`)."""

    gen: Int = 0
    queue_id: Int = 0
    bname: str
    logic_offset: Long = 0
    start_offset: Long = 0
    end_offset: Long = -1
    time_of_start: Long = -1
    time_of_end: Long = -1


class QueueMappingDetail(QueueMapping, kw_only=True):
    """The mapping with its history. Body of UPDATE_AND_CREATE_STATIC_TOPIC."""

    hosted_queues: dict[int, list[QueueMappingItem]] = field(default_factory=dict)


class ConsumeQueueEntry(Struct, kw_only=True):
    """One entry of a consume queue (`ConsumeQueueData`)."""

    physic_offset: Long = 0
    physic_size: Int = 0
    tags_code: Long = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueSlice(Struct, kw_only=True):
    """Answer to QUERY_CONSUME_QUEUE."""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueEntry] | None = None
    max_queue_index: Long = 0
    min_queue_index: Long = 0


class QueueWriteCheck(Struct, kw_only=True):
    """Answer to CHECK_ROCKSDB_CQ_WRITE_PROGRESS; status 0 means success."""

    check_result: str | None = None
    check_status: Int = 0
