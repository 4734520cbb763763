"""What each request is for: the one table that says which requests administer a server.

Without access control, requests that administer are taken from loopback only. A test holds the
table to `RequestCode`: every code has exactly one purpose.

The line between the purposes is whom a request can harm. A client that sends, acknowledges or
commits an offset (UPDATE_CONSUMER_OFFSET) names its own group, though without access control it may
name another. A heartbeat and a send may create a group and a topic. UNREGISTER_CLIENT removes only
memberships of the connection it arrives on, UNLOCK_BATCH_MQ only locks of the client it names.

Brokers speak to NameServers for themselves. REGISTER_BROKER may replace the address of another
broker of the same name and id, since that is how a replica takes over. UNREGISTER_BROKER and
REGISTER_TOPIC_IN_NAMESRV, which 5.x brokers send for single topics, are taken only from the host
that registered the broker, see `namesrv.handlers`. QUERY_DATA_VERSION counts as a heartbeat.

Requests that list accounts, or return the source of filter functions, administer too, although
they only read.
"""

from enum import Enum

from bolide.model.names import reply_topic
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame


class Purpose(Enum):
    """What a request is for."""

    MESSAGING = "messaging"
    """Clients send, receive, acknowledge, and tell where they are."""
    QUERY = "query"
    """Reads routes, settings, statistics or messages; changes nothing."""
    CLUSTER = "cluster"
    """Servers register, replicate and talk to a controller."""
    ADMINISTRATION = "administration"
    """Changes, deletes or runs something."""
    TO_CLIENT = "to client"
    """Sent by brokers; clients serve it."""


_CODES = {
    Purpose.MESSAGING: (
        Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE,
        Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION, Code.RECALL_MESSAGE,
        Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE,
        Code.POP_MESSAGE, Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE, Code.PEEK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME, Code.NOTIFICATION, Code.POLLING_INFO,
        Code.POP_LITE_MESSAGE, Code.LITE_SUBSCRIPTION_CTL, Code.ACK_LITE_MESSAGE,
        Code.UPDATE_CONSUMER_OFFSET, Code.QUERY_CONSUMER_OFFSET,
        Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG,
        Code.GET_CONSUMER_LIST_BY_GROUP, Code.QUERY_ASSIGNMENT,
        Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ,
    ),
    Purpose.QUERY: (
        Code.QUERY_MESSAGE, Code.QUERY_BROKER_OFFSET, Code.VIEW_MESSAGE_BY_ID,
        Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET,
        Code.GET_EARLIEST_MSG_STORETIME,
        Code.GET_TOPIC_CONFIG_LIST, Code.GET_TOPIC_NAME_LIST, Code.GET_TOPIC_CONFIG,
        Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_CLIENT_CONFIG,
        Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE,
        Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_MEMBER_GROUP,
        Code.GET_TOPIC_STATS_INFO, Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_PRODUCER_CONNECTION_LIST, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_CONSUME_STATS, Code.WHO_CONSUME_THE_MESSAGE,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        Code.GET_TOPICS_BY_CLUSTER, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.QUERY_CONSUME_TIME_SPAN,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_CONSUMER_RUNNING_INFO, Code.QUERY_CORRECTION_OFFSET,
        Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Code.VIEW_BROKER_STATS_DATA,
        Code.GET_BROKER_CONSUME_STATS, Code.GET_NAMESRV_CONFIG, Code.QUERY_CONSUME_QUEUE,
        Code.GET_ALL_PRODUCER_INFO, Code.QUERY_TOPICS_BY_CONSUMER,
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG,
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, Code.GET_BROKER_HA_STATUS,
        Code.CONTROLLER_GET_METADATA_INFO, Code.CONTROLLER_GET_SYNC_STATE_DATA,
        Code.GET_BROKER_EPOCH_CACHE, Code.GET_CONTROLLER_CONFIG, Code.GET_COLD_DATA_FLOW_CTR_INFO,
        Code.BOLIDE_LIST_TIMERS, Code.BOLIDE_LIST_TRANSACTIONS,
        Code.BOLIDE_LIST_FILTER_FUNCTIONS, Code.BOLIDE_WHO_AM_I, Code.BOLIDE_CAN_I,
        Code.GET_BROKER_LITE_INFO, Code.GET_PARENT_TOPIC_INFO, Code.GET_LITE_TOPIC_INFO,
        Code.GET_LITE_CLIENT_INFO, Code.GET_LITE_GROUP_INFO,
    ),
    Purpose.CLUSTER: (
        Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT,
        Code.QUERY_DATA_VERSION, Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.EXCHANGE_BROKER_HA_INFO,
        Code.RESET_MASTER_FLUSH_OFFSET, Code.CONTROLLER_ELECT_MASTER,
        Code.CONTROLLER_ALTER_SYNC_STATE_SET, Code.CONTROLLER_REGISTER_BROKER,
        Code.CONTROLLER_GET_REPLICA_INFO, Code.NOTIFY_BROKER_ROLE_CHANGED,
        Code.CONTROLLER_GET_NEXT_BROKER_ID, Code.CONTROLLER_APPLY_BROKER_ID,
        Code.BOLIDE_GET_REPLICA_STATE,
    ),
    Purpose.ADMINISTRATION: (
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER, Code.DELETE_TOPIC_IN_NAMESRV,
        Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG, Code.UPDATE_CONTROLLER_CONFIG,
        Code.TRIGGER_DELETE_FILES, Code.DELETE_EXPIRED_COMMITLOG, Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC, Code.SET_COMMITLOG_READ_MODE,
        Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_INFO, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER,
        Code.SUSPEND_CONSUMER, Code.RESUME_CONSUMER, Code.ADJUST_CONSUMER_THREAD_POOL,
        Code.RESET_CONSUMER_OFFSET_IN_CONSUMER, Code.RESET_CONSUMER_OFFSET_IN_BROKER,
        Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET, Code.POP_ROLLBACK,
        Code.REGISTER_FILTER_SERVER, Code.REGISTER_MESSAGE_FILTER_CLASS,
        Code.CONSUME_MESSAGE_DIRECTLY, Code.RESUME_CHECK_HALF_MESSAGE,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, Code.SET_MESSAGE_REQUEST_MODE,
        Code.ADD_BROKER, Code.REMOVE_BROKER, Code.CLEAN_BROKER_DATA,
        Code.BROKER_CLOSE_CHANNEL_REQUEST, Code.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        Code.GET_BROKER_LIVE_INFO_REQUEST, Code.GET_SYNC_STATE_DATA_REQUEST,
        Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER, Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL,
        Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL, Code.SWITCH_TIMER_ENGINE,
        Code.BOLIDE_RECALL_TIMERS, Code.BOLIDE_RESOLVE_TRANSACTION,
        Code.BOLIDE_UPDATE_FILTER_FUNCTION, Code.BOLIDE_DELETE_FILTER_FUNCTION,
        Code.BOLIDE_GET_FILTER_FUNCTION, Code.BOLIDE_READ_AUDIT, Code.TRIGGER_LITE_DISPATCH,
    ),
    Purpose.TO_CLIENT: (
        Code.CHECK_TRANSACTION_STATE, Code.NOTIFY_CONSUMER_IDS_CHANGED,
        Code.RESET_CONSUMER_CLIENT_OFFSET, Code.GET_CONSUMER_STATUS_FROM_CLIENT,
        Code.PUSH_REPLY_MESSAGE_TO_CLIENT, Code.NOTIFY_UNSUBSCRIBE_LITE,
    ),
}  # fmt: skip

PURPOSES: dict[int, Purpose] = {code: each for each, codes in _CODES.items() for code in codes}
"""The purpose of every request."""

if sum(map(len, _CODES.values())) != len(PURPOSES):
    raise RuntimeError("a request code has two purposes")

READ_BY_REPLICAS = frozenset({
    Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
})  # fmt: skip
"""Requests of replicas that change nothing: RocketMQ serves them to everybody whom it knows."""

_REPLY_TOPIC_FIELDS: dict[int, str] = {
    Code.SEND_REPLY_MESSAGE: "topic",
    Code.SEND_REPLY_MESSAGE_V2: "b",
}


def is_reply(request: Frame, cluster: str) -> bool:
    """Whether a request sends a reply to the cluster's own topic of replies.

    That topic is nobody's, so everybody may answer. A reply reaches only the client whose request
    it answers, but is stored in its topic too: to another topic it is a send.
    """
    field = _REPLY_TOPIC_FIELDS.get(request.code)
    return field is not None and (request.fields or {}).get(field) == reply_topic(cluster)
