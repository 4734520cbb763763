"""Client connections, and the state that a running consumer reports."""

from enum import StrEnum

from msgspec import field

from bolide.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    Subscription,
)
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class ConsumerIds(Struct, kw_only=True):
    """Answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = field(default_factory=list)


class Connection(Struct, kw_only=True):
    """One client of a group."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    version: Int = 0


class ConsumerConnections(Struct, kw_only=True):
    """Answer to GET_CONSUMER_CONNECTION_LIST; mqadmin fails without the consume type."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, Subscription] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnections(Struct, kw_only=True):
    """Answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = field(default_factory=list)


class ConnectedProducer(Struct, kw_only=True):
    """One producer of a broker (`ProducerInfo`)."""

    client_id: str | None = None
    remote_ip: str | None = field(name="remoteIP", default=None)
    language: str | None = None
    version: Int = 0
    last_update_timestamp: Long = 0


class ProducerTable(Struct, kw_only=True):
    """Answer to GET_ALL_PRODUCER_INFO, by group."""

    data: dict[str, list[ConnectedProducer]] = field(default_factory=dict)


class HeldQueue(Struct, kw_only=True):
    """A queue assigned to a consumer and its buffered messages (`ProcessQueueInfo`)."""

    commit_offset: Long = 0
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: Int = 0
    cached_msg_size_in_mib: Int = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Long = 0
    transaction_msg_max_offset: Long = 0
    transaction_msg_count: Int = 0
    locked: bool = False
    try_unlock_times: Long = 0
    last_lock_timestamp: Long = 0
    droped: bool = False  # RocketMQ's spelling
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


class HeldPopQueue(Struct, kw_only=True):
    """A queue that a consumer pops from (`PopProcessQueueInfo`)."""

    wait_ack_count: Int = 0
    droped: bool = False
    last_pop_timestamp: Long = 0


class TopicConsumption(Struct, kw_only=True):
    """Consumption statistics of one topic: times in milliseconds, rates per second."""

    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Long = 0


class RunningConsumer(Struct, kw_only=True):
    """A consumer's answer to GET_CONSUMER_RUNNING_INFO (`ConsumerRunningInfo`)."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[Subscription] = field(default_factory=list)
    mq_table: dict[MessageQueue, HeldQueue] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, HeldPopQueue] = field(default_factory=dict)
    status_table: dict[str, TopicConsumption] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


class ConsumeVerdict(StrEnum):
    """The result of the listener for a message (`CMResult`)."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class DirectConsumption(Struct, kw_only=True):
    """A consumer's answer to CONSUME_MESSAGE_DIRECTLY."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeVerdict | None = None
    remark: str | None = None
    spent_time_mills: Long = 0


class ColdReadTally(Struct, kw_only=True):
    """What a group has read from the disk in this window (`AccAndTimeStamp`)."""

    cold_acc: Long = 0
    last_cold_read_time_mills: Long = 0
    create_time_mills: Long = 0


class ColdReadInfo(Struct, kw_only=True):
    """Answer to GET_COLD_DATA_FLOW_CTR_INFO."""

    runtime_table: dict[str, ColdReadTally] = field(default_factory=dict)
    config_table: dict[str, Long] = field(default_factory=dict)
    cg_cold_read_threshold: Long = 0
    global_cold_read_threshold: Long = 0
    global_acc: Long = 0
