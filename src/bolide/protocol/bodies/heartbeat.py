"""The heartbeat that a client sends to a broker."""

from enum import StrEnum

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class ConsumeType(StrEnum):
    """How a consumer receives messages. The order is Java's."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether the members of a group share the messages or each gets all. The order is Java's."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"  # newer than 5.3


class ConsumeFromWhere(StrEnum):
    """Where a new group starts; the second to fourth are deprecated. The order is Java's."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Subscription(Struct, kw_only=True):
    """A subscription to one topic; the version is its creation time (`SubscriptionData`)."""

    topic: str
    sub_string: str = "*"
    expression_type: str = "TAG"
    sub_version: Long = 0
    tags_set: list[str] = field(default_factory=list)
    code_set: list[Int] = field(default_factory=list)
    class_filter_mode: bool = False


class ConsumerGroup(Struct, kw_only=True):
    """A group that the client is a consumer of (`ConsumerData`). C++ clients write ordinals."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[Subscription] = field(default_factory=list)
    unit_mode: bool = False


class ProducerGroup(Struct):
    """A group that the client is a producer of (`ProducerData`)."""

    group_name: str


class Heartbeat(Struct, kw_only=True):
    """HEART_BEAT. A nonzero fingerprint requests V2; `without_sub` then means no change."""

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerGroup] = field(default_factory=list)
    consumer_data_set: list[ConsumerGroup] = field(default_factory=list)
    heartbeat_fingerprint: Int = 0
    without_sub: bool = False


class ClientCheck(Struct, kw_only=True):
    """CHECK_CLIENT_CONFIG: asks whether the broker supports a subscription."""

    client_id: str
    group: str
    subscription_data: Subscription
    namespace: str | None = None
