"""What RocketMQ has and Bolide does not, or not completely, with the reasons."""

from collections.abc import Mapping

from bolide.protocol.codes import RequestCode, ResponseCode

OURS_BEGIN = "BOLIDE_"
"""Prefix of the names of requests that RocketMQ does not have."""

_ANOTHER_RAFT = "RocketMQ's controllers use it among themselves; ours run on another Raft library"
_NO_ROCKSDB = "the store has its queues and tables in files, never in RocksDB"
_NO_LIGHT_TOPICS = "light topics are not implemented"
_NO_CONTAINERS = "a process runs one broker; start another process instead"

_REASONS: Mapping[str, tuple[RequestCode, ...]] = {
    _NO_ROCKSDB: (
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    ),
    _NO_LIGHT_TOPICS: (
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.ACK_LITE_MESSAGE,
        RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
        RequestCode.GET_BROKER_LITE_INFO,
        RequestCode.GET_PARENT_TOPIC_INFO,
        RequestCode.GET_LITE_TOPIC_INFO,
        RequestCode.GET_LITE_CLIENT_INFO,
        RequestCode.GET_LITE_GROUP_INFO,
        RequestCode.TRIGGER_LITE_DISPATCH,
    ),
    _NO_CONTAINERS: (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER),
    _ANOTHER_RAFT: (
        RequestCode.BROKER_CLOSE_CHANNEL_REQUEST,
        RequestCode.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        RequestCode.GET_BROKER_LIVE_INFO_REQUEST,
        RequestCode.GET_SYNC_STATE_DATA_REQUEST,
        RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    ),
}

REFUSED: Mapping[RequestCode, str] = {
    code: reason for reason, codes in _REASONS.items() for code in codes
}
"""Why Bolide does not answer a request that RocketMQ answers."""

_NO_LIGHT_QUEUES = "no light message queues"
_NO_OTHER_KINDS = "no light topics (`message.type=LITE`)"
_NO_PASSWORDS = (
    "the password is empty in the answer, so Java's `copyUser` cannot copy users that are new to"
    " the target"
)
_NO_GUESSES = "an unknown type, status, action, decision or resource is refused, not passed over"
_NOT_FIXED = "not for paths, addresses, passwords and what runs code"
_OWN_HOST = "without access control, from the host that registered the broker"
_KNOWN_HOSTS = (
    "without access control, from loopback and from hosts that the broker knows for that role"
)

PARTLY: Mapping[RequestCode, str] = {
    RequestCode.SEND_MESSAGE: _NO_LIGHT_QUEUES,
    RequestCode.SEND_MESSAGE_V2: _NO_LIGHT_QUEUES,
    RequestCode.SEND_BATCH_MESSAGE: _NO_LIGHT_QUEUES,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _NO_OTHER_KINDS,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _NO_OTHER_KINDS,
    RequestCode.UPDATE_BROKER_CONFIG: _NOT_FIXED,
    RequestCode.UPDATE_NAMESRV_CONFIG: _NOT_FIXED,
    RequestCode.UNREGISTER_BROKER: _OWN_HOST,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _OWN_HOST,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: _KNOWN_HOSTS,
    RequestCode.EXCHANGE_BROKER_HA_INFO: _KNOWN_HOSTS,
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (
        f"without effect: a slave never starts behind the end of its own log; {_KNOWN_HOSTS}"
    ),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _KNOWN_HOSTS,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: "secret keys are empty",
    RequestCode.UPDATE_CONTROLLER_CONFIG: _NOT_FIXED,
    RequestCode.SWITCH_TIMER_ENGINE: "the engine in files only, `F`, which always runs",
    RequestCode.AUTH_CREATE_USER: _NO_GUESSES,
    RequestCode.AUTH_UPDATE_USER: _NO_GUESSES,
    RequestCode.AUTH_GET_USER: _NO_PASSWORDS,
    RequestCode.AUTH_LIST_USER: _NO_PASSWORDS,
    RequestCode.AUTH_CREATE_ACL: _NO_GUESSES,
    RequestCode.AUTH_UPDATE_ACL: _NO_GUESSES,
    RequestCode.AUTH_DELETE_ACL: _NO_GUESSES,
}
"""What is missing in the answer to a request."""

_WITHIN_JAVA = "RocketMQ uses it within a process, not on the wire"

_REASONS_OF_RESPONSES: Mapping[str, tuple[ResponseCode, ...]] = {
    _WITHIN_JAVA: (
        ResponseCode.RPC_TIME_OUT,
        ResponseCode.RPC_SEND_TO_CHANNEL_FAILED,
        ResponseCode.RPC_ADDR_IS_NULL,
        ResponseCode.RPC_UNKNOWN,
    ),
    "every version of a request is served": (ResponseCode.VERSION_NOT_SUPPORTED,),
    "creating a topic again updates it": (ResponseCode.TOPIC_EXIST_ALREADY,),
    "RocketMQ's servers do not send it either": (
        ResponseCode.TRANSACTION_SHOULD_COMMIT,
        ResponseCode.TRANSACTION_SHOULD_ROLLBACK,
        ResponseCode.TRANSACTION_STATE_UNKNOW,
        ResponseCode.TRANSACTION_STATE_GROUP_WRONG,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.BROKER_NOT_EXIST,
        ResponseCode.BROKER_DISPATCH_NOT_COMPLETE,
        ResponseCode.BROADCAST_CONSUMPTION,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.USER_NOT_EXIST,
        ResponseCode.POLICY_NOT_EXIST,
    ),
    "a server that stops closes its connections": (ResponseCode.GO_AWAY,),
    _ANOTHER_RAFT: (
        ResponseCode.CONTROLLER_JRAFT_INTERNAL_ERROR,
        ResponseCode.CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS,
    ),
    _NO_LIGHT_TOPICS: (
        ResponseCode.LMQ_QUOTA_EXCEEDED,
        ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    ),
}

NEVER_SENT: Mapping[ResponseCode, str] = {
    code: reason for reason, codes in _REASONS_OF_RESPONSES.items() for code in codes
}
"""Why our servers and clients never answer with a code of RocketMQ."""

RENAMED_RESPONSES: Mapping[str, int] = {
    "UPDATE_AND_CREATE_ACL_CONFIG_FAILED": 209,
    "DELETE_ACL_CONFIG_FAILED": 210,
    "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED": 211,
}
"""Names in 4.9 of codes that have another meaning in 5.x."""

TOPIC_ATTRIBUTE_VALUES: Mapping[str, str] = {
    "queue.type": "`SimpleCQ`, `BatchCQ`; with `BatchCQ` neither `dedup.window` nor compaction",
    "cleanup.policy": (
        "`DELETE`, `COMPACTION`; see [compaction topics](how-to/compaction-topics.md)"
    ),
    "message.type": "**partly**: all but `LITE`; `MIXED` with `enableMixedMessageType=true`",
    "reserve.time": (
        "accepted and kept, without effect, as with RocketMQ's file store: only its tiered store"
        " uses it"
    ),
    "dedup.window": "our own: a number of messages, or a time such as `30s`, `10m`, `2h`, `7d`",
}
"""What of an attribute is supported."""

REFUSED_TOPIC_ATTRIBUTES: Mapping[str, str] = {
    "lite.topic.expiration": _NO_LIGHT_TOPICS,
}
"""Why an attribute cannot be set for a topic."""

GROUP_ATTRIBUTE_VALUES: Mapping[str, str] = {
    "priority.factor": "**supported**: 0 to 100, the percentage of pops that go by priority",
}
"""What of an attribute of groups is supported."""

REFUSED_GROUP_ATTRIBUTES: Mapping[str, str] = {
    "lite.bind.topic": _NO_LIGHT_TOPICS,
    "lite.sub.model": _NO_LIGHT_TOPICS,
    "lite.sub.reset.offset.exclusive": _NO_LIGHT_TOPICS,
    "lite.sub.reset.offset.unsubscribe": _NO_LIGHT_TOPICS,
    "lite.sub.client.quota": _NO_LIGHT_TOPICS,
    "lite.sub.client.max.event.cnt": _NO_LIGHT_TOPICS,
    "lite.sub.wildcard": _NO_LIGHT_TOPICS,
}
"""Why an attribute cannot be set for a consumer group."""

LEFT_OUT: Mapping[str, str] = {
    "OpenMessaging": "a Java interface over the Java client, which works with our brokers",
    "MQTT": "a separate project, which speaks to brokers through the Java client; not tried",
    "`correctTagsOffset` as a method": (
        "our consumers move their offset past messages that the filter leaves out by themselves"
    ),
    "Connectors for Flink and Beam": (
        "separate projects, which read and write through the Java client; not tried with our"
        " brokers; we ship connectors for Spark only"
    ),
    "Adaptive thresholds of cold reads (`coldCtrStrategyEnable`)": (
        "thresholds change only when an administrator sets them"
    ),
    "Timers and queues in RocksDB": _NO_ROCKSDB,
    "A test certificate (`tls.test.mode.enable`)": (
        "a server without a certificate serves plain text; the how-to makes one in three commands"
    ),
    "Certificates of clients that nobody verifies (`tls.server.authClient=false`)": (
        "a certificate that is asked for is verified; the two settings together are refused"
    ),
    "Some ciphers of TLS 1.3 (`tls.ciphers`)": (
        "Python's ssl module enables all of them or none; a list with some of them is refused"
    ),
    "Users and policies in RocksDB (`config/users`, `config/acls`)": (
        "they are in JSON files; those of RocketMQ's broker are not read: create them with"
        " `applyAcl`, or from `plain_acl.yml` with `migrateAuthFromV1Enabled`"
    ),
    "White lists of addresses in ACL 2.0": (
        "neither generation of RocketMQ has them there; the migration from ACL 1.0 leaves them out"
    ),
}
"""Why something around RocketMQ is not here."""
