"""Bodies about consumer groups."""

from enum import StrEnum

from msgspec import field

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class RetryPolicyType(StrEnum):
    """Which of the two members of a `RetryPolicy` applies."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetry(Struct, kw_only=True):
    """Exponential back-off, in milliseconds."""

    initial: Long = 5_000
    max: Long = 7_200_000
    multiplier: Long = 2


class CustomizedRetry(Struct, kw_only=True):
    """A list of delays, in milliseconds; Java's default delays if absent."""

    next: list[Long] | None = None


class RetryPolicy(Struct, kw_only=True):
    """Back-off of a failed message before its next delivery."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetry | None = None
    customized_retry_policy: CustomizedRetry | None = None


class SimpleSubscription(Struct, kw_only=True):
    """A subscription that is part of the group's configuration."""

    topic: str
    expression_type: str | None = None
    expression: str | None = None
    version: Long = 0


class GroupConfig(Struct, kw_only=True):
    """Configuration of a group at a broker (`SubscriptionGroupConfig`)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    subscription_data_set: list[SimpleSubscription] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class GroupConfigList(Struct):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[GroupConfig]


class GroupConfigTable(Struct, kw_only=True):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG; `forbidden_table` is group to topic to bits."""

    subscription_group_table: dict[str, GroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class GroupForbidden(Struct, kw_only=True):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN."""

    topic: str
    group: str
    readable: bool | None = None


class GroupList(Struct):
    """Answer to QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str] = field(default_factory=list)


class GroupSubscription(Struct, kw_only=True):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str | None = None
    topic: str | None = None
    subscription_data: Subscription | None = None
